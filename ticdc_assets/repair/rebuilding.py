"""Rebuilding: replace the published tables by tables made again from landed records.

In: the landed records and rows of exports, and the newest cut. Out: a new generation at the cut's
TSO (`making`), compared with the published one as in `verify`, and then published by one append to
`cuts`. Readers have the old mirrors until that append. Older cuts stay readable until maintenance
removes the last of them, and the old generation with it.

Records that the cut had in quarantine stay there until a redrive. The new generation is not
published, unless losses are accepted, if something would be lost: records that were decoded before
and are refused now, tables that cannot be made, tables whose rows cannot be rebuilt from kept data,
or changes and versions from before the base of `raw_messages` that the published tables still have.

Why running it again is safe: the published generation is not written. A killed run leaves it
unchanged, and the next run removes the unpublished one.

If there is no readable cut, or `raw_messages` lost its newest records, there is no cut to compare
with and to follow. Then everything that can be made again is moved to a folder, and the next sync
lands the lost records and makes the tables. The same happens to tables in the layout of an earlier
version of this package.
"""

import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ticdc_assets.base.errors import LakeDamagedError, LossError, NotFoundError, PrerequisiteError
from ticdc_assets.base.names import joined_name
from ticdc_assets.base.progress import tell
from ticdc_assets.delta.fencing import require_lease
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import open_table
from ticdc_assets.log.cuts import Cut, newest_cut, publish
from ticdc_assets.log.damage import require_whole, table_damage
from ticdc_assets.log.positions import decoded_position, landed_batch
from ticdc_assets.mirrors.truncation_points import has_lost_records, read_truncation_point
from ticdc_assets.model.tso import moment_text
from ticdc_assets.repair.making import Made, Making, place_apart
from ticdc_assets.repair.verifying import Finding, Verification, compared
from ticdc_assets.storage.lake_paths import GENERATIONS, HISTORIES, MIRRORS, LakePaths
from ticdc_assets.storage.paths import AnyPath, move, remove_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """The result of a rebuild.

    Without a cut there is no `verification` and no `cut`: the next sync makes one. `moved` is the
    folder that tables were moved to, if any; `losses` were accepted.
    """

    verification: Verification | None = None
    cut: Cut | None = None
    moved: AnyPath | None = None
    losses: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the result, a line each, without any value of a row."""
        lines = (
            [] if self.moved is None else [(f"damaged or older tables were moved to {self.moved}")]
        )
        if self.verification is None or self.cut is None:
            return [*lines, "the next sync makes all tables again"]
        for item in self.verification.mirrors:
            if not item.is_sound:
                name = joined_name(item.database, item.table)
                lines.append(f"{name}: {'; '.join(item.findings())}")
        lines += (*self.verification.differences, *self.verification.notes())
        lines += (f"lost: {item}" for item in self.losses)
        lines.append(
            f"{self.verification.summary}; cut {self.cut.number} at {self.cut.moment} has the "
            "rebuilt mirrors, and readers see them now"
        )
        return lines


def rebuild(lake: Lake, *, accept_losses: bool = False) -> Rebuild:
    """Make all tables again that are made from landed records, and publish them.

    The caller holds the writer lock.

    Args:
        lake: the changefeed's lake.
        accept_losses: whether to publish it although something in the cut is lost.

    Raises:
        LossError: something would be lost; nothing was changed.
        LakeDamagedError: the landed records or rows of exports are damaged.
        NotFoundError: nothing landed, or the cuts are broken and retention removed records.
        PrerequisiteError: there is not enough space on the disk.
        BusyError: a verify or another rebuild is running.
    """
    began = datetime.now(UTC)
    for table in (lake.paths.raw_messages, lake.paths.seeds, lake.paths.snapshot_rows):
        require_whole(table, footers=True)
    if not lake.paths.raw_messages.is_dir():
        raise NotFoundError(f"nothing of changefeed {lake.paths.changefeed!r} has landed yet")
    try:
        cut = newest_cut(lake.paths)
    except LakeDamagedError:
        cut = None
    if cut is None or _lost_their_end(lake.paths):
        with lake.making():
            return Rebuild(moved=_moved_all(lake.paths))
    with place_apart(lake, to_stay=True) as place:
        moved = None if keeps_landings(lake.paths) else _moved(lake.paths, [lake.paths.landings])
        _require_space(lake.paths, cut)
        generation = Making(lake, cut, place, to_stay=True).make()
        if generation.cut is None or generation.cut.tso != cut.tso:
            raise LossError(
                f"no cut at {cut.moment} can be made from the landed records "
                f"({generation.reason}); nothing was changed"
            )
        tell("comparing the new mirrors with the published ones")
        verification = compared(lake, cut, generation, began=began)
        losses = (*_losses(verification, generation), *_older_losses(lake.paths, cut, generation))
        if losses and not accept_losses:
            raise LossError(
                f"not published, because this part of cut {cut.number} would be lost: "
                f"{'; '.join(losses)}. Nothing was changed; --accept-losses publishes the "
                "rebuild nevertheless"
            )
        published = _published(lake.paths.of(place.generation), cut, generation.cut)
        for item in (place.cuts, place.by_name):
            remove_tree(item, quietly=True)
    return Rebuild(verification=verification, cut=published, moved=moved, losses=losses)


def _published(paths: LakePaths, before: Cut, generation_cut: Cut) -> Cut:
    """Publish the new generation's cut as the successor of the newest; return it."""
    cut = replace(
        generation_cut,
        number=before.number + 1,
        published_at=datetime.now(UTC),
        # The first cut with each change has its account.
        accounts=generation_cut.unaccounted,
        replays=0,
        late=0,
        unplaced=before.unplaced,
    )
    publish(paths, cut)
    return cut


