"""The files of an export: its TSO, its tables, and which files have the rows of each.

In: a folder that Dumpling wrote, local or at a URI of Arrow's file systems; or a folder with
Parquet files, and a TSO. Out: an `Export`. Only `metadata` and the files of schemas are read here.
File names are parsed as Dumpling makes them (`{database}.{table}.{number}.sql`, unusual characters
percent-encoded). Identifiers are data: no path is built from them.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as fs

from ticdc_assets.base.errors import ConfigError, NotFoundError, SourceUnavailableError, shorten
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.model.tso import MAX_TSO, OLDEST_TSO
from ticdc_assets.source.exports.compression import chunks_of
from ticdc_assets.storage.stores import files_at

COMPRESSIONS: Final[Mapping[str, str]] = {
    ".gz": "gzip",
    ".snappy": "snappy",
    ".zst": "zstd",
    ".zstd": "zstd",
}
"""The suffixes of compressed files, and their codecs."""

FORMATS: Final = ("sql", "csv", "parquet")

UNREADABLE_FILE: Final = "unreadable_file"
"""The reason in quarantine of a file that cannot be read further."""

_MOST_SCHEMA_BYTES = 16 << 20
_OF_SPARK: Final = frozenset({"_delta_log", "_spark_metadata", "_temporary"})
_SKIPPED: Final = {
    "-schema-sequence": "sequences",
    "-schema-trigger": "triggers",
    "-schema-post": "routines and events",
    "-schema-placement-policy": "placement policies",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFile:
    """A file with rows.

    Attributes:
        path: its path in the folder.
        size: its bytes.
        stamp: when it was written, in nanoseconds since 1970; 0 if unknown.
        format: `sql`, `csv` or `parquet`.
        compression: its codec; None for none.
    """

    path: str
    size: int
    stamp: int
    format: str
    compression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTable:
    """A table of an export.

    Attributes:
        database: its database, from the names of its files.
        table: its name.
        create_sql: its CREATE TABLE; None if the export has none.
        database_sql: the CREATE DATABASE; None if the export has none.
        files: the files with its rows, in the order of their names.
    """

    database: str
    table: str
    create_sql: str | None
    database_sql: str | None
    files: tuple[ExportFile, ...]

    @property
    def name(self) -> tuple[str, str]:
        """(database, table)."""
        return (self.database, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An export.

    Attributes:
        folder: where it is.
        tso: the TSO of its rows.
        tables: its tables, by database and table.
        skipped: other files in it, by kind: views, sequences, other names; without files of tools,
            whose names begin with a dot or an underscore.
    """

    folder: str
    tso: int
    tables: tuple[ExportedTable, ...]
    skipped: Mapping[str, int]


