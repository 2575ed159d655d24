"""Cuts: a TSO, and the version of every mirror at it. Readers read cuts.

One row per published cut, appended only after every mirror is written. Versions that no cut names
are not published, and the next run undoes them. So all mirrors of a cut are always at the same TSO.

A cut may repeat an older one (`Rewind`): then the cuts between the two are *void*. They stay in the
table as a record, and no reader uses them.

Publishing appends the row, which makes readers see the cut, and then writes `by_name.json` next to
the changefeed's tables, for readers that do not know cuts: where each mirror's Delta table is, and
at which version. It also has the newest batch of the change log that changes nothing in the cut
(`name_mirrors`). A mirror's folder is named by an id, since a table may be renamed, or created
again under its old name. No name from a message ever becomes part of a path.

Why publishing again is safe: a run killed before the append has published nothing. The file is
replaced atomically and names its cut; the next sync replaces a file of an older cut.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.base.errors import BusyError, LakeLayoutError, NotFoundError
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.changelog.plan import lacks_rows
from ticdc_assets.config import TableChoice, TableFilter
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import newest_row, read_leaves, read_rows
from ticdc_assets.delta.damage import damaged
from ticdc_assets.delta.lake import GENERATION
from ticdc_assets.delta.opening import kept
from ticdc_assets.delta.row_schema import fields_of
from ticdc_assets.model.schemas import TableSchema, schema_from_text
from ticdc_assets.model.tso import cut_of, moment_text, time_with_tso
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath, write_at_once

_LOGGER = logging.getLogger(__name__)

LAYOUT = 4
"""The layout of a changefeed's tables, recorded in its cuts; other layouts are not read."""