def _losses(verification: Verification, generation: Made) -> tuple[str, ...]:
    """Return what the published mirrors have and the new ones lack, a clause each."""
    losses = [item.clause for item in generation.refused]
    losses += (item.sentence for item in (generation.cut.failed if generation.cut else ()))
    for item in verification.mirrors:
        if item.finding in (Finding.NOT_REBUILT, Finding.NOT_PROVEN):
            name = joined_name(item.database, item.table)
            losses.append(f"{name}: {item.not_proven or item.finding}")
    return tuple(losses)


def _older_losses(paths: LakePaths, cut: Cut, generation: Made) -> Iterator[str]:
    """Yield what the published tables have from before the base of the new ones, a clause each."""
    if generation.cut is None or generation.proof_from is None:
        return
    base = moment_text(generation.proof_from, es_only=cut.es_only)
    with suppress(LakeDamagedError):
        if read_truncation_point(paths).tso < generation.proof_from:
            yield (
                f"change_log: the changes up to {base}, whose records retention removed, and with "
                "them all reads as of a time below it"
            )
    for item in generation.cut.mirrors:
        was = cut.mirror(item.database, item.table)
        since = None if was is None else was.history_since
        if since is not None and item.history_since is not None and since < item.history_since:
            name = joined_name(item.database, item.table)
            yield f"{name}: the versions in its history from before {base}"


# Space ------------------------------------------------------------------------------------------


def _require_space(paths: LakePaths, cut: Cut) -> None:
    """Report the space that the new generation needs, and refuse if the disk has less."""
    needed = _size(paths.change_log, None)
    needed += sum(_size(*table) for item in cut.mirrors for table in item.tables(paths))
    if not isinstance(paths.home, Path):
        tell(f"the new tables need about {_megabytes(needed)}")
        return
    free = shutil.disk_usage(paths.home).free
    tell(f"the new tables need about {_megabytes(needed)}, {_megabytes(free)} are free")
    if needed > free:
        raise PrerequisiteError(
            f"a rebuild of changefeed {paths.changefeed!r} needs about {_megabytes(needed)} "
            f"besides the published tables, and {_megabytes(free)} are free in {paths.home}: "
            "free some; nothing was changed"
        )


def _size(path: AnyPath, version: int | None) -> int:
    """Return the bytes of a table's files; 0 if it is broken, which may be."""
    try:
        table = open_table(path, version)
    except LakeDamagedError:
        return 0
    return 0 if table is None else sum(item["size"] for item in table.files)


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"


# Without a comparison ------------------------------------------------------------------------


def keeps_landings(paths: LakePaths) -> bool:
    """Return whether `landings` stays; otherwise only the source can list its partitions."""
    return paths.landings.exists() and table_damage(paths.landings) is None


def _lost_their_end(paths: LakePaths) -> bool:
    """Return whether the records end before tables made from them; a sync lands them again."""
    try:
        return decoded_position(paths)[1] > landed_batch(paths)
    except LakeDamagedError:
        return False


_MADE = (
    *("change_log", "change_groups", "quarantine", "checksums", "ddl_history"),
    *("schema_conflicts", "schema_registry", "cuts", MIRRORS, HISTORIES, GENERATIONS),
)
"""The tables that can be made again, in this and earlier layouts of a changefeed's folder."""


def _moved_all(paths: LakePaths) -> AnyPath:
    """Move everything that can be made again into a separate folder, and return it.

    Raises:
        NotFoundError: retention removed records, so the tables cannot be made again.
    """
    if has_lost_records(paths):
        raise NotFoundError(
            f"the tables of changefeed {paths.changefeed!r} cannot be made again: its cuts, or "
            "the newest landed records, are lost, and retention removed records that the tables "
            "were made from; restore the lake from a copy"
        )
    landings = [] if keeps_landings(paths) else [paths.landings]
    return _moved(paths, [*landings, *(paths.home / name for name in _MADE)])


def _moved(paths: LakePaths, tables: Collection[AnyPath]) -> AnyPath:
    folder = paths.home / "set_aside" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    folder.mkdir(parents=True)
    for table in tables:
        if table.exists():
            require_lease(table)
            move(table, folder / table.name)
    return folder