def opened_folder(folder: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a folder, and the folder's path in it.

    Raises:
        ConfigError: Arrow has no file system for such a folder.
    """
    try:
        if "://" in folder:
            filesystem, path = files_at(folder)
        else:
            filesystem, path = fs.LocalFileSystem(), folder
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigError(f"the folder {shorten(folder)} cannot be opened: {error}") from error
    return filesystem, path.rstrip("/") or "/"


def read_export(folder: str, *, tso: int | None = None) -> Export:
    """Return the contents of an export's folder.

    Args:
        folder: the folder, or a URI.
        tso: the TSO of the rows, if the folder does not have it.

    Raises:
        NotFoundError: there is no such folder, or no table in it.
        ConfigError: the TSO is missing, or the export is not finished.
        SourceUnavailableError: the folder or a file of it cannot be read.
    """
    try:
        return _export_of(folder, tso)
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailableError(
            f"the export in {shorten(folder)} cannot be read: {first_sentence(error)}"
        ) from error


def _export_of(folder: str, tso: int | None) -> Export:
    filesystem, root = opened_folder(folder)
    try:
        listing = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"there is no folder {shorten(folder)}") from error
    infos = {
        info.path[len(root) :].lstrip("/"): info
        for info in listing
        if info.type is fs.FileType.File
    }
    tso = _tso_of(filesystem, root, infos, tso)
    if not 0 < tso <= MAX_TSO:
        raise ConfigError(f"{tso} is not a TSO")
    schemas: dict[tuple[str, str], str] = {}
    databases: dict[str, str] = {}
    files: dict[tuple[str, str], list[ExportFile]] = {}
    views: set[tuple[str, str]] = set()
    skipped: Counter[str] = Counter()
    for path in sorted(infos):
        # Dumpling percent-encodes a dot in a name, but not an underscore.
        if path == "metadata" or path.startswith(".") or not _OF_SPARK.isdisjoint(path.split("/")):
            continue
        what = _what_of(path)
        if isinstance(what, str):
            if not path.startswith("_"):
                skipped[what] += 1
        elif what.kind == "view":
            views.add((what.database, what.table))
        elif what.kind == "database":
            databases[what.database] = _text_of(filesystem, root, path, what)
        elif what.kind == "schema":
            schemas[what.database, what.table] = _text_of(filesystem, root, path, what)
        else:
            file = ExportFile(
                path=path,
                size=infos[path].size or 0,
                stamp=infos[path].mtime_ns or 0,
                format=what.kind,
                compression=what.compression,
            )
            files.setdefault((what.database, what.table), []).append(file)
    if views:
        skipped["views"] = len(views)
    # Dumpling writes a CREATE TABLE for a view, too.
    tables = tuple(
        ExportedTable(
            database=database,
            table=table,
            create_sql=schemas.get((database, table)),
            database_sql=databases.get(database),
            files=tuple(files.get((database, table), ())),
        )
        for database, table in sorted({*schemas, *files} - (views - files.keys()))
    )
    if not tables:
        raise NotFoundError(f"the folder {shorten(folder)} has no table of an export")
    return Export(folder=folder, tso=tso, tables=tables, skipped=dict(skipped))


def export_tso(filesystem: fs.FileSystem, root: str) -> int | None:
    """Return the TSO of the export in a folder; None if there is no finished one.

    Args:
        filesystem: where the folder is.
        root: its path there.

    Raises:
        OSError: the folder cannot be read.
    """
    infos = {
        PurePosixPath(info.path).name: info
        for info in filesystem.get_file_info(fs.FileSelector(root))
    }
    try:
        return _tso_of(filesystem, root, infos, None)
    except ConfigError:
        return None


def finished_exports(folder: str) -> tuple[list[tuple[int, str]], dict[str, str]]:
    """Return the finished exports in the folders of a folder: the TSO and the folder of each.

    Also return which of the folders cannot be read, and why: those of other users, for example.

    Raises:
        ConfigError: Arrow has no file system for such a folder.
        SourceUnavailableError: the folder itself cannot be read.
    """
    filesystem, root = opened_folder(folder)
    try:
        infos = filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailableError(
            f"the folder {shorten(folder)} cannot be read: {first_sentence(error)}"
        ) from error
    places = [item.path for item in infos if item.type is fs.FileType.Directory]
    exports: list[tuple[int, str]] = []
    unread: dict[str, str] = {}
    for place in places:
        inner = _inner(folder, PurePosixPath(place).name)
        try:
            tso = export_tso(filesystem, place)
        except OSError as error:
            unread[inner] = first_sentence(error)
            continue
        if tso is not None:
            exports.append((tso, inner))
    return exports, unread


def _inner(folder: str, name: str) -> str:
    """Return the folder of this name in a folder, or in a URI, which may have a query."""
    if "://" not in folder:
        return f"{folder.rstrip('/')}/{name}"
    parts = urlsplit(folder)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{quote(name)}").geturl()


class _Named(NamedTuple):
    kind: str
    database: str
    table: str
    compression: str | None


_NUMBER = re.compile(r"[0-9]{3,}")


def _what_of(path: str) -> _Named | str:
    """Return what a file is; for a file that is not read, its kind in the plural."""
    name = PurePosixPath(path).name
    suffix = next(filter(name.endswith, COMPRESSIONS), "")
    stem, _, form = name.removesuffix(suffix).rpartition(".")
    form = form.lower()
    if form not in FORMATS:
        return "other files"

    def named(kind: str, database: str, table: str) -> _Named:
        names = unquote(database), unquote(table)
        return _Named(kind, *names, compression=COMPRESSIONS.get(suffix))

    if form == "sql":
        if stem.endswith("-schema-create"):
            return named("database", stem.removesuffix("-schema-create"), "")
        for end, kind in _SKIPPED.items():
            if stem.endswith(end):
                return kind
        for end, kind in (("-schema", "schema"), ("-schema-view", "view")):
            if stem.endswith(end):
                database, _, table = stem.removesuffix(end).partition(".")
                return named(kind, database, table) if table else "other files"
    folders = PurePosixPath(path).parent.parts
    if form == "parquet" and len(folders) >= 2:
        return named(form, folders[-2], folders[-1])
    # A dot in a name is percent-encoded, so the file's number comes after the second dot.
    database, _, rest = stem.partition(".")
    table, _, number = rest.partition(".")
    if not table or (number and not all(map(_NUMBER.fullmatch, number.split(".")))):
        return "other files"
    return named(form, database, table)


def _text_of(filesystem: fs.FileSystem, root: str, path: str, what: _Named) -> str:
    """Return the text of a file with a schema; invalid bytes become marks."""
    full = f"{root}/{path}"
    if what.compression is not None:
        content = b"".join(chunk for chunk, _ in chunks_of(filesystem, full, what.compression))
    else:
        with filesystem.open_input_stream(full, compression=None) as stream:
            content = bytes(stream.read(_MOST_SCHEMA_BYTES))
    return content.decode("utf-8", "replace")


_POS = re.compile(r"^\s*Pos:\s*([0-9]+)\s*$", re.MULTILINE)


def _tso_of(
    filesystem: fs.FileSystem, root: str, infos: Mapping[str, fs.FileInfo], given: int | None
) -> int:
    """Return the TSO in the metadata of an export, or the one that a person gives instead.

    Raises:
        ConfigError: the metadata or its TSO is missing and none is given, or the two differ.
    """
    text = ""
    if "metadata" in infos:
        with filesystem.open_input_stream(f"{root}/metadata", compression=None) as stream:
            text = bytes(stream.read(1 << 20)).decode("utf-8", "replace")
    match = _POS.search(text)
    tso = 0 if match is None else int(match[1])
    if given is not None:
        if OLDEST_TSO <= tso <= MAX_TSO and tso != given:
            raise ConfigError(
                f"the file `metadata` says that the export is at TSO {tso}, and --tso is {given}: "
                "leave out --tso"
            )
        return given
    if "metadata" not in infos:
        raise ConfigError(
            "the folder has no file `metadata`, which has the TSO of a finished export; "
            "give the TSO with --tso if you know it"
        )
    if "Finished dump at" not in text:
        raise ConfigError("the file `metadata` does not say `Finished dump at`: export again")
    if match is None:
        # Dumpling writes the time there if its `--snapshot` was a time.
        raise ConfigError(
            "the file `metadata` has no `Pos` with the TSO of the export: give the TSO with --tso"
        )
    if not OLDEST_TSO <= tso <= MAX_TSO:
        raise ConfigError(
            f"`Pos: {tso}` in the file `metadata` is not a TSO: the export is not from TiDB"
        )
    return tso
