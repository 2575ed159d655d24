"""Settings: which changefeeds there are, where they come from and where their tables go.

In: one YAML file (`TICDC_CHANGEFEEDS`, default `./changefeeds.yaml`) and the lake's root
(`TICDC_LAKE`, default `./.lake`). Out: frozen `Settings`, or one `ConfigError` that lists every
mistake of the file with the key it stands at. Reading has no effects and may be repeated.

Every scalar is read as text and typed here, by key: YAML's own guesses (`no` is false, `12:30` is
a number) do not apply. Values given as `{env: NAME}` are resolved while reading and do not appear
in a `repr`, an error or a log: see `OptionValue`. A secret has to be given so: one that stands in
the file itself is a mistake.

Not done here: nothing is connected to and no file but the YAML is opened; `preflight` does that.
"""

import difflib
import ipaddress
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml

from ticdc_assets.cron import cron_mistake
from ticdc_assets.errors import ConfigError, NotFoundError, shorten
from ticdc_assets.topics import TopicPattern, is_topic_name, is_topic_pattern
from ticdc_assets.wire.compression import Compression, supports
from ticdc_assets.wire.formats import WireFormat

CHANGEFEEDS_VARIABLE = "TICDC_CHANGEFEEDS"
LAKE_VARIABLE = "TICDC_LAKE"
DEFAULT_CHANGEFEEDS = "changefeeds.yaml"
DEFAULT_LAKE = ".lake"

DEFAULT_LAG_WARN_SECONDS = 300.0
DEFAULT_LAG_ERROR_SECONDS = 900.0
DEFAULT_CUTS_KEPT = timedelta(days=30)
DEFAULT_FOLLOW_SECONDS = 600.0
DEFAULT_MAX_AHEAD_SECONDS = 3_600.0

OFF: Final = "off"
"""What a schedule's time is if the schedule is not to run at all."""

WIRE_FORMATS = tuple(member.value for member in WireFormat)
"""The names a changefeed's `format` may have."""

STORAGE_SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""The schemes of URIs that a claim check's `location` may have: those of Arrow's filesystems."""


class SecurityProtocol(StrEnum):
    """Kafka's four ways to talk to a broker."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


@dataclass(frozen=True, slots=True, repr=False)
class OptionValue:
    """The value of a client option; shows where it came from instead of what it is if secret.

    Args:
        value: the value for the client.
        shown: what `repr` and `str` give in its place.
    """

    value: str
    shown: str

    def __repr__(self) -> str:
        return self.shown

    def __str__(self) -> str:
        return self.shown


class StartKind(StrEnum):
    """Where in a topic landing begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where landing begins: at a changefeed's first landing, and never again.

    It is for the topics that are there when nothing of the changefeed was landed yet. A topic that
    appears later is read from its first record, whatever stands here: what came before the first
    landing is not in it. Once something was landed, a change of it changes nothing.

    Args:
        kind: at the first record there is, after the last one, or by time.
        timestamp_ms: for a time: the first record whose Kafka timestamp is not before it.
    """

    kind: StartKind = StartKind.EARLIEST
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """Topics of a Kafka cluster.

    Attributes:
        bootstrap_servers: `host:port`, several separated by commas.
        topics: names of the topics that stand in the file, all partitions of each.
        patterns: patterns of further topics: those the brokers have, and those that come later.
        start: where the first landing begins.
        options: client options by their librdkafka (or Java) names.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    patterns: tuple[TopicPattern, ...] = ()
    start: StartPosition = StartPosition()
    options: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])

    def takes(self, topic: str) -> bool:
        """Return whether a topic is one of the source's, by its name or by a pattern."""
        return topic in self.topics or any(pattern.matches(topic) for pattern in self.patterns)

    @property
    def topics_shown(self) -> str:
        """The names and patterns as one text for people."""
        return ", ".join([*self.topics, *(pattern.text for pattern in self.patterns)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSource:
    """A capture: a file of Kafka records.

    Attributes:
        path: the file, absolute; it may grow and need not exist yet.
        partitions: number of partitions of a topic where the file alone does not tell.
    """

    path: Path
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])


Source: TypeAlias = KafkaSource | CaptureSource
"""Where the records of a changefeed come from."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClaimCheck:
    """Where TiCDC put the messages that were too large for Kafka (`claim-check-storage-uri`).

    Attributes:
        location: an absolute path, or a URI as Arrow's filesystems read it; it may hold
            credentials.
        raw_value: whether the files are the bare values (`claim-check-raw-value`).
    """

    location: str
    raw_value: bool = False

    @property
    def shown(self) -> str:
        """The location without credentials."""
        return _shown_location(self.location)

    def __repr__(self) -> str:
        return f"ClaimCheck(location={self.shown!r}, raw_value={self.raw_value})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long what a changefeed brought is kept; None is for ever.

    Ages are counted from when a record was landed and a cut was published, not from when a change
    was committed upstream: what an old capture brings is not old here.

    Attributes:
        raw_messages: records, from the publishing of a cut that has all of their changes.
        change_log: changes, from the publishing of a cut that has them.
        cuts: cuts, and with them the versions of mirrors.
    """

    raw_messages: timedelta | None = None
    change_log: timedelta | None = None
    cuts: timedelta | None = DEFAULT_CUTS_KEPT

    @property
    def longest(self) -> timedelta | None:
        """The longest of what is not for ever: about as far back as a mirror is read."""
        ages = (self.raw_messages, self.change_log, self.cuts)
        return None if self.cuts is None else max(age for age in ages if age is not None)


