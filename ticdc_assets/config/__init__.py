"""Settings: which changefeeds there are, where they come from and where their tables go.

In: one YAML file (`TICDC_CHANGEFEEDS`, default `./changefeeds.yaml`) and the lake's root
(`TICDC_LAKE`, default `./.lake`): a folder, or a URI, with the access to its store in the file's
block `storage`. Out: frozen `Settings`, or one `ConfigError` that lists every mistake of the file
with its key. Reading has no effects and may be repeated.

Every scalar is read as text and typed here, by key: YAML's own guesses (`no` is false, `12:30` is a
number) do not apply. Values given as `{env: NAME}` are resolved while reading and do not appear in
a `repr`, an error or a log: see `OptionValue`. A secret must be given so: a secret in the file
itself is a mistake.

This module connects to nothing and opens no other file; `preflight` does that.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

import yaml
from pydantic import TypeAdapter, ValidationError

from ticdc_assets.base.errors import ConfigError, NotFoundError, shorten
from ticdc_assets.base.machine import nearest_existing
from ticdc_assets.config.changefeed import (
    ALL_TABLES,
    NAME,
    OFF,
    WIRE_FORMATS,
    Alerts,
    Changefeed,
    CheckLimits,
    ClaimCheck,
    InDagster,
    Readers,
    Retention,
    Schedules,
    TableChoice,
    TableFilter,
    Writer,
)
from ticdc_assets.config.reading import (
    File,
    Keys,
    OptionValue,
    did_you_mean,
    mapping,
    unexpected,
    unknown_keys,
)
from ticdc_assets.config.sources import (
    CaptureSource,
    KafkaSource,
    Source,
    StartKind,
    StartPosition,
    is_loopback,
)
from ticdc_assets.config.spark import (
    SparkSettings,
    read_spark,
)
from ticdc_assets.config.storage import StorageBlock
from ticdc_assets.storage.paths import AnyPath, RemotePath, remote_path
from ticdc_assets.storage.stores import Storage

__all__ = [
    "ALL_TABLES",
    "CHANGEFEEDS_VARIABLE",
    "COMPUTE_VARIABLE",
    "HOME_VARIABLE",
    "LAKE_VARIABLE",
    "OFF",
    "WIRE_FORMATS",
    "Alerts",
    "CaptureSource",
    "Changefeed",
    "CheckLimits",
    "ClaimCheck",
    "Compute",
    "InDagster",
    "KafkaSource",
    "OptionValue",
    "Readers",
    "Retention",
    "Schedules",
    "Settings",
    "Source",
    "SparkSettings",
    "StartKind",
    "StartPosition",
    "TableChoice",
    "TableFilter",
    "Writer",
    "WrongEntry",
    "changefeeds_path",
    "is_loopback",
    "lake_path",
    "load_compute",
    "load_settings",
    "load_spark_settings",
    "parse_changefeeds",
]

Part = TypeVar("Part")

CHANGEFEEDS_VARIABLE = "TICDC_CHANGEFEEDS"
LAKE_VARIABLE = "TICDC_LAKE"
HOME_VARIABLE = "DAGSTER_HOME"
DEFAULT_CHANGEFEEDS = "changefeeds.yaml"
DEFAULT_LAKE = ".lake"
INSTANCE_FOLDER = ".dagster_home"
SPARK = "spark"
"""The key of the changefeeds file with Spark's settings."""
COMPUTE = "compute"
"""The key of the changefeeds file for where steps run."""
COMPUTE_VARIABLE = "TICDC_COMPUTE"
STORAGE = "storage"
"""The key of the changefeeds file for the access to the lake's store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEntry:
    """An entry of the file that is not a valid changefeed, with its mistakes, each a sentence.

    The name is "" if it is not valid or another entry has it; a position is `changefeeds[1]`. The
    alerts are those of the entry, if that part of it is valid.
    """

    name: str
    position: str
    mistakes: tuple[str, ...]
    alerts: Alerts


class Compute(StrEnum):
    """Where steps run."""

    AUTO = "auto"
    """Small work in the command's own process, which costs less than Spark; the rest on Spark."""
    SPARK = "spark"
    """Everything on Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is configured.

    Attributes:
        changefeeds: in the order of the file.
        lake: root of all tables: an absolute folder, or a URI.
        path: the file the changefeeds were read from, absolute.
        wrong: entries that were left out because of their mistakes.
    """

    changefeeds: tuple[Changefeed, ...]
    lake: AnyPath
    path: Path
    wrong: tuple[WrongEntry, ...] = ()
    spark: SparkSettings = field(default_factory=SparkSettings)
    compute: Compute = Compute.AUTO

    def home(self, env: Mapping[str, str] | None = None) -> Path:
        """Return the folder of the Dagster instance, absolute, whether it is there or not.

        What Dagster keeps is in SQLite or PostgreSQL and in logs, so it is never in a store.
        """
        named = (os.environ if env is None else env).get(HOME_VARIABLE)
        if named:
            return Path(os.path.expanduser(named)).absolute()  # noqa: PTH111  # as Dagster does
        if isinstance(self.lake, RemotePath):
            return self.path.parent / INSTANCE_FOLDER
        return self.lake / "_dagster"

    def changefeed(self, name: str) -> Changefeed:
        """Return the changefeed called `name`.

        Raises:
            NotFoundError: no changefeed has this name.
        """
        named = {changefeed.name: changefeed for changefeed in self.changefeeds}
        if name in named:
            return named[name]
        raise NotFoundError(
            f"no changefeed {name!r} in {self.path}{did_you_mean(name, named)}; "
            f"it has: {', '.join(named)}"
        )


