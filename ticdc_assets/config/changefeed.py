"""The models of a changefeed: every key that an entry of the file may have, and what it means.

In: an entry of the file, as `reading` reads it. Out: a frozen `Changefeed`. The descriptions of the
fields are the reference of the settings: the table of keys in docs/reference.md has the same
sentences, and a test compares them.

Pure, except that it reads this machine's time zones.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic.dataclasses import dataclass
from pydantic_core import InitErrorDetails

from ticdc_assets.base.cron import cron_mistake
from ticdc_assets.base.names import split_name
from ticdc_assets.config.reading import (
    File,
    Keys,
    OptionValue,
    Reads,
    at,
    did_you_mean,
    flag,
    items_of,
    matched,
    mistake,
    reads,
    scalar,
    unexpected,
)
from ticdc_assets.config.sources import FROM_ENV, MODEL, CaptureSource, Source, read_source
from ticdc_assets.model.tso import MAX_TSO, OLDEST_TSO
from ticdc_assets.wire.compression import Compression, supports
from ticdc_assets.wire.formats import WireFormat


@dataclass(frozen=True, slots=True, config=MODEL)
class TableChoice:
    """Some tables of a changefeed, by patterns `database.table`, in which `*` is any characters.

    A part with a dot in it is in backquotes.
    """

    patterns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def includes(self, database: str, table: str) -> bool:
        """Return whether a table is one of them; case does not matter, as it does not upstream."""
        return any(
            _like(database, own_database) and _like(table, own_table)
            for own_database, own_table in map(parts_of, self.patterns)
        )


ALL_TABLES: Final = TableChoice(("*.*",))
"""Every table."""


@lru_cache(maxsize=1024)
def parts_of(pattern: str) -> tuple[str, str]:
    """Return the patterns of the database and of the table, empty where there is none."""
    parts = split_name(pattern)
    if parts is None:
        database, _, table = pattern.partition(".")
        parts = (database, table)
    return parts


def _like(name: str, pattern: str) -> bool:
    return _expression(pattern).fullmatch(name.lower()) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    text = ".*".join(re.escape(part) for part in pattern.lower().split("*"))
    return re.compile(text, re.DOTALL)


OFF: Final = "off"
"""The time of a schedule that does not run."""

WIRE_FORMATS = tuple(member.value for member in WireFormat)
"""The names a changefeed's `format` may have."""