@dataclass(frozen=True, slots=True)
class TableChoice:
    """Some tables of a changefeed.

    Args:
        patterns: `database.table`, in both of which `*` stands for any characters.
    """

    patterns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def includes(self, database: str, table: str) -> bool:
        """Return whether a table is one of them; case does not matter, as it does not upstream."""
        return any(
            _like(database, pattern.partition(".")[0]) and _like(table, pattern.partition(".")[2])
            for pattern in self.patterns
        )


ALL_TABLES: Final = TableChoice(("*.*",))
"""Every table there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilter:
    """The tables of which a changefeed has mirrors.

    It is for mirrors only: landing and the change log have every table, so that a table which is
    included later is made from its first change on.

    Attributes:
        include: the tables to mirror.
        exclude: those of them not to mirror.
    """

    include: TableChoice = ALL_TABLES
    exclude: TableChoice = TableChoice()

    def includes(self, database: str, table: str) -> bool:
        """Return whether a table is mirrored; case does not matter, as it does not upstream."""
        return self.include.includes(database, table) and not self.exclude.includes(database, table)

    @property
    def takes_all(self) -> bool:
        """Whether no table is left out, whatever its name."""
        return "*.*" in self.include.patterns and not self.exclude


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLimits:
    """Seconds from which asset checks warn and fail; lag has limits of its own.

    Attributes:
        held_warn_seconds: age of the oldest held row from which the check warns.
        held_error_seconds: age of the oldest held row from which it fails.
        stuck_warn_seconds: how long the watermark may stand still while rows arrive, or rows be
            missing while it moves, before the check warns.
        stuck_error_seconds: the same before it fails.
        quiet_warn_seconds: how long nothing at all may arrive before the check warns; None for
            ever.
    """

    held_warn_seconds: float = 600.0
    held_error_seconds: float = 3_600.0
    stuck_warn_seconds: float = 300.0
    stuck_error_seconds: float = 900.0
    quiet_warn_seconds: float | None = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedules:
    """When the schedules of a changefeed are due, in UTC.

    Each is a cron text of five fields, `OFF` for a schedule that must not run, or None where the
    file says nothing and the schedule has its own time.

    Attributes:
        maintenance: removing what is not kept, and compacting.
        verify: comparing mirrors with their rebuild.
        redecode: decoding the days that are over again.
        report: writing the report.
    """

    maintenance: str | None = None
    verify: str | None = None
    redecode: str | None = None
    report: str | None = None


def _like(name: str, pattern: str) -> bool:
    expression = ".*".join(re.escape(part) for part in pattern.lower().split("*"))
    return re.fullmatch(expression, name.lower(), re.DOTALL) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changefeed:
    """One TiCDC replication task as we read it.

    Attributes:
        name: its name here: first part of its asset keys and its folder in the lake.
        wire_format: the value of a `wire.WireFormat`.
        timezone: IANA name of the zone TiCDC encodes timestamps in.
        source: where its records are.
        compression: how TiCDC compresses its messages.
        claim_check: where it puts large messages, None if nowhere.
        lag_warn_seconds: replication lag from which the lag check warns.
        lag_error_seconds: replication lag from which the lag check fails.
        retention: how long its tables keep what they have.
        history: tables of which a history is kept.
        soft_delete: tables whose deleted rows can be read; it is their history that has these.
        tables: the tables that are mirrored.
        owners: who answers for it: `team:name` or e-mail addresses.
        checks: limits of the checks other than lag.
        follow_seconds: how long a run goes on syncing what arrives meanwhile; 0 for not at all.
        schedules: when its schedules are due.
        max_ahead_seconds: how far a commit ts or a watermark may be ahead of the clock; what is
            further ahead is quarantined.
    """

    name: str
    wire_format: str
    timezone: str
    source: Source
    compression: Compression = Compression.NONE
    claim_check: ClaimCheck | None = None
    lag_warn_seconds: float = DEFAULT_LAG_WARN_SECONDS
    lag_error_seconds: float = DEFAULT_LAG_ERROR_SECONDS
    retention: Retention = field(default_factory=Retention)
    history: TableChoice = TableChoice()
    soft_delete: TableChoice = TableChoice()
    tables: TableFilter = TableFilter()
    owners: tuple[str, ...] = ()
    checks: CheckLimits = CheckLimits()
    follow_seconds: float = DEFAULT_FOLLOW_SECONDS
    schedules: Schedules = Schedules()
    max_ahead_seconds: float = DEFAULT_MAX_AHEAD_SECONDS

    def keeps_history(self, database: str, table: str) -> bool:
        """Return whether a history of a table is kept."""
        return self.history.includes(database, table) or self.soft_delete.includes(database, table)

    @property
    def zone(self) -> ZoneInfo:
        """The time zone as an object."""
        return ZoneInfo(self.timezone)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEntry:
    """An entry of the file that is no changefeed.

    Attributes:
        name: the name it gives itself, if that could be one and no other entry has it; else "".
        position: where it stands, e.g. `changefeeds[1]`.
        mistakes: what is wrong with it, each a sentence with its key.
    """

    name: str
    position: str
    mistakes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is configured.

    Attributes:
        changefeeds: in the order of the file.
        lake: root folder of all tables, absolute.
        path: the file the changefeeds were read from, absolute.
        wrong: entries that were left out because of their mistakes.
    """

    changefeeds: tuple[Changefeed, ...]
    lake: Path
    path: Path
    wrong: tuple[WrongEntry, ...] = ()

    def changefeed(self, name: str) -> Changefeed:
        """Return the changefeed called `name`.

        Raises:
            NotFoundError: there is none of that name.
        """
        for changefeed in self.changefeeds:
            if changefeed.name == name:
                return changefeed
        names = [changefeed.name for changefeed in self.changefeeds]
        raise NotFoundError(
            f"no changefeed {name!r} in {self.path}{_did_you_mean(name, names)}; "
            f"it has: {', '.join(names)}"
        )


