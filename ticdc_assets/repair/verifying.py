"""Verifying: are the mirrors of the newest cut equal to a rebuild from the landed records?

In: the newest published cut and `raw_messages`. Out: a `Verification`: for each mirror whether it
equals its rebuild (`making`), by the content hash of both (`comparing`), and if not, the keys and
columns that differ; the same for its history, if both have one; differences of the cut itself; and
commits on a mirror's Delta table that no run of this package made.

Why running it again is safe: no published table is written. The mirrors are read at the versions
that the cut names, and the records up to its batch, so syncs may run meanwhile. The new generation
is removed at the end.

A mirror that cannot be read is reported with the error; it does not stop the others. If the lake's
store does not answer, nothing is known of any mirror, so that is an error.

It finds later damage to the tables: damaged or lost files, other writers, and any effect of the
order of syncs on a mirror. It does not prove that the changefeed's records are all landed (landing
stops at gaps, and says so), nor that the code is correct, because the rebuild uses the same code.

`count_keys` needs no rebuild: it finds keys that are in a mirror more than once, as a wrong write
of rows would leave them. Keys are compared by their typed columns, and by the exact text of values
that fit no typed column. Text keys that differ only by case are equal upstream under most
collations and count as two here. Tables without a key may repeat rows, and are not checked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

from ticdc_assets.base.isolation import Failure, Failures, attempted
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import Counted
from ticdc_assets.delta.commits import foreign_changes
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.log_reading import pool_within
from ticdc_assets.log.cuts import Cut, HeldRows, MirrorCut, require_cut
from ticdc_assets.log.damage import check_files
from ticdc_assets.mirrors.applying import parallel_mirrors
from ticdc_assets.model.tso import time_with_tso
from ticdc_assets.reading.mirrors import require_mirror
from ticdc_assets.repair.comparing import (
    NO_ROWS,
    Content,
    Differences,
    RowCounts,
    RowDifference,
    column_differences,
    compared_history,
    compared_mirror,
    content_of,
    differences,
    repeated_keys,
    row_differences,
)
from ticdc_assets.repair.making import Made, Making, RefusedRecords, place_apart, require_own
from ticdc_assets.storage.lake_paths import LakePaths


class Finding(StrEnum):
    """The result of comparing a mirror with its rebuild."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_PROVEN = "not proven"
    """They differ, but no rebuild could determine its rows (`Made.unproven`)."""
    NOT_REBUILT = "not rebuilt"
    """The cut has it, but the landed records do not make it."""
    NOT_IN_CUT = "not in the cut"
    """The landed records make it, but the cut does not have it."""
    FAILED = "failed"
    """The cut could not make it, or its rebuild cannot be made."""
    UNREADABLE = "unreadable"
    """The Delta version that the cut names, or its rebuild, cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedMirror:
    """One mirror compared with its rebuild.

    Attributes:
        database: database at the cut.
        table: table at the cut.
        finding: the result of the comparison.
        mirror: the mirror's content; None if it cannot be read or does not exist.
        rebuilt: the rebuild's content; None if there is none.
        differences: differences besides rows, one clause each.
        counts: how many rows differ.
        examples: some of them.
        history_counts: how many beginnings and ends of versions in its history differ.
        history_examples: some of them.
        foreign: commits on its Delta table after the cut's version by other programs.
        error: why the mirror or its rebuild cannot be read; None if both can.
        not_proven: why its rebuild cannot determine its rows, and when it can, if that is the
            finding.
    """

    database: str
    table: str
    finding: Finding
    mirror: Content | None = None
    rebuilt: Content | None = None
    differences: tuple[str, ...] = ()
    counts: RowCounts = NO_ROWS
    examples: tuple[RowDifference, ...] = ()
    history_counts: RowCounts = NO_ROWS
    history_examples: tuple[RowDifference, ...] = ()
    foreign: tuple[str, ...] = ()
    error: str | None = None
    not_proven: str | None = None

    @property
    def is_sound(self) -> bool:
        """Whether it equals its rebuild, if that is complete, and has no foreign commits."""
        return self.finding in (Finding.EQUAL, Finding.NOT_PROVEN) and not self.foreign

    def findings(self) -> list[str]:
        """Return the findings, a clause each, without any value of a row."""
        clauses = [str(self.finding), *self.differences]
        clauses += [f"rows: {self.counts.clause}"] if self.counts.total else []
        if self.history_counts.total:
            clauses.append(
                f"beginnings and ends of versions in the history: {self.history_counts.clause}"
            )
        if self.foreign:
            clauses.append(
                f"commits that no sync made: {', '.join(self.foreign)}; "
                "the next sync takes them back"
            )
        return [*clauses, self.error] if self.error else clauses


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of a verify.

    Attributes:
        changefeed: name of the changefeed.
        cut: number of the cut.
        tso: its TSO.
        moment: its moment for messages.
        proof_from: TSO from which on the proof holds; None if from the first landed record.
        records: landed records that were decoded.
        mirrors: by (database, table).
        differences: differences of the cut besides its mirrors, one clause each.
        refused: records that were decoded before and are refused now.
        decodable: events in quarantine that can be decoded now.
        lost: unaccounted row changes of the cut or its rebuild.
        seconds: how long it took.
    """

    changefeed: str
    cut: int
    tso: int
    moment: str
    proof_from: int | None
    records: int
    mirrors: tuple[VerifiedMirror, ...]
    differences: tuple[str, ...]
    refused: tuple[RefusedRecords, ...]
    decodable: int
    seconds: float
    lost: int = 0

    @property
    def equal(self) -> bool:
        """Whether all of the cut is sound (`VerifiedMirror.is_sound`) and accounted for."""
        return (
            not self.lost and not self.differences and all(item.is_sound for item in self.mirrors)
        )

    @property
    def summary(self) -> str:
        """The result, in one sentence without any value of a row."""
        at, total = f"cut {self.cut} at {self.moment}", len(self.mirrors)
        if self.equal:
            proven = sum(item.finding is Finding.EQUAL for item in self.mirrors)
            return (
                f"{proven} of {counted(total, 'mirror')} of {at} "
                f"{'equals its' if total == 1 else 'equal their'} rebuild from "
                f"{counted(self.records, 'landed record')} ({self.seconds:.1f} s)"
            )
        if self.lost:
            return (
                f"not proven: {counted(self.lost, 'row change')} of {at} "
                f"{'is' if self.lost == 1 else 'are'} in no mirror, neither held nor "
                "in quarantine"
            )
        unsound = sum(not item.is_sound for item in self.mirrors)
        others = counted(len(self.differences), "other finding")
        return (
            f"{unsound} of {counted(total, 'mirror')} of {at} "
            f"{'differs from its' if total == 1 else 'differ from their'} rebuild"
            f"{f', and {others}' if self.differences else ''}"
        )

    def notes(self) -> list[str]:
        """Return notes about the comparison, a sentence each."""
        notes: list[str] = []
        if self.proof_from is not None:
            notes.append(
                f"The proof holds from {time_with_tso(self.proof_from)} on: older records are not "
                "kept, so the rebuild starts from the mirrors of that base cut."
            )
        notes += (
            f"{joined_name(item.database, item.table)} cannot be proven: {item.not_proven}."
            for item in self.mirrors
            if item.finding is Finding.NOT_PROVEN
        )
        notes += (f"{item.clause}: the rebuild lacks their changes." for item in self.refused)
        if self.decodable:
            notes.append(
                f"{counted(self.decodable, 'event')} in quarantine can be decoded now; no cut has "
                f"their changes until you run: ticdc-assets redrive {self.changefeed}"
            )
        return notes

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object; TSOs are numbers."""
        document = {
            "equal": self.equal,
            "summary": self.summary,
            **asdict(self),
            "notes": self.notes(),
        }
        for item, mirror in zip(document["mirrors"], self.mirrors, strict=True):
            item["sound"] = mirror.is_sound
        return document


def verify(lake: Lake, *, table: tuple[str, str] | None = None) -> Verification:
    """Rebuild the mirrors of the newest cut from the landed records, and compare.

    Raises:
        NotFoundError: there is no cut, or no such mirror in it.
        BusyError: another verify of the changefeed is running.
        StoreUnavailableError: the lake's store does not answer.
        PrerequisiteError: the disk has no space left for the rebuild.
    """
    began = datetime.now(UTC)
    cut = require_cut(lake.paths)
    if table is not None:
        require_mirror(cut, *table)
    with place_apart(lake) as place:
        generation = Making(lake, cut, place, table=table).make()
        return compared(lake, cut, generation, began=began, table=table)


def compared(
    lake: Lake, cut: Cut, generation: Made, *, began: datetime, table: tuple[str, str] | None = None
) -> Verification:
    """Compare a cut with a generation made from the same records."""
    return Verification(
        changefeed=lake.paths.changefeed,
        cut=cut.number,
        tso=cut.tso,
        moment=cut.moment,
        proof_from=generation.proof_from,
        records=generation.records,
        mirrors=tuple(_mirrors(lake, generation, cut, table)),
        differences=tuple(_cut_differences(cut, generation, table)),
        refused=generation.refused,
        decodable=generation.decodable,
        lost=0 if table is not None else _lost(cut, generation.cut),
        seconds=round((datetime.now(UTC) - began).total_seconds(), 3),
    )


# The cut ----------------------------------------------------------------------------------------


def _cut_differences(cut: Cut, generation: Made, table: tuple[str, str] | None) -> Iterable[str]:
    """Yield the differences of two cuts besides their mirrors."""
    other = generation.cut
    if other is None:
        yield f"no cut can be made from the landed records: {generation.reason}"
        return
    for side, at in ((cut, ""), (other, ", rebuilt")):
        if table is None:
            yield from (f"not proven{at}: {item.sentence}" for item in side.unaccounted)
    if other.tso != cut.tso:
        yield f"the cut is at {cut.moment}, the landed records only reach {other.moment}"
    ours, theirs = _held(cut.held, table), _held(other.held, table)
    for place in sorted(ours.keys() | theirs.keys(), key=lambda item: (*item[:2], item[2] or 0)):
        database, name, schema_version = place
        if ours[place] != theirs[place]:
            yield (
                f"{joined_name(database, name)}: "
                f"{counted(ours[place], 'row waits', 'rows wait')} for "
                f"{'a table' if schema_version is None else f'schema version {schema_version}'}, "
                f"rebuilt {theirs[place]}"
            )


def _lost(cut: Cut, other: Cut | None) -> int:
    """Return how many row changes the cut or its rebuild does not account for."""
    sides = (cut, other) if other is not None else (cut,)
    return max(sum(item.unaccounted for item in side.unaccounted) for side in sides)


def _held(
    held: Iterable[HeldRows], table: tuple[str, str] | None
) -> Counter[tuple[str, str, int | None]]:
    counts = Counter[tuple[str, str, int | None]]()
    for item in held:
        if table in (None, (item.database, item.table)):
            counts[item.database, item.table, item.schema_version] += item.rows
    return counts


# Mirrors ----------------------------------------------------------------------------------------


def _mirrors(
    lake: Lake, generation: Made, cut: Cut, table: tuple[str, str] | None
) -> list[VerifiedMirror]:
    """Compare every mirror of either side, by (database, table)."""
    sides = [cut] if generation.cut is None else [generation.cut, cut]
    ours = {(item.database, item.table): item for item in cut.mirrors}
    theirs = {
        (item.database, item.table): item
        for item in (generation.cut.mirrors if generation.cut else ())
    }
    failed = {(item.database, item.table): item.sentence for of in sides for item in of.failed}
    names = sorted({*ours, *theirs, *failed}) if table is None else [table]
    counted = Counted("comparing", len(names))

    def compared(name: tuple[str, str]) -> VerifiedMirror:
        counted.begin(joined_name(*name))
        if name in failed:
            return VerifiedMirror(
                database=name[0], table=name[1], finding=Finding.FAILED, error=failed[name]
            )
        return _verified(lake, generation, name, ours.get(name), theirs.get(name))

    with pool_within(parallel_mirrors(lake.paths)) as pool:
        return list(pool.map(compared, names))


def _verified(
    lake: Lake,
    generation: Made,
    name: tuple[str, str],
    ours: MirrorCut | None,
    theirs: MirrorCut | None,
) -> VerifiedMirror:
    """Compare a mirror of a cut with its rebuild, if both have it."""
    result = VerifiedMirror(database=name[0], table=name[1], finding=Finding.UNREADABLE)

    def compare() -> None:
        nonlocal result
        rebuild = None
        if theirs is not None:
            rebuild = compared_mirror(generation.paths, theirs)
            result = replace(result, rebuilt=content_of(lake, rebuild))
        if ours is None:
            result = replace(result, finding=Finding.NOT_IN_CUT)
            return
        check_files(lake.paths, ours, footers=True)
        result = replace(result, foreign=tuple(_foreign_commits(lake.paths, ours)))
        there = compared_mirror(lake.paths, ours)
        content = content_of(lake, there)
        if theirs is None or rebuild is None:
            result = replace(result, mirror=content, finding=Finding.NOT_REBUILT)
            return
        columns = column_differences(there.rows.schema, rebuild.rows.schema)
        others = (*columns, *_other_differences(ours, theirs))
        rows = history = Differences()
        # Rows of tables with different columns cannot be compared.
        if not columns:
            if content != result.rebuilt:
                rows = row_differences(lake, there, rebuild)
            # The configuration may have switched the history on or off since.
            if None not in (ours.history_version, theirs.history_version) and (
                ours.table_schema == theirs.table_schema
            ):
                # As far back as both have all versions.
                sides = (ours.history_since, theirs.history_since, generation.proof_from)
                since = max(item or 0 for item in sides)
                history = differences(
                    lake,
                    compared_history(lake.paths, ours, since),
                    compared_history(generation.paths, theirs, since),
                )
        finding, not_proven = Finding.DIFFERENT, None
        if content == result.rebuilt and not others and not history.counts.total:
            finding = Finding.EQUAL
        elif name in generation.unproven:
            finding, not_proven = Finding.NOT_PROVEN, generation.unproven[name]
        result = replace(
            result,
            finding=finding,
            not_proven=not_proven,
            mirror=content,
            differences=others,
            counts=rows.counts,
            examples=rows.examples,
            history_counts=history.counts,
            history_examples=history.examples,
        )

    done = attempted(compare, f"comparing {joined_name(*name)}", alone=True)
    if not isinstance(done, Failure):
        return result
    require_own(generation.paths, [done.reason])
    # The differences known before the failure are reported too.
    return replace(result, error=done.reason)


def _other_differences(ours: MirrorCut, theirs: MirrorCut) -> Iterable[str]:
    if ours.table_schema != theirs.table_schema:
        yield "the schema at the cut differs from the one in the landed records"
    if set(ours.hidden) != set(theirs.hidden):
        yield (
            f"hidden columns are {', '.join(sorted(ours.hidden)) or 'none'}, "
            f"rebuilt {', '.join(sorted(theirs.hidden)) or 'none'}"
        )
    for what in ("rows", "held", "quarantined"):
        numbers = (getattr(ours, what), getattr(theirs, what))
        if numbers[0] != numbers[1]:
            yield f"the cut says {numbers[0]} {what}, rebuilt {numbers[1]}"


def _foreign_commits(paths: LakePaths, mirror: MirrorCut) -> Iterable[str]:
    """Yield the commits after the cut's version that other programs made and that change rows.

    A running or killed sync is ahead of the cut too, but its commits have ids.
    """
    table = mirror.path(paths)
    for commit in foreign_changes(table, mirror.version):
        yield f"version {commit.version} ({commit.operation})"


# Keys -------------------------------------------------------------------------------------------

MAX_KEYS = 5
"""How many repeated keys of each table are returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedKeys:
    """A mirror with repeated keys: how many, and some of them with the number of their rows."""

    database: str
    table: str
    keys: int
    examples: Sequence[tuple[Mapping[str, str | None], int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounts:
    """The result of checking all mirrors of a cut.

    `mirrors` with a key were checked, and have so many `rows`; `repeated` are those with repeated
    keys.
    """

    cut: int
    tso: int
    mirrors: int
    without_key: int
    rows: int
    repeated: tuple[RepeatedKeys, ...]


def count_keys(lake: Lake, cut: Cut) -> KeyCounts:
    """Find repeated keys in the mirrors of `cut`.

    Raises:
        UnfinishedError: some mirrors cannot be read; the text has the others' result too.
    """
    keyed = [item for item in cut.mirrors if item.table_schema.handle_key]
    repeated: list[RepeatedKeys] = []
    failures = Failures(f"looking for repeated keys in cut {cut.number}")
    for mirror in keyed:
        # One row has one key, and an empty table none.
        if mirror.rows < 2:
            continue
        work = partial(_repeated, lake, mirror)
        result = failures.attempted(work, joined_name(mirror.database, mirror.table))
        if not isinstance(result, Failure) and result.keys:
            repeated.append(result)
    if failures.reasons:
        for item in repeated:
            failures.add(
                joined_name(item.database, item.table),
                counted(item.keys, "key is not unique", "keys are not unique"),
            )
        failures.require_none()
    return KeyCounts(
        cut=cut.number,
        tso=cut.tso,
        mirrors=len(keyed),
        without_key=len(cut.mirrors) - len(keyed),
        rows=sum(item.rows for item in keyed),
        repeated=tuple(repeated),
    )


def _repeated(lake: Lake, mirror: MirrorCut) -> RepeatedKeys:
    rows = compared_mirror(lake.paths, mirror)
    count, examples = repeated_keys(lake, rows, examples=MAX_KEYS)
    return RepeatedKeys(database=mirror.database, table=mirror.table, keys=count, examples=examples)