def changefeeds_path(env: Mapping[str, str] | None = None) -> Path:
    """Return the absolute path of the changefeeds file, whether or not it exists."""
    return _path_of(env, CHANGEFEEDS_VARIABLE, DEFAULT_CHANGEFEEDS)


def lake_path(env: Mapping[str, str] | None = None) -> AnyPath:
    """Return the lake's root, whether or not it exists: an absolute path, or a URI.

    Raises:
        ConfigError: it is a URI, and it or the file that says how to reach it is wrong.
    """
    env = os.environ if env is None else env
    if "://" in env.get(LAKE_VARIABLE, ""):
        return _lake(env, _part_of_file(_read_storage, env))
    return _lake(env, Storage())


def _lake(env: Mapping[str, str], storage: Storage) -> AnyPath:
    value = env.get(LAKE_VARIABLE) or DEFAULT_LAKE
    if "://" in value:
        try:
            remote = remote_path(value, storage, env)
        except ConfigError as error:
            raise ConfigError(f"{LAKE_VARIABLE}: {error}") from None
        require_literal(remote, LAKE_VARIABLE)
        return remote
    lake = _path_of(env, LAKE_VARIABLE, DEFAULT_LAKE)
    require_literal(lake, LAKE_VARIABLE)
    try:
        place = nearest_existing(lake)
    except OSError as error:
        raise ConfigError(
            f"{LAKE_VARIABLE}: the lake is {lake}, which cannot be used ({error.strerror}); choose "
            "another one"
        ) from error
    if not place.is_dir():
        raise ConfigError(
            f"{LAKE_VARIABLE}: the lake is {lake}, and {place} is not a folder; choose another one"
        )
    return lake


def require_literal(lake: AnyPath, where: str) -> None:
    """Refuse a lake whose path delta-rs cannot read, or takes for another one.

    It decodes escapes in paths: its checkpoints would be those of a table in that other folder.

    Raises:
        ConfigError: the path, which the setting `where` names, has such a character or escape.
    """
    match = _NOT_LITERAL.search(str(lake))
    if match is not None:
        raise ConfigError(
            f"{where}: the lake is {str(lake)!r}, and delta-rs cannot read {match[0]!r} in a path, "
            "or reads it as another character; choose another one"
        )


_NOT_LITERAL: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]^|\x00-\x1f\x7f]")


def load_settings(env: Mapping[str, str] | None = None, *, partly: bool = False) -> Settings:
    """Read the settings that the environment points to: `env`, or that of this program.

    If they may be read `partly`, entries with mistakes are left out and listed in `Settings.wrong`.

    Raises:
        ConfigError: a file or variable is missing or wrong; the text lists every mistake.
    """
    env = os.environ if env is None else env
    path = changefeeds_path(env)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; write one (`ticdc-assets doctor` shows how one begins) or set "
            f"{CHANGEFEEDS_VARIABLE} to where it is"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    document = _document(content, path)
    mistakes: list[str] = []
    spark = _read_spark(document, path, env, mistakes)
    storage = _read_storage(document, path, env, mistakes)
    compute = _read_compute(document, path, env, mistakes)
    changefeeds, wrong = _read(document, path, env, partly=partly, outside=mistakes)
    lake = _lake(env, storage)
    return Settings(
        changefeeds=changefeeds, lake=lake, path=path, wrong=wrong, spark=spark, compute=compute
    )