def changefeeds_path(env: Mapping[str, str] | None = None) -> Path:
    """Return the absolute path of the changefeeds file, whether or not it exists."""
    return _path_of(env, CHANGEFEEDS_VARIABLE, DEFAULT_CHANGEFEEDS)


def lake_path(env: Mapping[str, str] | None = None) -> Path:
    """Return the absolute path of the lake's root, whether or not it exists."""
    return _path_of(env, LAKE_VARIABLE, DEFAULT_LAKE)


def load_settings(env: Mapping[str, str] | None = None, *, partly: bool = False) -> Settings:
    """Read the settings that the environment points to.

    Args:
        env: environment variables; the environment of this program if None.
        partly: whether entries with mistakes are left out, and told in `Settings.wrong`.

    Raises:
        ConfigError: a file or variable is missing or wrong; the text has every mistake found.
    """
    env = os.environ if env is None else env
    path = changefeeds_path(env)
    lake = lake_path(env)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; write one (`ticdc-assets doctor` shows how one begins) or set "
            f"{CHANGEFEEDS_VARIABLE} to where it is"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    reader = _Reader(folder=path.parent, env=env)
    changefeeds = reader.document(_load_yaml(content, path))
    wrong: tuple[WrongEntry, ...] = ()
    if partly and not reader.problems_outside:
        wrong = tuple(reader.wrong)
        left_out = {entry.position for entry in wrong}
        changefeeds = tuple(
            changefeed
            for number, changefeed in enumerate(changefeeds)
            if _position(number) not in left_out
        )
    else:
        reader.refuse(path)
    return Settings(changefeeds=changefeeds, lake=lake, path=path, wrong=wrong)


def parse_changefeeds(
    content: bytes | str, *, path: Path, env: Mapping[str, str]
) -> tuple[Changefeed, ...]:
    """Read the text of a changefeeds file.

    Args:
        content: the YAML.
        path: where it stands, for errors and for relative paths of captures.
        env: environment variables for `{env: NAME}`.

    Raises:
        ConfigError: the text is not valid; the message has every mistake found.
    """
    reader = _Reader(folder=path.parent, env=env)
    changefeeds = reader.document(_load_yaml(content, path))
    reader.refuse(path)
    return changefeeds


def is_loopback(bootstrap_servers: str) -> bool:
    """Return whether every server of the list is on this machine."""
    return all(
        _is_loopback_host(_split_server(server)[0]) for server in _servers(bootstrap_servers)
    )


# --- YAML ---