class Mode(StrEnum):
    """How a cut made a mirror; `mirrors.applying` explains each way."""

    CARRIED = "carried"
    ALTER = "alter"
    CHANGE = "change"
    REWRITE = "rewrite"
    FOLD = "fold"
    FAILED = "failed"
    """It could not, and the rows are those of an older cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorCut:
    """One mirror in a cut.

    Attributes:
        mirror_id: stable id of the mirror; names its folder.
        table_id: logical table id at the cut.
        generation: its generation, which is the cut's.
        version: Delta version of the mirror at the cut.
        hidden: columns that are never sent (virtual generated ones): not shown.
        schema: JSON text of the schema at the cut.
        floor_ts: rows at or below it are gone (CREATE, TRUNCATE).
        digest: identifies the plan that it was made by (`MirrorPlan.digest`).
        held: row changes at or below the cut that wait for their schema.
        quarantined: row changes at or below the cut that did not fit.
        caveats: reasons why the mirror may differ from its table.
        mode: how this cut made it, as plain text (`Mode`).
        changes: keys that this cut changed.
        unknown_deletes: deletes of rows that it did not have, over all cuts.
        history_version: Delta version of the history at the cut; None if none is kept.
        history_rows: versions of rows in it.
        history_unread: row changes that fit no schema and are missing from it, over all cuts.
        history_digest: identifies the past that it was made from (`MirrorPlan.past_digest`).
        history_since: TSO from which on the history has all versions: that of the base cut or the
            export that it began with; 0 if it began with all changes; None if no history is kept.
        lenient_casts: for each column and DDL, how many `values` did not fit when the column was
            modified and were cast as TiDB does in a lenient SQL mode.
    """

    mirror_id: str
    database: str
    table: str
    table_id: int
    generation: str
    version: int
    rows: int
    hidden: list[str]
    schema: str
    floor_ts: int
    digest: str
    held: int
    quarantined: int
    caveats: list[str]
    mode: str
    changes: int
    unknown_deletes: int
    history_version: int | None = None
    history_rows: int | None = None
    history_unread: int | None = None
    history_digest: str | None = None
    history_since: int | None = None
    lenient_casts: list[dict[str, Any]] | None = None

    @property
    def table_schema(self) -> TableSchema:
        """The schema at the cut."""
        return schema_from_text(self.schema)

    @property
    def failed(self) -> bool:
        """Whether the cut could not make it, so that its rows are from an older cut."""
        return self.mode == Mode.FAILED

    @property
    def casts(self) -> Counter[tuple[str, int]]:
        """`lenient_casts` by column and commit ts of the DDL."""
        items = self.lenient_casts or ()
        return Counter({(item["column"], item["ddl_ts"]): item["values"] for item in items})

    @property
    def incomplete(self) -> bool:
        """Whether changes at or below the cut are missing, or rows are missing or may be."""
        return self.held > 0 or self.quarantined > 0 or self.failed or lacks_rows(self.caveats)

    def path(self, paths: LakePaths) -> AnyPath:
        """The path of its Delta table."""
        return paths.of(self.generation).mirror(self.mirror_id)

    def history_path(self, paths: LakePaths) -> AnyPath:
        """The path of its history's Delta table, if a history is kept."""
        return paths.of(self.generation).history(self.mirror_id)

    def at(self, paths: LakePaths) -> tuple[AnyPath, int]:
        """The path of its Delta table, and the version in the cut."""
        return self.path(paths), self.version

    def history_at(self, paths: LakePaths) -> tuple[AnyPath, int]:
        """The path of its history's Delta table, and the version in the cut; one must be kept."""
        assert self.history_version is not None
        return self.history_path(paths), self.history_version

    def tables(self, paths: LakePaths) -> list[tuple[AnyPath, int]]:
        """Its Delta table and that of its history, if one is kept, with their versions."""
        tables = [self.at(paths)]
        return tables if self.history_version is None else [*tables, self.history_at(paths)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMirror:
    """A mirror that a cut could not make; the next sync tries again.

    If it was made before, it is among the cut's mirrors too, with its rows from the cut at `tso`.
    Then row changes at or below this cut are waiting. The reason is one sentence.
    """

    mirror_id: str
    database: str
    table: str
    table_id: int
    reason: str
    since: datetime
    tso: int | None
    waiting: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values; TSOs are integers."""
        return {
            "reason": self.reason,
            "since": self.since.isoformat(timespec="milliseconds"),
            "rows_at": self.tso,
            "waiting": self.waiting,
        }

    @property
    def sentence(self) -> str:
        """The sentence for messages."""
        keeps = "it has no rows yet"
        if self.tso is not None:
            keeps = f"its rows are those at {time_with_tso(self.tso)}"
        return (
            f"{joined_name(self.database, self.table)} could not be made since "
            f"{self.since:%Y-%m-%d %H:%M:%S} UTC ({self.reason}); {keeps}; waiting: "
            f"{counted(self.waiting, 'row change')}; each sync tries again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAccount:
    """The outcome of one table's row changes that are new in a cut.

    `read` is counted in the change log, by cited name; the others count what the cut did.

    Attributes:
        applied: folded into a mirror.
        waiting: not applied, because the mirror could not be made.
        held: wait for their schema.
        quarantined: did not fit.
        excluded: belong to tables that the configuration leaves out.
        superseded: their rows are gone: by TRUNCATE, by DROP, or handed over.
        unaccounted: none of these, which must not happen.
        first_ts: lowest commit ts of those unaccounted; None without any.
        examples: coordinates of some of them, `topic/partition/offset/index`.
    """

    database: str
    table: str
    read: int
    applied: int = 0
    waiting: int = 0
    held: int = 0
    quarantined: int = 0
    excluded: int = 0
    superseded: int = 0
    unaccounted: int = 0
    first_ts: int | None = None
    examples: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The sentence for messages, if the counts do not add up."""
        return (
            f"{joined_name(self.database, self.table)}: {self.unaccounted:,} of "
            f"{counted(self.read, 'row change')} "
            f"{'is' if self.unaccounted == 1 else 'are'} neither applied nor held nor in "
            "quarantine (topic/partition/offset/index "
            f"{', '.join(self.examples)})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """The older cut that a cut repeats, by its number.

    `from_number` and `from_tso` are those of the newest cut at that time, `by` ran the rewind.
    """

    number: int
    from_number: int
    from_tso: int
    by: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values; TSOs are integers."""
        return {
            "to_cut": self.number,
            "from_cut": self.from_number,
            "from_tso": self.from_tso,
            "by": self.by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """Row changes at or below a cut whose schema has not arrived, or whose table no DDL created.

    Attributes:
        schema_version: schema version they cite; None if the format has none.
        mirror_id: mirror they will change; None if no table had the name at their time.
        min_ts: lowest commit ts.
        since: when the first of them landed.
    """

    database: str
    table: str
    schema_version: int | None
    mirror_id: str | None
    rows: int
    min_ts: int
    since: datetime

    @property
    def order(self) -> tuple[object, ...]:
        """Place in a list: by table, then by schema version."""
        return (self.database, self.table, self.schema_version or 0, self.mirror_id or "")

    @property
    def awaited(self) -> str:
        """What they wait for, in words."""
        if self.mirror_id is not None:
            return f"schema version {self.schema_version}"
        if self.schema_version is None:
            return "a table of this name"
        return f"a table of this name, or schema version {self.schema_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A published cut.

    Attributes:
        number: 1, 2, 3, ... in the order of publishing.
        tso: the cut has every row with commit ts <= tso and every DDL with commit ts < tso.
        batch: newest batch of the change log that it was made from.
        landed: newest landed batch that it was made from; None in cuts of versions that did not
            record it.
        seed: newest seed that it was made from; None likewise.
        generation: the generation that its mirrors and that change log are in.
        mirrors: by (database, table).
        quarantined: records that could not be decoded and are not redriven.
        replays: replayed row changes ignored by this cut.
        late: row changes that landed after their cut and were folded into this one.
        steps_back: watermarks that stepped back, over all partitions and time.
        ignored: DDL without effect on mirrors, by kind.
        es_only: whether changes have no commit ts: then `tso` is a time (`tso.es_cut`) and the cut
            is not a consistent one.
        unplaced: row changes that landed after the change log was truncated above them. They are
            replays or late ones, which can no longer be decided; they are not applied.
        tables: JSON text of the filter by which tables were mirrored; None for all tables.
        start_ts: TSO that the changefeed was created with, by the configuration then.
        complete_tables: JSON text of the tables all of whose rows are in the source, by the
            configuration then; None for none.
        repeats_at: when the cut whose content it repeats was published; None if it repeats none.
    """

    number: int
    tso: int
    published_at: datetime
    batch: int
    generation: str
    mirrors: tuple[MirrorCut, ...]
    held: tuple[HeldRows, ...]
    quarantined: int
    replays: int
    late: int
    steps_back: int
    ignored: Mapping[str, int]
    es_only: bool = False
    unplaced: int = 0
    tables: str | None = None
    failed: tuple[FailedMirror, ...] = ()
    accounts: tuple[ChangeAccount, ...] = ()
    rewind: Rewind | None = None
    layout: int = LAYOUT
    repeats_at: datetime | None = None
    start_ts: int | None = None
    complete_tables: str | None = None
    landed: int | None = None
    seed: int | None = None

    @property
    def made_at(self) -> datetime:
        """When its content was first published: later events are not in it."""
        return self.repeats_at or self.published_at

    def again(self, newest: "Cut", *, mirrors: Sequence[MirrorCut] | None = None) -> "Cut":
        """Return a cut that follows `newest` and has the content of this one.

        The counts of a cut's making are not repeated, except what it could not account for. The
        mirrors may have other versions now.
        """
        return replace(
            self,
            number=newest.number + 1,
            published_at=datetime.now(UTC),
            repeats_at=self.made_at,
            mirrors=tuple(
                replace(mirror, mode=str(Mode.FAILED if mirror.failed else Mode.CARRIED), changes=0)
                for mirror in (self.mirrors if mirrors is None else mirrors)
            ),
            replays=0,
            late=0,
            accounts=self.unaccounted,
            rewind=None,
        )

    @property
    def unaccounted(self) -> tuple[ChangeAccount, ...]:
        """The accounts that do not add up."""
        return tuple(item for item in self.accounts if item.unaccounted)

    def failure(self, database: str, table: str) -> FailedMirror | None:
        """Return why the mirror of (database, table) could not be made; None if it could."""
        failures = (
            item for item in self.failed if (item.database, item.table) == (database, table)
        )
        return next(failures, None)

    @property
    def table_filter(self) -> TableFilter:
        """The filter by which tables were mirrored."""
        if self.tables is None:
            return TableFilter()
        said = json.loads(self.tables)
        return TableFilter(
            include=TableChoice(tuple(said["include"])), exclude=TableChoice(tuple(said["exclude"]))
        )

    @property
    def moment(self) -> str:
        """The moment of the cut, for messages."""
        return moment_text(self.tso, es_only=self.es_only)

    def mirror(self, database: str, table: str) -> MirrorCut | None:
        """Return the mirror of (database, table), or None."""
        mirrors = (
            item for item in self.mirrors if (item.database, item.table) == (database, table)
        )
        return next(mirrors, None)


def filter_text(tables: TableFilter) -> str | None:
    """Return a cut's text for the filter that it was made by; None for all tables."""
    if tables.takes_all:
        return None
    return json.dumps(
        {"include": tables.include.patterns, "exclude": tables.exclude.patterns}, ensure_ascii=False
    )


def choice_text(tables: TableChoice) -> str | None:
    """Return a cut's text for a choice of tables; None for none."""
    return json.dumps(tables.patterns, ensure_ascii=False) if tables else None


def newest_cut(paths: LakePaths) -> Cut | None:
    """Return the newest published cut, or None; needs no Spark.

    It raises BusyError if another generation than that of `paths` was published meanwhile.
    """
    cut = kept(paths.cuts, "newest cut", lambda: _read_newest(paths))
    if cut is not None and cut.generation != paths.generation:
        raise BusyError(
            f"the tables of changefeed {paths.changefeed!r} were rebuilt just now: try again"
        )
    return cut


def _read_newest(paths: LakePaths) -> Cut | None:
    row = newest_row(paths.cuts)
    return None if row is None else _cut_of(paths, row)


def require_cut(paths: LakePaths) -> Cut:
    """Return the newest cut, or raise NotFoundError."""
    cut = newest_cut(paths)
    if cut is None:
        raise NotFoundError(
            f"changefeed {paths.changefeed!r} has no published cut yet; run: "
            f"ticdc-assets sync {paths.changefeed}"
        )
    return cut


def tso_as_of(paths: LakePaths, as_of: int | str | datetime) -> int:
    """Return the TSO of a reader's TSO or time (UTC if the time names no offset).

    It raises NotFoundError before the first cut, and ConfigError if `as_of` is neither, or is a TSO
    in a changefeed without TSO.
    """
    text = as_of.isoformat() if isinstance(as_of, datetime) else str(as_of)
    return cut_of(text, es_only=require_cut(paths).es_only)


def read_cuts(paths: LakePaths, *, number: int | None = None) -> list[Cut]:
    """Return all kept cuts, or the one with a number if it is kept, oldest first; needs no Spark.

    Void cuts are left out.
    """
    rows = _not_void(paths, None if number is None else ds.field("number") == number)
    return [_cut_of(paths, row) for row in rows]


def _not_void(
    paths: LakePaths, condition: ds.Expression | None = None, columns: list[str] | None = None
) -> list[dict[str, Any]]:
    rows = read_rows(paths.cuts, condition, columns=columns)
    void = void_numbers(paths) if rows else frozenset[int]()
    rows = (row for row in rows if row["number"] not in void)
    return sorted(rows, key=lambda row: row["number"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CutHead:
    """A published cut without what it says of tables; the attributes are those of `Cut`.

    A run that follows its source publishes 40,000 cuts a day, each with all tables.
    """

    number: int
    tso: int
    published_at: datetime
    batch: int
    generation: str
    late: int
    es_only: bool


def read_heads(paths: LakePaths) -> list[CutHead]:
    """Return the heads of all kept cuts, oldest first; needs no Spark. Void cuts are left out."""
    rows = _not_void(paths, columns=[field.name for field in fields(CutHead)])
    return [CutHead(**row) for row in rows]


def read_entries(paths: LakePaths, names: Sequence[str], *, least: int = 0) -> Iterator[pa.Table]:
    """Yield what kept cuts, from number `least` on, say of mirrors, in any order; needs no Spark.

    `names` are the wanted columns of mirrors, as stored; `number` and `generation` come with them.
    Void cuts are left out.
    """
    void = pa.array(sorted(void_numbers(paths)), pa.int64())
    leaves = ("number", GENERATION, *(f"mirrors.{name}" for name in names))
    for batch in read_leaves(paths.cuts, leaves, least=least):
        mirrors = batch.column("mirrors")
        entries, parents = mirrors.flatten(), pc.list_parent_indices(mirrors)
        columns = {name: _readable(batch.column(name)) for name in ("number", GENERATION)}
        columns = {name: values.take(parents) for name, values in columns.items()}
        columns |= {name: _readable(pc.struct_field(entries, name)) for name in names}
        is_void = pc.is_in(columns["number"], value_set=void)
        wanted = pc.and_not(pc.greater_equal(columns["number"], least), is_void)
        yield pa.table(columns).filter(wanted)


def _readable(values: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return texts for views of texts: a file that delta-rs merged has those, few functions do."""
    if pa.types.is_list(values.type) and values.type.value_type == pa.string_view():
        return values.cast(pa.list_(pa.string()))
    return values.cast(pa.string()) if values.type == pa.string_view() else values


def void_numbers(paths: LakePaths) -> frozenset[int]:
    """Return the numbers of the void cuts; needs no Spark."""
    return frozenset(number for numbers in voided(paths).values() for number in numbers)


def voided(paths: LakePaths) -> dict[int, range]:
    """Return the numbers of the cuts that a rewind made void, by its cut's number; no Spark."""
    rows = read_rows(paths.cuts, ds.field("rewind").is_valid(), columns=["number", "rewind"])
    return {row["number"]: range(row["rewind"]["number"] + 1, row["number"]) for row in rows}


def same_content(cut: Cut, last: Cut) -> bool:
    """Return whether `cut` has no content that `last` does not have."""
    of_mirror = attrgetter(
        *("mirror_id", "database", "table", "version", "history_version"),
        *("held", "quarantined", "caveats"),
    )
    of_cut = attrgetter(
        *("held", "quarantined", "tables", "start_ts", "complete_tables", "failed", "unaccounted")
    )

    def content(of: Cut) -> object:
        return list(map(of_mirror, of.mirrors)), of_cut(of)

    return content(cut) == content(last)


STORED_CAVEATS = "marks"
"""The table's column for the caveats of a mirror."""

_CASTS = pa.list_(
    pa.struct([("column", pa.string()), ("ddl_ts", pa.int64()), ("values", pa.int64())])
)
_MIRROR = pa.struct(
    [
        field.with_name(STORED_CAVEATS) if field.name == "caveats" else field
        for field in fields_of(MirrorCut, lenient_casts=_CASTS)
        if field.name != GENERATION
    ]
)
CUT_SCHEMA = pa.schema(
    fields_of(Cut, mirrors=pa.list_(_MIRROR), ignored=pa.string(), layout=pa.int32())
)
"""`cuts`: one row for each published cut."""


def append_cut(paths: LakePaths, cut: Cut) -> None:
    """Append `cut` to the cuts; from then on readers see it."""
    # `asdict` would copy every value of thousands of tables.
    left_out = (GENERATION, "caveats")
    names = [item.name for item in fields(MirrorCut) if item.name not in left_out]
    row = {item.name: getattr(cut, item.name) for item in fields(cut)}
    row["mirrors"] = [
        {STORED_CAVEATS: item.caveats, **{name: getattr(item, name) for name in names}}
        for item in cut.mirrors
    ]
    for name in ("held", "failed", "accounts"):
        row[name] = [asdict(item) for item in getattr(cut, name)]
    row["rewind"] = None if cut.rewind is None else asdict(cut.rewind)
    row["ignored"] = json.dumps(dict(cut.ignored), sort_keys=True)
    write_table(
        paths.cuts,
        pa.Table.from_pylist([row], schema=CUT_SCHEMA),
        overwrite=False,
        metadata={"number": cut.number, "tso": cut.tso, GENERATION: cut.generation},
    )


def _cut_of(paths: LakePaths, row: dict[str, Any]) -> Cut:
    if row.get("layout") != LAYOUT:
        raise LakeLayoutError(
            paths.changefeed,
            f"the tables of changefeed {paths.changefeed!r}",
            str(paths.cuts),
            f"a version of this package before its first release wrote them "
            f"(layout {row.get('layout') or 1}, not {LAYOUT})",
            f"`ticdc-assets rebuild {paths.changefeed}` makes them again from the landed records",
        )
    try:
        mirrors = (
            MirrorCut(caveats=item.pop(STORED_CAVEATS), generation=row[GENERATION], **item)
            for item in row["mirrors"]
        )
        accounts = (
            ChangeAccount(**{**item, "examples": tuple(item["examples"])})
            for item in row["accounts"]
        )
        read = {
            "mirrors": tuple(mirrors),
            "held": tuple(HeldRows(**item) for item in row["held"]),
            "ignored": json.loads(row["ignored"]),
            "failed": tuple(FailedMirror(**item) for item in row["failed"]),
            "accounts": tuple(accounts),
            "rewind": None if row["rewind"] is None else Rewind(**row["rewind"]),
        }
        return Cut(**{**row, **read})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(
            paths.cuts, f"the row of cut {row.get('number')} does not have the form of a cut"
        ) from error


# Publishing --------------------------------------------------------------------------------------


def publish(paths: LakePaths, cut: Cut) -> None:
    """Publish `cut`: one append; from then on readers see it."""
    append_cut(paths, cut)
    name_mirrors(paths, cut)


def name_mirrors(paths: LakePaths, cut: Cut, *, batch: int = 0) -> int:
    """Write the mirrors of `cut`, the newest one, into the file, unless it already has them.

    An apply that changes nothing publishes no cut. It passes the newest batch of the change log
    that it read, so that the next one need not read this batch again.

    Returns:
        The newest batch that is known to change nothing in the cut.
    """
    batch = max(batch, cut.batch)
    named = _named(paths)
    if named.get("cut") == cut.number and named.get("batch", -1) >= batch:
        return named["batch"]
    # A failed mirror has the rows of an older cut.
    older = {(item.database, item.table): item.tso for item in cut.failed}
    mirrors = [
        {
            "database": item.database,
            "table": item.table,
            "path": paths.of(item.generation).mirror_below(item.mirror_id),
            "version": item.version,
            "tso": older.get((item.database, item.table)) or cut.tso,
            "rows": item.rows,
        }
        for item in cut.mirrors
    ]
    head = {"changefeed": paths.changefeed, "cut": cut.number, "tso": cut.tso, "at": cut.moment}
    text = json.dumps({**head, "batch": batch, "mirrors": mirrors}, indent=1)
    try:
        write_at_once(paths.by_name, text)
    except OSError as error:
        # The mirrors are published, even if this file cannot be written.
        _LOGGER.warning("%s cannot be brought to cut %d: %s", paths.by_name, cut.number, error)
    return batch


def named_cut(paths: LakePaths) -> int | None:
    """Return the number of the cut in the file; None if there is none."""
    return _named(paths).get("cut")


def _named(paths: LakePaths) -> dict[str, Any]:
    """Return what the file has; nothing if it cannot be read."""
    try:
        named = json.loads(paths.by_name.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast(dict[str, Any], named) if isinstance(named, dict) else {}