STORAGE_SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""The schemes of URIs that a claim check's `location` may have: those of Arrow's filesystems."""

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9_]{0,62}[a-z0-9])?")
_ZONE = re.compile(".+")
_AGE = re.compile(r"(?P<number>[1-9][0-9]{0,4}) (?P<unit>day|hour)s?")
_SPAN = re.compile(r"(?P<number>[1-9][0-9]{0,3}) (?P<unit>second|minute)s?")
_ANY = re.compile(r"\S.*")
_WHOLE = re.compile(r"[0-9]{1,19}")
_COUNT = re.compile(r"[0-9]{1,6}")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_SECRET_PARAMETER = re.compile(r"password|secret|token|key|sas|sig|credential", re.IGNORECASE)

# Dagster's rule for owners, except that the name of a team may have blanks.
_OWNER = re.compile(r"team:\S+|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")


# --- how they are read ---


_name = Reads(
    "1 to 64 of a-z, 0-9 and _, not starting or ending with _ (it becomes a folder and a part of "
    "names in Dagster)",
    lambda value, _: matched(NAME, value)[0],
)
_level = Reads("warn or fail", lambda value, _: ("warn", "fail")[("warn", "fail").index(value)])
_count = Reads(
    "a whole number of tables, 0 or more", lambda value, _: int(matched(_COUNT, value)[0])
)


@reads(f"one of {', '.join(WIRE_FORMATS)}", key="format")
def _format(value: Any, _: ValidationInfo) -> WireFormat:
    if value not in WIRE_FORMATS:
        hint = did_you_mean(value, WIRE_FORMATS) if isinstance(value, str) else ""
        raise unexpected(f"{_format.expected}{hint}", value)
    return WireFormat(value)


@reads(
    "the IANA name of the time zone the changefeed runs with, like UTC or Asia/Shanghai "
    "(it is never guessed)"
)
def _timezone(value: Any, _: ValidationInfo) -> str:
    try:
        return ZoneInfo(matched(_ZONE, value)[0]).key
    except ZoneInfoNotFoundError as error:
        raise ValueError(value) from error


@reads(f"one of {', '.join(Compression)}")
def _compression(value: Any, info: ValidationInfo) -> Compression:
    compression, wire_format = Compression(value), info.data.get("wire_format")
    if wire_format is not None and not supports(wire_format, compression):
        raise unexpected(f"none, as {wire_format} has no compression", value)
    return compression


@reads(f"the path of a folder, or a URI of {', '.join(STORAGE_SCHEMES)}")
def _location(value: Any, info: ValidationInfo) -> str:
    given = scalar(value, info, _location.expected)
    location = given.value
    shown = given if given.shown != location else _shown_location(location)
    if "\0" in location or not location.strip():
        raise unexpected(_location.expected, shown)
    scheme, separator, _ = location.partition("://")
    if not separator:
        return str(cast(File, info.context).folder / Path(location).expanduser())
    if scheme not in STORAGE_SCHEMES:
        raise unexpected(_location.expected, shown)
    if given.shown == location and _has_credentials(location):
        raise unexpected(FROM_ENV, shown)
    return location


@reads("all, or a non-empty list of database.table")
def _tables(value: Any, _: ValidationInfo) -> TableChoice:
    def pattern(item: Any) -> str:
        if not isinstance(item, str) or not all(parts_of(item)):
            raise unexpected("database.table, in which * means any characters", item)
        return item

    return ALL_TABLES if value == "all" else TableChoice(items_of(value, pattern, "table"))


@reads("a non-empty list of owners")
def _owners(value: Any, _: ValidationInfo) -> tuple[str, ...]:
    def owner(item: Any) -> str:
        if not isinstance(item, str) or not _OWNER.fullmatch(item):
            raise unexpected("team:name or an e-mail address", item)
        return item

    return items_of(value, owner, "owner")


@reads("a non-empty list of {env: NAME}")
def _targets(value: Any, info: ValidationInfo) -> tuple[OptionValue, ...]:
    def target(item: Any) -> OptionValue:
        if not isinstance(item, dict):
            raise mistake(f"expected {FROM_ENV}, got a text")
        return scalar(item, info, FROM_ENV)

    return items_of(value, target, "target")


@reads("a cron text (minute hour day month weekday, in UTC) or off")
def _cron(value: Any, _: ValidationInfo) -> str:
    if value == "false":
        return OFF  # what YAML makes of `off` in the file of a component
    text = " ".join(value.split()) if isinstance(value, str) else ""
    wrong = None if value == OFF else cron_mistake(text)
    if wrong is not None:
        reason = f" ({wrong})" if text else ""
        raise unexpected(f"{_cron.expected}{reason}", value)
    return text


@reads("a time like `90 days`, `36 hours` or forever")
def _age(value: Any, _: ValidationInfo) -> timedelta | None:
    return None if value == "forever" else _timedelta(_AGE, value)


def _timedelta(pattern: re.Pattern[str], value: Any) -> timedelta:
    match = matched(pattern, value)
    return timedelta(**{f"{match['unit']}s": int(match["number"])})


@reads("a time from 5 seconds to 1 hour like `60 seconds` or `2 minutes`")
def _span(value: Any, _: ValidationInfo) -> timedelta:
    span = _timedelta(_SPAN, value)
    if not timedelta(seconds=5) <= span <= timedelta(hours=1):
        raise ValueError(value)
    return span


@reads("a folder, or its URI without credentials")
def _folder(value: Any, info: ValidationInfo) -> str:
    folder = matched(_ANY, value)[0]
    if "://" not in folder:
        return str(cast(File, info.context).folder / Path(folder).expanduser())
    if _has_credentials(folder):
        raise ValueError("a URI")
    return folder


@reads("a TSO, of the year 2000 or later")
def _tso(value: Any, _: ValidationInfo) -> int:
    tso = int(matched(_WHOLE, value)[0])
    if not OLDEST_TSO <= tso <= MAX_TSO:
        raise ValueError(value)
    return tso


def _seconds(least: str = " above 0", most: float = 1e9) -> Reads:
    """Return the reader of a number of seconds below `most`; `least` says what else it accepts."""

    @reads(f"a number of seconds{least}")
    def read(value: Any, _: ValidationInfo) -> float | None:
        if value == "never" and least.endswith(value):
            return None
        seconds = float(matched(_NUMBER, value)[0])
        if seconds >= most or (seconds == 0 and least != ", 0 or more"):
            raise ValueError(value)
        return seconds

    return read


def _at_most(other: str) -> AfterValidator:
    """Return the rule that a number is not above that of another key, which is read first."""

    def check(value: float, info: ValidationInfo) -> float:
        limit = info.data.get(other)
        if info.context is not None and limit is not None and value > limit:
            raise unexpected(f"at most {other}, which is {limit:g}", f"{value:g}")
        return value

    return AfterValidator(check)


def _fits_format(value: Mapping[str, Any], info: ValidationInfo) -> Iterable[InitErrorDetails]:
    """Return the keys of a claim check that the format does not support."""
    wire_format = info.data.get("wire_format")
    if wire_format == WireFormat.CRAFT:
        text = f"not to be set: {wire_format} has no claim checks"
        yield InitErrorDetails(type=mistake(text), loc=(), input=None)
    elif wire_format == WireFormat.OPEN_PROTOCOL and value.get("raw_value") == "true":
        expected = f"false, as {wire_format} has no raw values"
        yield at("raw_value", unexpected(expected, value["raw_value"]))


Seconds: TypeAlias = Annotated[float, _seconds()]
Kept: TypeAlias = Annotated[timedelta | None, _age]
Tables: TypeAlias = Annotated[TableChoice, _tables]
Cron: TypeAlias = Annotated[str | None, _cron]


# --- the models ---


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, config=MODEL)
class ClaimCheck:
    """Where TiCDC stores messages that are too large for Kafka (`claim-check-storage-uri`)."""

    location: Annotated[str, _location] = Field(
        description="where TiCDC puts large messages: a folder, or a URI of Arrow's filesystems "
        "(may be `{env: NAME}`)"
    )
    raw_value: Annotated[bool, flag] = Field(
        default=False, description="`true` if the files are bare values (`claim-check-raw-value`)"
    )

    @property
    def shown(self) -> str:
        """The location without credentials."""
        return _shown_location(self.location)

    def __repr__(self) -> str:
        return f"ClaimCheck(location={self.shown!r}, raw_value={self.raw_value})"


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class Retention:
    """How long a changefeed's records, changes and cuts are kept; None keeps them forever.

    Age counts from the landing of a record and the publishing of a cut, not from the upstream
    commit: records of an old capture count as new.
    """

    raw_messages: Kept = Field(
        default=None,
        description="how long records are kept once a cut has all of their changes, like "
        "`90 days`, `36 hours` or `forever`; `forever`",
    )
    change_log: Kept = Field(
        default=None, description="how long changes are kept once a cut has them; `forever`"
    )
    cuts: Kept = Field(
        default=timedelta(days=30),
        description="how long cuts, and with them versions of mirrors, are kept; `30 days`. Of "
        "cuts older than a day the newest of each hour is kept",
    )

    @property
    def longest(self) -> timedelta | None:
        """The longest limited age: about as far back as a mirror can be read."""
        ages = (self.raw_messages, self.change_log, self.cuts)
        return None if self.cuts is None else max(age for age in ages if age is not None)


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class Alerts:
    """Who gets alerts about checks that do not pass and runs that fail."""

    to: Annotated[tuple[OptionValue, ...], _targets] = Field(
        default=(),
        description="where alerts go: a list of `{env: NAME}`, each the URL of a Slack channel, of "
        "e-mail or of another service that [Apprise](https://appriseit.com) knows; none",
    )
    level: Annotated[str, _level] = Field(
        default="fail", description="`fail`, or `warn` for warnings too; `fail`"
    )


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class TableFilter:
    """The tables of a changefeed that have mirrors.

    Landing and the change log have every table, so a table that is included later has all changes
    since its first.
    """

    include: Tables = Field(
        default=ALL_TABLES,
        description="the tables to mirror: `all`, or a list of `database.table` with `*` for any "
        "characters; `all`. Landing and the change log have every table",
    )
    exclude: Tables = Field(
        default=TableChoice(), description="tables of these not to mirror; none"
    )

    def includes(self, database: str, table: str) -> bool:
        """Return whether a table is mirrored; case does not matter, as it does not upstream."""
        return self.include.includes(database, table) and not self.exclude.includes(database, table)

    @property
    def takes_all(self) -> bool:
        """Whether no table is left out, whatever its name."""
        return "*.*" in self.include.patterns and not self.exclude


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class Readers:
    """Which Delta features mirrors and histories avoid for their readers."""

    portable: Tables = Field(
        default=TableChoice(),
        description="tables whose mirrors and histories get no deletion vectors, column mapping "
        "or type widening, so that every reader of Delta reads them: `all`, or a list of "
        "`database.table` with `*` for any characters; none. Syncs of large mirrors write more. A "
        "mirror that already has these features keeps them",
    )


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class Writer:
    """How two writers of a changefeed are kept apart."""

    lease: Annotated[timedelta | None, _span] = Field(
        default=None,
        description="how long a lease in the lake is good without being renewed, like `60 "
        "seconds`: for a folder that several hosts write to. A folder without it has a lock on a "
        "file; an object store has a lease of 60 seconds",
    )

    @property
    def lease_seconds(self) -> float:
        """How long a lease is good, where one is used."""
        return (self.lease or timedelta(seconds=60)).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class CheckLimits:
    """Seconds from which asset checks warn and fail; lag has limits of its own."""

    held_error_seconds: Seconds = Field(
        default=3600.0,
        description="age of the oldest row that waits for its schema, from which the check "
        "`held_rows` fails; 3600",
    )
    held_warn_seconds: Annotated[Seconds, _at_most("held_error_seconds")] = Field(
        default=600.0, description="the age from which it warns; 600", validate_default=True
    )
    stuck_error_seconds: Seconds = Field(
        default=900.0,
        description="how long a watermark may stay the same while rows arrive, or rows may be "
        "missing while it moves, before the check `watermark_progress` fails; 900",
    )
    stuck_warn_seconds: Annotated[Seconds, _at_most("stuck_error_seconds")] = Field(
        default=300.0, description="the time from which it warns; 300", validate_default=True
    )
    quiet_warn_seconds: Annotated[float | None, _seconds(" above 0 or never")] = Field(
        default=86400.0,
        description="how long nothing may arrive before the same check warns; 86400, or `never`",
    )


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class Schedules:
    """When the schedules of a changefeed are due, in UTC.

    Each is a cron text of five fields, `OFF` for no schedule, or None if the file
    has no such key and the schedule keeps its default time.
    """

    maintenance: Cron = Field(
        default=None,
        description="when old data is removed and files are compacted: a cron text in UTC "
        "(minute, hour, day, month, weekday), or `off` for no schedule",
    )
    verify: Cron = Field(default=None, description="when mirrors are compared with their rebuild")
    redecode: Cron = Field(default=None, description="when past days are decoded again")
    report: Cron = Field(default=None, description="when the report is written")


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class InDagster:
    """How many tables of a changefeed Dagster shows one by one: each costs it time."""

    table_assets: Annotated[int, _count] = Field(
        default=500,
        description="up to how many mirrors each is an asset of its own; 500. If there are more, "
        "one asset, `mirrors`, represents all",
    )
    sample_rows: Annotated[int, _count] = Field(
        default=10,
        description="how many rows of a changed mirror its page shows; 10. They are stored in "
        "Dagster's database: 0 keeps the values of private tables out of it",
    )


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class Changefeed:
    """One TiCDC replication task as this package reads it."""

    # Each is a `Field`: pydantic reads other attributes last, and would report their mistakes last.
    name: Annotated[str, _name] = Field(
        description="folder in the lake and first part of asset keys: a-z, 0-9 and `_`"
    )
    wire_format: Annotated[str, _format] = Field(description="see the table of formats")
    timezone: Annotated[str, _timezone] = Field(
        description="IANA name of TiCDC's time zone; never guessed"
    )
    source: Annotated[Source, read_source] = Field()
    compression: Annotated[Compression, _compression] = Field(
        default=Compression.NONE,
        description="`none`, `lz4` or `snappy`: TiCDC's `large-message-handle-compression`; "
        "messages do not show their compression",
    )
    claim_check: Annotated[ClaimCheck | None, Keys("a mapping with `location`", _fits_format)] = (
        Field(default=None)
    )
    lag_error_seconds: Seconds = Field(
        default=900.0, description="lag from which the check `replication_lag` fails; 900"
    )
    lag_warn_seconds: Annotated[Seconds, _at_most("lag_error_seconds")] = Field(
        default=300.0, description="lag from which it warns; 300", validate_default=True
    )
    retention: Annotated[
        Retention, Keys("a mapping with any of `raw_messages`, `change_log` and `cuts`")
    ] = Field(default=Retention())
    history: Tables = Field(
        default=TableChoice(),
        description="tables whose versions are kept: `all`, or a list of `database.table` with "
        "`*` for any characters; none",
    )
    soft_delete: Tables = Field(
        default=TableChoice(),
        description="tables whose deleted rows can be read, in the same form; none",
    )
    tables: Annotated[TableFilter, Keys("a mapping with any of `include` and `exclude`")] = Field(
        default=TableFilter()
    )
    readers: Annotated[Readers, Keys("a mapping with `portable`")] = Field(default=Readers())
    writer: Annotated[Writer, Keys("a mapping with `lease`")] = Field(default=Writer())
    owners: Annotated[tuple[str, ...], _owners] = Field(
        default=(),
        description="who is responsible, shown with the assets: `team:name` or e-mail addresses",
    )
    checks: Annotated[CheckLimits, Keys("a mapping of limits to seconds")] = Field(
        default=CheckLimits()
    )
    alerts: Annotated[Alerts, Keys("a mapping with `to`")] = Field(default=Alerts())
    dagster: Annotated[
        InDagster, Keys("a mapping with any of `sample_rows` and `table_assets`")
    ] = Field(default=InDagster())
    follow_seconds: Annotated[float, _seconds(", 0 or more")] = Field(
        default=600.0,
        description="how long a run keeps syncing new records; 600, 0 for a single sync",
    )
    schedules: Annotated[
        Schedules, Keys("a mapping with any of maintenance, redecode, report, verify")
    ] = Field(default=Schedules())
    max_ahead_seconds: Annotated[float, _seconds(most=math.inf)] = Field(
        default=3600.0,
        description="how far a commit ts or a watermark may be ahead of both Kafka's timestamp of "
        "its record and the clock at landing; 3600. One that is further ahead is quarantined "
        "(`ts_ahead`)",
    )

    start_ts: Annotated[int | None, _tso] = Field(
        default=None,
        description="TSO that the changefeed was created with (TiCDC's `start-ts`), for tables "
        "that are seeded from an export; without it, the first watermark, row or DDL is used",
    )

    complete_tables: Tables = Field(
        default=TableChoice(),
        description="tables that had no rows when the changefeed began, so that all of their rows "
        "are in the source without a seed: `all`, or a list of `database.table` with `*` for any "
        "characters; none. A table that a message creates or empties needs no entry",
    )

    ended: Annotated[bool | None, flag] = Field(
        default=None,
        description="`true` if the source gets no more records, so that the changefeed is "
        "finished and not late once everything is applied; `true` for a capture, else `false`",
    )

    exports: Annotated[str | None, _folder] = Field(
        default=None,
        description="folder, relative to the settings' folder, or its URI, whose subfolders are "
        "exports of the upstream: the mirrors are compared with each",
    )

    def keeps_history(self, database: str, table: str) -> bool:
        """Return whether a history of a table is kept."""
        return self.history.includes(database, table) or self.soft_delete.includes(database, table)

    @property
    def has_ended(self) -> bool:
        """Whether the source gets no more records."""
        return isinstance(self.source, CaptureSource) if self.ended is None else self.ended


def _shown_location(location: str) -> str:
    """Return a path as it is, and a URI without the parts that may hold credentials."""
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