class _TextLoader(yaml.BaseLoader):
    """All scalars are text, and a key that stands twice is an error instead of a silent loss."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _load_yaml(content: bytes | str, path: Path) -> Any:
    try:
        # The loader only ever builds text, lists and dicts.
        return yaml.load(content, Loader=_TextLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        hint = _hint_of_line(content, mark.line) if mark else ""
        raise ConfigError(f"{path}{where}: not valid YAML: {error.problem}{hint}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(
            f"{path}, position {error.position}: not valid YAML: {error.reason}"
        ) from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid YAML: nested too deeply") from None


def _hint_of_line(content: bytes | str, number: int) -> str:
    """Return what to do about a line that is no YAML, where that is known."""
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    lines = text.splitlines()
    line = lines[number] if number < len(lines) else ""
    if any(placeholder in line for placeholder in ("{schema}", "{table}", "{column:")):
        return '; patterns of topics have to be quoted, like "{schema}_{table}"'
    return ""


# --- validation ---

_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,63}")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_AGE = re.compile(r"(?P<number>[1-9][0-9]{0,4}) (?P<unit>day|hour)s?")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_SECRET_KEY = re.compile(r"password|secret|token|jaas|passphrase|\.key|\.pem|oauth", re.IGNORECASE)
_NO_SECRET_KEY = re.compile(
    # Where a secret is and how it is made: paths, addresses, names of methods; and certificates.
    r"[._](location|file|urls?|type|algorithm|class|method|scope|client\.id|audience|name|keytab|jwt)$"
    r"|[._](seconds|ms|urlencode)$|[._](ca|certificate)\.pem$|certificate\.chain$",
    re.IGNORECASE,
)
_SECRET_PARAMETER = re.compile(r"password|secret|token|key|sas|sig|credential", re.IGNORECASE)
_FROM_ENV = "{env: NAME}, as a secret comes from the environment only"

# The rule by which Dagster takes an owner, but for blanks in the name of a team.
_OWNER = re.compile(r"team:\S+|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")

_OWN_POSITION = "positions are kept in raw_messages, not in a consumer group"
_OWN_BYTES = "keys and values are landed as bytes, as they are"
_OWN_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "bootstrap_servers stands beside options",
    "metadata.broker.list": "bootstrap_servers stands beside options",
    "group.id": _OWN_POSITION,
    "enable.auto.commit": _OWN_POSITION,
    "enable.auto.offset.store": _OWN_POSITION,
    "auto.offset.reset": "landing starts at the landed position and never resets",
    "key.deserializer": _OWN_BYTES,
    "value.deserializer": _OWN_BYTES,
    "key.serializer": _OWN_BYTES,
    "value.serializer": _OWN_BYTES,
    "interceptor.classes": _OWN_BYTES,
}

_NO_CLAIM_CHECKS = {WireFormat.CRAFT}
_NO_RAW_VALUES = {WireFormat.OPEN_PROTOCOL}

_CREDENTIAL_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

_MISSING: Any = object()

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Reader:
    """Turns parsed YAML into changefeeds and collects what is wrong with it on the way.

    A method whose input is wrong notes a problem and returns a value of its type all the same, so
    that the rest of the file is still looked at; nothing read is used once there is a problem.
    """

    def __init__(self, *, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.env = env
        self.problems: list[str] = []
        self.wrong: list[WrongEntry] = []

    @property
    def problems_outside(self) -> bool:
        """Whether something is wrong that is no entry's own."""
        return len(self.problems) > sum(len(entry.mistakes) for entry in self.wrong)

    def refuse(self, path: Path) -> None:
        """Raise what is wrong with the file, all of it, if anything is."""
        if len(self.problems) == 1:
            raise ConfigError(f"{path}: {self.problems[0]}")
        if self.problems:
            listed = "".join(f"\n  {problem}" for problem in self.problems)
            raise ConfigError(f"{path} has {len(self.problems)} mistakes:{listed}")

    def problem(self, position: str, expected: str, got: Any) -> None:
        """Note that `got` stands at `position` where `expected` was needed."""
        if got is _MISSING:
            self.problems.append(f"{position}: missing; expected {expected}")
        else:
            self.problems.append(f"{position}: expected {expected}, got {shorten(got)}")

    def document(self, value: Any) -> tuple[Changefeed, ...]:
        fields = self.mapping(value or {}, "", {"changefeeds"}, what="a mapping with `changefeeds`")
        value = fields.get("changefeeds", _MISSING)
        listed = _as_list(value)
        if not listed:
            if "changefeeds" in fields or not self.problems:
                self.problem("changefeeds", "a non-empty list of changefeeds", value)
            return ()
        changefeeds: list[Changefeed] = []
        first_at: dict[str, str] = {}
        for number, item in enumerate(listed):
            position, known = _position(number), len(self.problems)
            changefeed = self.changefeed(item, position)
            changefeeds.append(changefeed)
            other = first_at.setdefault(changefeed.name, position)
            if changefeed.name and other != position:
                self.problem(
                    f"{position}.name", f"a name other than that of {other}", changefeed.name
                )
            mistakes = tuple(self.problems[known:])
            if mistakes:
                name = changefeed.name if other == position else ""
                self.wrong.append(WrongEntry(name=name, position=position, mistakes=mistakes))
        return tuple(changefeeds)

    def changefeed(self, value: Any, position: str) -> Changefeed:
        keys = {
            *("name", "format", "timezone", "source", "compression", "claim_check"),
            *("lag_warn_seconds", "lag_error_seconds", "retention"),
            *("history", "soft_delete", "tables"),
            *("owners", "checks", "follow_seconds", "schedules", "max_ahead_seconds"),
        }
        fields = self.mapping(value, position, keys, what="a changefeed (a mapping)")
        if not isinstance(value, dict):
            return Changefeed(name="", wire_format="", timezone="", source=self.no_source())
        warn, error = self.warn_and_error(
            fields, "lag", position, (DEFAULT_LAG_WARN_SECONDS, DEFAULT_LAG_ERROR_SECONDS)
        )
        wire_format = self.wire_format(fields.get("format", _MISSING), f"{position}.format")
        return Changefeed(
            name=self.name(fields.get("name", _MISSING), f"{position}.name"),
            wire_format="" if wire_format is None else wire_format,
            timezone=self.timezone(fields.get("timezone", _MISSING), f"{position}.timezone"),
            source=self.source(fields.get("source", _MISSING), f"{position}.source"),
            compression=self.compression(
                fields.get("compression", _MISSING), f"{position}.compression", wire_format
            ),
            claim_check=self.claim_check(
                fields.get("claim_check", _MISSING), f"{position}.claim_check", wire_format
            ),
            lag_warn_seconds=warn,
            lag_error_seconds=error,
            retention=self.retention(fields.get("retention", _MISSING), f"{position}.retention"),
            history=self.tables(fields.get("history", _MISSING), f"{position}.history"),
            soft_delete=self.tables(fields.get("soft_delete", _MISSING), f"{position}.soft_delete"),
            tables=self.table_filter(fields.get("tables", _MISSING), f"{position}.tables"),
            owners=self.owners(fields.get("owners", _MISSING), f"{position}.owners"),
            checks=self.checks(fields.get("checks", _MISSING), f"{position}.checks"),
            follow_seconds=self.seconds(
                fields, "follow_seconds", position, DEFAULT_FOLLOW_SECONDS, zero=True
            ),
            schedules=self.schedules(fields.get("schedules", _MISSING), f"{position}.schedules"),
            max_ahead_seconds=self.seconds(
                fields, "max_ahead_seconds", position, DEFAULT_MAX_AHEAD_SECONDS, most=math.inf
            ),
        )

    def name(self, value: Any, position: str) -> str:
        if isinstance(value, str) and _NAME.fullmatch(value):
            return value
        self.problem(
            position,
            "1 to 64 of a-z, 0-9 and _, not starting with _ "
            "(it becomes a folder and a part of asset keys)",
            value,
        )
        return ""

    def wire_format(self, value: Any, position: str) -> WireFormat | None:
        if value in WIRE_FORMATS:
            return WireFormat(value)
        hint = _did_you_mean(value, WIRE_FORMATS) if isinstance(value, str) else ""
        self.problem(position, f"one of {', '.join(WIRE_FORMATS)}{hint}", value)
        return None

    def compression(self, value: Any, position: str, wire_format: WireFormat | None) -> Compression:
        if value is _MISSING:
            return Compression.NONE
        if value not in tuple(Compression):
            self.problem(position, f"one of {', '.join(Compression)}", value)
            return Compression.NONE
        compression = Compression(value)
        if wire_format is not None and not supports(wire_format, compression):
            self.problem(position, f"none, as {wire_format} has no compression", value)
        return compression

    def claim_check(
        self, value: Any, position: str, wire_format: WireFormat | None
    ) -> ClaimCheck | None:
        if value is _MISSING:
            return None
        if wire_format in _NO_CLAIM_CHECKS:
            self.problems.append(f"{position}: not to be set: {wire_format} has no claim checks")
            return None
        what = "a mapping with `location`"
        fields = self.mapping(value, position, {"location", "raw_value"}, what=what)
        if not isinstance(value, dict):
            return None
        raw_value = fields.get("raw_value", "false")
        if raw_value not in ("true", "false"):
            self.problem(f"{position}.raw_value", "true or false", raw_value)
        elif raw_value == "true" and wire_format in _NO_RAW_VALUES:
            self.problem(
                f"{position}.raw_value", f"false, as {wire_format} has no raw values", raw_value
            )
        location = self.location(fields.get("location", _MISSING), f"{position}.location")
        return ClaimCheck(location=location, raw_value=raw_value == "true")

    def location(self, value: Any, position: str) -> str:
        """Return a folder as a URI or as an absolute path."""
        expected = f"the path of a folder, or a URI of {', '.join(STORAGE_SCHEMES)}"
        resolved = self.scalar(value, position, expected, secret=True)
        if resolved is None:
            return ""
        location = resolved.value
        shown = resolved if resolved.shown != location else _shown_location(location)
        if "\0" in location or not location.strip():
            self.problem(position, expected, shown)
            return ""
        scheme, separator, _ = location.partition("://")
        if not separator:
            return str(self.folder / Path(location).expanduser())
        if scheme not in STORAGE_SCHEMES:
            self.problem(position, expected, shown)
        elif resolved.shown == location and _has_credentials(location):
            self.problem(position, _FROM_ENV, shown)
        return location

    def tables(self, value: Any, position: str) -> TableChoice:
        if value is _MISSING:
            return TableChoice()
        if value == "all":
            return TableChoice(("*.*",))
        given = _as_list(value)
        if not given:
            self.problem(position, "all, or a non-empty list of database.table", value)
            return TableChoice()
        patterns: list[str] = []
        for number, pattern in enumerate(given):
            at = f"{position}[{number}]"
            parts = pattern.partition(".") if isinstance(pattern, str) else ("", "", "")
            if not parts[0] or not parts[2]:
                expected = "database.table, in which * stands for any characters"
                self.problem(at, expected, pattern)
            elif pattern in patterns:
                self.problem(at, "each table once", pattern)
            else:
                patterns.append(pattern)
        return TableChoice(tuple(patterns))

    def table_filter(self, value: Any, position: str) -> TableFilter:
        if value is _MISSING:
            return TableFilter()
        what = "a mapping with any of `include` and `exclude`"
        fields = self.mapping(value, position, {"include", "exclude"}, what=what)
        include = fields.get("include", _MISSING)
        return TableFilter(
            include=ALL_TABLES
            if include is _MISSING
            else self.tables(include, f"{position}.include"),
            exclude=self.tables(fields.get("exclude", _MISSING), f"{position}.exclude"),
        )

    def owners(self, value: Any, position: str) -> tuple[str, ...]:
        if value is _MISSING:
            return ()
        given = _as_list(value)
        if not given:
            self.problem(position, "a non-empty list of owners", value)
            return ()
        owners: list[str] = []
        for number, owner in enumerate(given):
            at = f"{position}[{number}]"
            if not isinstance(owner, str) or not _OWNER.fullmatch(owner):
                self.problem(at, "team:name or an e-mail address", owner)
            elif owner in owners:
                self.problem(at, "each owner once", owner)
            else:
                owners.append(owner)
        return tuple(owners)

    def checks(self, value: Any, position: str) -> CheckLimits:
        defaults = CheckLimits()
        if value is _MISSING:
            return defaults
        keys = {
            *("held_warn_seconds", "held_error_seconds"),
            *("stuck_warn_seconds", "stuck_error_seconds", "quiet_warn_seconds"),
        }
        fields = self.mapping(value, position, keys, what="a mapping of limits to seconds")
        held_warn, held_error = self.warn_and_error(
            fields, "held", position, (defaults.held_warn_seconds, defaults.held_error_seconds)
        )
        stuck_warn, stuck_error = self.warn_and_error(
            fields, "stuck", position, (defaults.stuck_warn_seconds, defaults.stuck_error_seconds)
        )
        quiet = defaults.quiet_warn_seconds
        if fields.get("quiet_warn_seconds") == "never":
            quiet = None
        elif "quiet_warn_seconds" in fields:
            quiet = self.seconds(fields, "quiet_warn_seconds", position, 0, otherwise="never")
        return CheckLimits(
            held_warn_seconds=held_warn,
            held_error_seconds=held_error,
            stuck_warn_seconds=stuck_warn,
            stuck_error_seconds=stuck_error,
            quiet_warn_seconds=quiet,
        )

    def warn_and_error(
        self, fields: Mapping[str, Any], what: str, position: str, defaults: tuple[float, float]
    ) -> tuple[float, float]:
        """Return from when a check warns and from when it fails, in this order."""
        warn_key, error_key = f"{what}_warn_seconds", f"{what}_error_seconds"
        warn = self.seconds(fields, warn_key, position, defaults[0])
        error = self.seconds(fields, error_key, position, defaults[1])
        if warn > error:
            self.problem(
                f"{position}.{warn_key}", f"at most {error_key}, which is {error:g}", f"{warn:g}"
            )
        return warn, error

    def schedules(self, value: Any, position: str) -> Schedules:
        if value is _MISSING:
            return Schedules()
        keys = {"maintenance", "verify", "redecode", "report"}
        what = f"a mapping with any of {', '.join(sorted(keys))}"
        fields = self.mapping(value, position, keys, what=what)
        return Schedules(
            **{key: self.cron(item, f"{position}.{key}") for key, item in fields.items()}
        )

    def cron(self, value: Any, position: str) -> str | None:
        if value == OFF:
            return OFF
        text = " ".join(value.split()) if isinstance(value, str) else ""
        mistake = cron_mistake(text)
        if mistake is None:
            return text
        expected = "a cron text (minute hour day month weekday, in UTC) or off"
        reason = f" ({mistake})" if text else ""
        self.problem(position, f"{expected}{reason}", value)
        return None

    def retention(self, value: Any, position: str) -> Retention:
        if value is _MISSING:
            return Retention()
        keys = {"raw_messages", "change_log", "cuts"}
        what = "a mapping with any of `raw_messages`, `change_log` and `cuts`"
        fields = self.mapping(value, position, keys, what=what)
        return Retention(
            raw_messages=self.age(fields, "raw_messages", position, None),
            change_log=self.age(fields, "change_log", position, None),
            cuts=self.age(fields, "cuts", position, DEFAULT_CUTS_KEPT),
        )

    def age(
        self, fields: Mapping[str, Any], key: str, position: str, default: timedelta | None
    ) -> timedelta | None:
        """Return how long something is kept; None is for ever."""
        value = fields.get(key, _MISSING)
        if value is _MISSING:
            return default
        if value == "forever":
            return None
        match = _AGE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self.problem(f"{position}.{key}", "a time like `90 days`, `36 hours` or forever", value)
            return default
        number = int(match["number"])
        return timedelta(days=number) if match["unit"] == "day" else timedelta(hours=number)

    def timezone(self, value: Any, position: str) -> str:
        if isinstance(value, str) and value:
            try:
                ZoneInfo(value)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                pass
            else:
                return value
        self.problem(
            position,
            "the IANA name of the time zone the changefeed runs with, like UTC or Asia/Shanghai "
            "(it is never guessed)",
            value,
        )
        return ""

    def seconds(
        self,
        fields: Mapping[str, Any],
        key: str,
        position: str,
        default: float,
        *,
        zero: bool = False,
        most: float = 1e9,
        otherwise: str = "",
    ) -> float:
        """Return a number of seconds.

        Args:
            fields: the mapping it stands in.
            key: its key there.
            position: where that mapping stands.
            default: what holds where nothing is said.
            zero: whether it may be 0.
            most: what it is below.
            otherwise: a word that may stand for it, for the error; the caller has looked for it.
        """
        value = fields.get(key, _MISSING)
        if value is _MISSING:
            return default
        if isinstance(value, str) and _NUMBER.fullmatch(value) and float(value) < most:
            seconds = float(value)
            if seconds > 0 or zero:
                return seconds
        expected = "a number of seconds, 0 or more" if zero else "a number of seconds above 0"
        self.problem(f"{position}.{key}", f"{expected}{otherwise and f' or {otherwise}'}", value)
        return default

    # --- sources ---

    def no_source(self) -> Source:
        return CaptureSource(path=self.folder)

    def source(self, value: Any, position: str) -> Source:
        what = "a mapping with either `kafka` or `capture`"
        fields = self.mapping(value, position, {"kafka", "capture", "partitions"}, what=what)
        if not isinstance(value, dict):
            return self.no_source()
        if ("kafka" in fields) == ("capture" in fields):
            self.problem(position, what, sorted(fields))
            return self.no_source()
        if "kafka" in fields:
            if "partitions" in fields:
                self.problem(
                    f"{position}.partitions", "nothing: a broker tells its partitions", value
                )
            return self.kafka(fields["kafka"], f"{position}.kafka")
        return self.capture(fields, position)

    def capture(self, fields: Mapping[str, Any], position: str) -> CaptureSource:
        value = fields["capture"]
        partitions = fields.get("partitions", _MISSING)
        partitions_at = f"{position}.partitions"
        if isinstance(value, dict):
            inner = self.mapping(value, f"{position}.capture", {"path", "partitions"}, what="")
            value = inner.get("path", _MISSING)
            if "partitions" in inner:
                if partitions is not _MISSING:
                    self.problem(partitions_at, "partitions in one place only", partitions)
                partitions = inner["partitions"]
                partitions_at = f"{position}.capture.partitions"
            position = f"{position}.capture"
            key = "path"
        else:
            key = "capture"
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            self.problem(f"{position}.{key}", "the path of a capture file", value)
            value = "."
        path = self.folder / Path(value).expanduser()
        return CaptureSource(path=path, partitions=self.partitions(partitions, partitions_at))

    def partitions(self, value: Any, position: str) -> dict[str, int]:
        if value is _MISSING:
            return {}
        given = _as_mapping(value)
        if given is None:
            self.problem(position, "a mapping of topic to number of partitions", value)
            return {}
        counts: dict[str, int] = {}
        for topic, count in given.items():
            if isinstance(count, str) and _COUNT.fullmatch(count):
                counts[topic] = int(count)
            else:
                self.problem(f"{position}.{topic}", "a number of partitions above 0", count)
        return counts

    def kafka(self, value: Any, position: str) -> KafkaSource:
        keys = {"bootstrap_servers", "topics", "start", "options"}
        fields = self.mapping(value, position, keys, what="a mapping with `bootstrap_servers`")
        if not isinstance(value, dict):
            return KafkaSource(bootstrap_servers="", topics=())
        servers = self.servers(
            fields.get("bootstrap_servers", _MISSING), f"{position}.bootstrap_servers"
        )
        options = self.options(fields.get("options", _MISSING), f"{position}.options")
        self.security(options, f"{position}.options", local=not servers or is_loopback(servers))
        topics, patterns = self.topics(fields.get("topics", _MISSING), f"{position}.topics")
        return KafkaSource(
            bootstrap_servers=servers,
            topics=topics,
            patterns=patterns,
            start=self.start(fields.get("start", _MISSING), f"{position}.start"),
            options=options,
        )

    def servers(self, value: Any, position: str) -> str:
        expected = "host:port, several separated by commas"
        resolved = self.scalar(value, position, expected)
        if resolved is None:
            return ""
        servers = _servers(resolved.value)
        for server in servers or [""]:
            host, port = _split_server(server)
            if not host or not _PORT.fullmatch(port) or int(port) > 65535:
                self.problem(position, expected, resolved)
                return ""
        return ",".join(servers)

    def topics(self, value: Any, position: str) -> tuple[tuple[str, ...], tuple[TopicPattern, ...]]:
        """Return the names and the patterns of a list that has both."""
        given = _as_list(value)
        if not given:
            self.problem(position, "a non-empty list of names", value)
            return (), ()
        topics: list[str] = []
        patterns: list[TopicPattern] = []
        for number, topic in enumerate(given):
            at = f"{position}[{number}]"
            if topic in given[:number]:
                self.problem(at, "each topic once", topic)
            elif isinstance(topic, str) and is_topic_pattern(topic):
                try:
                    patterns.append(TopicPattern(topic))
                except ConfigError as error:
                    self.problems.append(f"{at}: {error}")
            elif isinstance(topic, str) and is_topic_name(topic):
                topics.append(topic)
            else:
                expected = "a topic name (1 to 249 of A-Z a-z 0-9 . _ -)"
                # `[cdc_{schema}]` is a text, but `[{schema}_a]` is a mapping and then an error.
                hint = (
                    "" if isinstance(topic, str) else ' (a pattern is quoted: "{schema}_{table}")'
                )
                self.problem(at, f"{expected}{hint}", topic)
        return tuple(topics), tuple(patterns)

    def start(self, value: Any, position: str) -> StartPosition:
        if value is _MISSING:
            return StartPosition()
        if value in (StartKind.EARLIEST, StartKind.LATEST):
            return StartPosition(StartKind(value))
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
            if milliseconds >= 0:
                return StartPosition(StartKind.TIMESTAMP, milliseconds)
        expected = "earliest, latest, or a time with its zone like 2026-11-20T00:00:00Z"
        self.problem(position, expected, value)
        return StartPosition()

    def options(self, value: Any, position: str) -> dict[str, OptionValue]:
        if value is _MISSING:
            return {}
        given = _as_mapping(value)
        if given is None:
            # Not shown: it may hold a secret in the wrong place.
            self.problems.append(f"{position}: expected a mapping of client options")
            return {}
        options: dict[str, OptionValue] = {}
        for key, item in given.items():
            at = f"{position}.{key}"
            if key in _OWN_OPTIONS:
                self.problems.append(f"{at}: not to be set here: {_OWN_OPTIONS[key]}")
                continue
            resolved = self.scalar(item, at, "a value or {env: NAME}", secret=True)
            if resolved is None:
                # Still stands in the result, so that no second problem calls it missing.
                options[key] = OptionValue("", "")
            elif _as_mapping(item) is None and _SECRET_KEY.search(key):
                options[key] = OptionValue(resolved.value, "***")
                if not _NO_SECRET_KEY.search(key):
                    self.problems.append(f"{at}: expected {_FROM_ENV}, got a value")
            else:
                options[key] = resolved
        return options

    def security(self, options: Mapping[str, OptionValue], position: str, *, local: bool) -> None:
        """Check that how to talk to the broker is said, and said without contradiction."""
        at = f"{position}.security.protocol"
        names = ", ".join(SecurityProtocol)
        stated = options.get("security.protocol")
        credentials = sorted(key for key in options if key.startswith(("sasl.", "ssl.")))
        if stated is None:
            if credentials:
                self.problems.append(
                    f"{at}: missing, while {credentials[0]} is set; expected one of {names}"
                )
            elif not local:
                self.problems.append(
                    f"{at}: missing; expected one of {names} "
                    "(to be stated for servers that are not on this machine)"
                )
            return
        protocol = stated.value.upper()
        if not protocol:
            return
        if protocol not in SecurityProtocol.__members__:
            self.problem(at, f"one of {names}", stated)
            return
        if protocol == SecurityProtocol.PLAINTEXT and credentials:
            self.problem(at, f"another protocol, as {credentials[0]} is set", stated)
        if protocol.startswith("SASL_"):
            self.sasl(options, position)

    def sasl(self, options: Mapping[str, OptionValue], position: str) -> None:
        mechanism = options.get("sasl.mechanism")
        other = options.get("sasl.mechanisms")
        if mechanism is not None and other is not None:
            self.problems.append(
                f"{position}.sasl.mechanisms: the same as sasl.mechanism; set one of them"
            )
        stated = mechanism or other
        if stated is None:
            self.problems.append(
                f"{position}.sasl.mechanism: missing; expected one like SCRAM-SHA-512 or PLAIN"
            )
        elif stated.value in _CREDENTIAL_MECHANISMS:
            for key in ("sasl.username", "sasl.password"):
                if key not in options:
                    self.problems.append(f"{position}.{key}: missing; {stated.value} needs it")

    # --- pieces ---

    def scalar(
        self, value: Any, position: str, expected: str, *, secret: bool = False
    ) -> OptionValue | None:
        """Return the text at `position`, resolved if it is `{env: NAME}`; None after a problem."""
        reference = _as_mapping(value)
        if reference is not None and set(reference) == {"env"}:
            name = reference["env"]
            resolved = self.env.get(name) if isinstance(name, str) else None
            if resolved:
                return OptionValue(resolved, f"{{env: {name}}}")
            self.problems.append(
                f"{position}: the environment variable {shorten(name)} is not set or is empty"
            )
        elif isinstance(value, str) and value:
            return OptionValue(value, value)
        elif secret and value is not _MISSING:
            kind = "empty text" if value == "" else f"a {'mapping' if reference else 'list'}"
            self.problems.append(f"{position}: expected {expected}, got {kind}")
        else:
            self.problem(position, expected, value)
        return None

    def mapping(self, value: Any, position: str, keys: set[str], *, what: str) -> Mapping[str, Any]:
        """Return `value` if it is a mapping, its unknown keys left out; {} after a problem."""
        given = _as_mapping(value)
        if given is None:
            self.problem(position or "the file", what, value)
            return {}
        prefix = f"{position}." if position else ""
        for key in sorted(given.keys() - keys):
            self.problems.append(
                f"{prefix}{key}: unknown key{_did_you_mean(key, keys)}; "
                f"known here: {', '.join(sorted(keys))}"
            )
        return {key: item for key, item in given.items() if key in keys}