def load_compute(env: Mapping[str, str] | None = None) -> Compute:
    """Read where steps run; the file may be missing or have no changefeed.

    Raises:
        ConfigError: the variable or the file's key is wrong.
    """
    return _part_of_file(_read_compute, env)


def load_spark_settings(env: Mapping[str, str] | None = None) -> SparkSettings:
    """Read Spark's settings; the file may be missing or have no changefeed.

    Raises:
        ConfigError: a setting of Spark is wrong; the text lists every mistake.
    """
    return _part_of_file(_read_spark, env)


def _part_of_file(
    read: Callable[[Mapping[str, Any], Path, Mapping[str, str], list[str]], Part],
    env: Mapping[str, str] | None,
) -> Part:
    env = os.environ if env is None else env
    path = changefeeds_path(env)
    mistakes: list[str] = []
    part = read(_of_file(path), path, env, mistakes)
    if mistakes:
        raise _refusal(path, mistakes)
    return part


def _of_file(path: Path) -> Mapping[str, Any]:
    """Return the content of a changefeeds file, empty without a file; read once per version."""
    try:
        seen = path.stat()
    except OSError:
        return {}
    return _document_of(path, (seen.st_mtime_ns, seen.st_size))


@lru_cache(maxsize=4)
def _document_of(path: Path, _seen: tuple[int, int]) -> Mapping[str, Any]:
    try:
        return _document(path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _read_compute(
    document: Mapping[str, Any], _path: Path, env: Mapping[str, str], mistakes: list[str]
) -> Compute:
    variable = env.get(COMPUTE_VARIABLE)
    place, given = (COMPUTE_VARIABLE, variable) if variable else (COMPUTE, document.get(COMPUTE))
    if given is None:
        return Compute.AUTO
    try:
        return Compute(given)
    except ValueError:
        mistakes.append(f"{place}: {unexpected('auto or spark', given).message()}")
        return Compute.AUTO


def _read_spark(
    document: Mapping[str, Any], path: Path, env: Mapping[str, str], mistakes: list[str]
) -> SparkSettings:
    settings, spark_mistakes = read_spark(document.get(SPARK), path, env)
    mistakes += [f"{SPARK}: {mistake}" for mistake in spark_mistakes]
    return settings


def parse_changefeeds(
    content: bytes | str | Mapping[str, Any], *, path: Path, env: Mapping[str, str]
) -> tuple[Changefeed, ...]:
    """Read what a changefeeds file has: YAML, or its mapping, with texts for all scalars.

    Errors name its path, to which paths of captures are relative.

    Raises:
        ConfigError: the content is not valid; the message lists every mistake.
    """
    document = content if isinstance(content, Mapping) else _document(content, path)
    return _read(document, path, env)[0]


def _path_of(env: Mapping[str, str] | None, variable: str, default: str) -> Path:
    env = os.environ if env is None else env
    value = env.get(variable) or default
    if "://" in value:
        raise ConfigError(f"{variable}: expected a path on this machine, got {shorten(value)}")
    try:
        # Absolute, but links are kept, so that messages show the path the user wrote.
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"{variable}: {shorten(value)} begins with no user's home") from error


# --- entries ---

_ENTRY: Final[TypeAdapter[Changefeed]] = TypeAdapter(
    Annotated[Changefeed, Keys("a changefeed (a mapping)")]
)
_ALERTS: Final[TypeAdapter[Alerts]] = TypeAdapter(Annotated[Alerts, Keys("a mapping with `to`")])
_STORAGE: Final[TypeAdapter[StorageBlock]] = TypeAdapter(
    Annotated[StorageBlock, Keys("how the lake's store is reached (a mapping)")]
)


def _document(content: bytes | str, path: Path) -> dict[str, Any]:
    document: object = _load_yaml(content, path)
    try:
        return mapping(document or {})
    except ValueError:
        got = unexpected("a mapping with `changefeeds`", document)
        raise _refusal(path, [f"the file: {got.message()}"]) from None