def _position(number: int) -> str:
    """Return where an entry of the list stands."""
    return f"changefeeds[{number}]"


def _as_mapping(value: Any) -> dict[str, Any] | None:
    """Return `value` if it is a mapping; `_TextLoader` makes all keys text."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _as_list(value: Any) -> list[Any] | None:
    return cast(list[Any], value) if isinstance(value, list) else None


def _path_of(env: Mapping[str, str] | None, variable: str, default: str) -> Path:
    env = os.environ if env is None else env
    value = env.get(variable) or default
    if "://" in value:
        raise ConfigError(f"{variable}: expected a path on this machine, got {shorten(value)}")
    # Absolute but with links kept, so that messages show the path the user wrote.
    return Path(value).expanduser().absolute()


def _shown_location(location: str) -> str:
    """Return a path as it is, and a URI without what may hold credentials."""
    if "://" not in location:
        return location
    try:
        parts = urlsplit(location)
    except ValueError:
        return f"{location.partition('://')[0]}://…"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _has_credentials(location: str) -> bool:
    """Return whether a URI has a password, or a parameter that looks like a secret."""
    try:
        parts = urlsplit(location)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return True
    return ":" in parts.netloc.rpartition("@")[0] or any(
        _SECRET_PARAMETER.search(name) for name, _ in parameters
    )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _servers(bootstrap_servers: str) -> list[str]:
    return [server.strip() for server in bootstrap_servers.split(",") if server.strip()]


def _split_server(server: str) -> tuple[str, str]:
    host, _, port = server.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def _is_loopback_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