def _read(
    given: Mapping[str, Any],
    path: Path,
    env: Mapping[str, str],
    *,
    partly: bool = False,
    outside: Iterable[str] = (),
) -> tuple[tuple[Changefeed, ...], tuple[WrongEntry, ...]]:
    """Return the changefeeds of a file and, if it may be read partly, its wrong entries."""
    file, key = File(path.parent, env), "changefeeds"
    keys = [key, COMPUTE, SPARK, STORAGE]
    outside = [
        *(f"{other}: {it.message()}" for other, it in unknown_keys(given, keys)),
        *outside,
    ]
    entries, expected = given.get(key), "a non-empty list of changefeeds"
    if not isinstance(entries, list) or not entries:
        if key in given:
            outside.append(f"{key}: {unexpected(expected, entries).message()}")
        raise _refusal(path, outside or [f"{key}: missing; expected {expected}"])
    changefeeds: list[Changefeed] = []
    wrong: list[WrongEntry] = []
    first_at: dict[str, str] = {}
    for number, entry in enumerate(cast(list[Any], entries)):
        position, mistakes = f"{key}[{number}]", list[str]()
        try:
            changefeed = _ENTRY.validate_python(entry, context=file)
        except ValidationError as error:
            changefeed = None
            mistakes = [f"{position}{_place(it['loc'])}: {it['msg']}" for it in error.errors()]
        name = _name_of(entry)
        other = first_at.setdefault(name, position) if name else position
        if other != position:
            same = unexpected(f"a name other than that of {other}", name)
            mistakes.append(f"{position}.name: {same.message()}")
            name = ""
        if changefeed is None or mistakes:
            alerts = _alerts_of(entry, file)
            wrong.append(
                WrongEntry(name=name, position=position, mistakes=tuple(mistakes), alerts=alerts)
            )
        else:
            changefeeds.append(changefeed)
    if outside or (wrong and not partly):
        raise _refusal(path, [*outside, *(it for entry in wrong for it in entry.mistakes)])
    return tuple(changefeeds), tuple(wrong)


def _read_storage(
    document: Mapping[str, Any], path: Path, env: Mapping[str, str], mistakes: list[str]
) -> Storage:
    value = document.get(STORAGE)
    if value is None:
        return Storage()
    try:
        return _STORAGE.validate_python(value, context=File(path.parent, env)).storage()
    except ValidationError as error:
        mistakes += [f"{STORAGE}{_place(it['loc'])}: {it['msg']}" for it in error.errors()]
        return Storage()


def _name_of(entry: Any) -> str:
    name = cast(dict[str, Any], entry).get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and NAME.fullmatch(name) else ""


def _alerts_of(entry: Any, file: File) -> Alerts:
    given = cast(dict[str, Any], entry).get("alerts") if isinstance(entry, dict) else None
    try:
        return _ALERTS.validate_python(given, context=file)
    except ValidationError:
        return Alerts()


def _place(keys: Iterable[str | int]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)


def _refusal(path: Path, mistakes: list[str]) -> ConfigError:
    if len(mistakes) == 1:
        return ConfigError(f"{path}: {mistakes[0]}")
    listed = "".join(f"\n  {mistake}" for mistake in mistakes)
    return ConfigError(f"{path} has {len(mistakes)} mistakes:{listed}")


# --- YAML ---


class _TextLoader(yaml.BaseLoader):
    """All scalars are text, and a repeated key is an error instead of a silent loss."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _load_yaml(content: bytes | str, path: Path) -> Any:
    try:
        # The loader only builds text, lists and dicts.
        return yaml.load(content, Loader=_TextLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        hint = _hint_of_line(content, mark.line) if mark else ""
        # "while parsing ..." adds nothing to the place; any other context begins the sentence.
        context = error.context or "while"
        begun = "" if context.startswith("while") else f"{context}, "
        raise ConfigError(f"{path}{where}: not valid YAML: {begun}{error.problem}{hint}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(
            f"{path}, position {error.position}: not valid YAML: {error.reason}"
        ) from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid YAML: nested too deeply") from None


def _hint_of_line(content: bytes | str, number: int) -> str:
    """Return what to do about a line that is not YAML, where that is known."""
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    lines = text.splitlines()
    line = lines[number] if number < len(lines) else ""
    if any(placeholder in line for placeholder in ("{schema}", "{table}", "{column:")):
        return '; patterns of topics have to be quoted, like "{schema}_{table}"'
    return ""
