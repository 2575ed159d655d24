"""Maintenance: compact small files, remove unneeded files, truncate logs.

In: a changefeed's tables. Out: the same rows in fewer files, and a `Maintaining` with the results.
`maintain` runs, in this order: retention (`retention.retain`), compaction, the removal of unused
files, and the cleaning of `_delta_log`. The caller holds the writer lock. Each sync adds a file to
some tables; `join_new_files` keeps these few from one maintenance to the next.

Data that a kept cut needs is never removed:

- A compaction of a mirror or a history makes a new version, which the next sync would undo like
  that of a killed run. So afterwards a new cut is published: same TSO, same rows, the new versions.
  Older cuts still name their old versions.
- The files of a mirror stay if the oldest version that a kept cut names, or a later one, has them,
  or if they were removed after the oldest kept cut was published. The configured age is also in the
  tables' properties, so that a manual VACUUM keeps these files too.
- A version needs the entries of `_delta_log` from the last checkpoint before it on. Entries before
  the newest checkpoint at or below the oldest readable version go, after that was read. Delta's own
  clean-up goes by age and ignores cuts, so a property delays it (`delta.logRetentionDuration`).

Files that workers of killed or failed runs wrote and no commit names go after an hour. Before
removing files that a table's log does not name, maintenance checks the log (`require_whole`): a log
that lost a commit does not name good files either.

Why running it again is safe: each step is one commit, or removes unnamed files. If a run is killed
between a compaction and publishing, the next sync undoes the new versions.

A mirror or a history that cannot be maintained stays as it is and does not stop the others; an
error at the end names it.

Not handled: Z-ORDER and clustering.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import TypeVar

from ticdc_assets.base.errors import BusyError, LakeDamagedError
from ticdc_assets.base.isolation import Failure, Failures
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import Counted, tell
from ticdc_assets.delta.commits import newest_version, read_commit
from ticdc_assets.delta.committing import undisturbed
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.delta_files import removable
from ticdc_assets.delta.delta_protocol import Action, partition_of
from ticdc_assets.delta.fencing import require_lease
from ticdc_assets.delta.lake import GENERATION, Lake
from ticdc_assets.delta.log_reading import existing_state
from ticdc_assets.delta.opening import open_table
from ticdc_assets.log.cuts import Cut, MirrorCut, newest_cut, publish, read_entries, read_heads
from ticdc_assets.log.damage import require_ends, require_whole
from ticdc_assets.log.decoding import finish_decoding
from ticdc_assets.mirrors.file_fates import packed
from ticdc_assets.mirrors.table_writing import TableWriter, table_writer
from ticdc_assets.repair.making import remove_unpublished
from ticdc_assets.repair.retention import Retaining, retain
from ticdc_assets.repair.rewriting import Rewriter
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.storage.lake_paths import HISTORIES, MIRRORS, LakePaths
from ticdc_assets.storage.paths import LOG, AnyPath, ListedFile, files_below, names_in, remove_tree

T = TypeVar("T")

FEW_FILES = 8
"""How many small files of a mirror or a history are joined, if they have no vectors."""

MARGIN = timedelta(hours=1)
"""How much longer than the oldest kept cut removed files of mirrors are kept."""

_SMALL_BYTES = 64 << 20
"""The size below which a file of a past day is joined with others."""

_JOINED_BYTES = 256 << 20
"""The most bytes of files that are joined into one."""

_MANY_FILES = 50
"""How many small files of a day are joined by the sync that adds the last one."""

_STEPS = (256 << 10, 4 << 20)
"""Bytes below which files are small for a sync, one step after the other.

So no row is copied often.
"""

_REMOVED_KEPT = timedelta(days=7)
"""How long removed files of shared tables are kept for readers of older versions, as in Delta."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table in numbers.

    Attributes:
        files: files of its newest version.
        disk_files: files in its folder, including those of older versions and its log.
        disk_bytes: their bytes.
    """

    files: int = 0
    disk_files: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """The work on one table.

    Attributes:
        name: the table's name; for a mirror or a history its id too.
        of: `database.table` upstream of a mirror or a history, by the newest cut.
        rows_removed: rows that retention removed.
        before: the table before.
        after: the table afterwards.
    """

    name: str
    of: str | None
    rows_removed: int
    before: TableState
    after: TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintaining:
    """The result of one maintenance, or of its dry run.

    The `cut` was published for compacted mirrors, if any.
    """

    retaining: Retaining
    tables: tuple[TableReport, ...]
    cut: Cut | None

    def lines(self) -> Iterator[str]:
        """Yield the lines for people: one for each table, then where tables were truncated."""
        for item in self.tables:
            removed = f", {counted(item.rows_removed, 'row')} removed" if item.rows_removed else ""
            name = item.name if item.of is None else f"{item.name} ({item.of})"
            before, after = map(_size_text, (item.before, item.after))
            yield f"{name}: {before}{'' if before == after else f' -> {after}'}{removed}"
        yield from self.retaining.lines()
        if self.cut is not None:
            yield f"cut {self.cut.number} names the compacted mirrors, at {self.cut.moment}"


def _size_text(size: TableState) -> str:
    return (
        f"{counted(size.files, 'file')}, on disk {counted(size.disk_files, 'file')} of "
        f"{size.disk_bytes:,} bytes"
    )


def maintain(
    lake: Lake, *, now: datetime | None = None, dry_run: bool = False, margin: timedelta = MARGIN
) -> Maintaining:
    """Run retention, OPTIMIZE and VACUUM once. The caller holds the writer lock.

    A dry run only counts what would be removed. Removed files of mirrors are kept `margin` longer
    than the oldest kept cut.

    Raises:
        LakeDamagedError: a table that all mirrors depend on is damaged.
        UnfinishedError: some mirrors or histories failed; the rest is done.
    """
    require_ends(lake.paths)
    if not dry_run:
        # A file that a killed run left for the quarantine is named by no commit of it yet.
        finish_decoding(lake)
    failures = Failures(f"maintenance of changefeed {lake.paths.changefeed!r}")
    # A log that lost a commit does not name all files; the logs of mirrors are checked later.
    for table in lake.paths.tables:
        require_whole(table)
    tell("measuring the tables")
    before = _states(lake.paths)
    tell("looking for data older than its retention")
    retaining = retain(lake, now=now, dry_run=dry_run)
    cut = None
    if not dry_run:
        today = (now or datetime.now(UTC)).date().isoformat()
        cut = optimize_mirrors(lake, failures)
        for path in lake.paths.tables:
            _join_files(lake, path, small=_SMALL_BYTES, many=2, before_day=today)
        vacuum(lake.paths, failures, margin=margin)
        _remove_unnamed_mirrors(lake.paths)
        _remove_generations(lake)
        tell("removing old logs")
        clean_logs(lake.paths, failures)
        failures.require_none()
    after = before if dry_run else _states(lake.paths)
    upstream = upstream_names(lake.paths)
    removed = {
        "raw_messages": retaining.records,
        "change_log": retaining.changes,
        "cuts": retaining.cuts,
        "landings": retaining.landings,
    }
    return Maintaining(
        retaining=retaining,
        tables=tuple(
            TableReport(
                name=name,
                of=upstream.get(name.rpartition("/")[2]),
                rows_removed=removed.get(name, 0),
                before=state,
                after=after.get(name, TableState()),
            )
            for name, state in before.items()
        ),
        cut=cut,
    )


# Compaction -------------------------------------------------------------------------------------


def _join_files(
    lake: Lake, table: AnyPath, *, small: int, many: int, before_day: str | None = None
) -> bool:
    """Join the small files of a table, if any (`small_together`); return whether there were."""
    together = partial(small_together, small=small, many=many, before_day=before_day)
    opened = open_table(table)
    if opened is None or not together(opened.files):
        return False
    tell(f"compacting {table.name}")
    Rewriter(spark=lake.spark, table=table, does=f"joining files of {table.name}").join(together)
    return True


def join_new_files(lake: Lake) -> None:
    """Join the small files that syncs have added to tables, where they are many.

    A sync opens these tables several times, and each time reads what the log says of each file.
    The caller holds the writer lock.
    """
    paths = lake.paths
    often = (paths.raw_messages, paths.change_log, paths.landings, paths.cuts)
    tables = (*often, paths.checksums, paths.quarantine)
    joined = [
        any(_join_files(lake, table, small=small, many=_MANY_FILES) for small in _STEPS)
        for table in tables
    ]
    if any(joined):
        clean_shared_logs(paths)


def small_together(
    files: Iterable[Action], *, small: int, many: int, before_day: str | None = None
) -> list[list[Action]]:
    """Return groups of files of a day that become one file each.

    Large files stay: a day's compaction must not write all of it again. Files of tables that are
    not divided by days are as those of one past day.

    Args:
        files: the files of a table.
        small: the size below which a file is small.
        many: how many small files a day has at least if they are joined.
        before_day: the day before which days are chosen (ISO 8601); any day if None.
    """
    days: dict[str, list[Action]] = {}
    for action in files:
        day = partition_of(action).get("landed_day", "")
        if action["size"] < small and (before_day is None or day < before_day):
            days.setdefault(day, []).append(action)
    # In the order of writing, so that rows that landed together stay together.
    ordered = (
        sorted(actions, key=itemgetter("modificationTime"))
        for actions in days.values()
        if len(actions) >= many
    )
    groups = (
        group for actions in ordered for group in packed(actions, itemgetter("size"), _JOINED_BYTES)
    )
    return [group for group in groups if len(group) > 1]


def optimize_mirrors(lake: Lake, failures: Failures) -> Cut | None:
    """Compact the mirrors and histories of the newest cut, except those that fail.

    Returns:
        The cut that was published for it; None if there was nothing to do.
    """
    cut = newest_cut(lake.paths)
    if cut is None:
        return None
    counted = Counted("compacting", len(cut.mirrors), "mirror")
    mirrors: list[MirrorCut] = []
    for mirror in cut.mirrors:
        name = joined_name(mirror.database, mirror.table)
        counted.begin(name)
        successor = failures.attempted(partial(_optimized, lake, mirror), name)
        mirrors.append(mirror if isinstance(successor, Failure) else successor)
    if tuple(mirrors) == cut.mirrors:
        return None
    successor = cut.again(cut, mirrors=tuple(mirrors))
    publish(lake.paths, successor)
    return successor


def _optimized(lake: Lake, mirror: MirrorCut) -> MirrorCut:
    schema, name = mirror.table_schema, (mirror.database, mirror.table)
    writer = table_writer(lake, MirrorLayout(schema=schema), name, mirror.mirror_id)
    version, history_version = _compacted(writer, mirror.version), mirror.history_version
    if history_version is not None:
        writer = table_writer(lake, HistoryLayout(schema=schema), name, mirror.mirror_id)
        history_version = _compacted(writer, history_version)
    return replace(mirror, version=version, history_version=history_version)


def _compacted(writer: TableWriter, version: int) -> int:
    """Write a table at `version` in fewer files, and update its properties.

    Returns:
        The new version with the same rows, for the cut.
    """
    metadata = commit_metadata(writer.table)
    return undisturbed(lambda: writer.compact(version, metadata, few=FEW_FILES))


# Removing files ---------------------------------------------------------------------------------


def vacuum(paths: LakePaths, failures: Failures, *, margin: timedelta = MARGIN) -> None:
    """Remove the files that neither the newest versions nor kept cuts need."""
    for table in paths.tables:
        if open_table(table) is not None:
            _remove_unused(table, table.name, datetime.now(UTC) - _REMOVED_KEPT)
    cuts = read_heads(paths)
    if not cuts:
        return
    before = min(cut.published_at for cut in cuts) - margin

    def vacuumed(path: AnyPath, name: str, first: int, last: int) -> None:
        require_whole(path, last)
        # A cut names an old version if a mirror failed, or if others wrote after it.
        _remove_unused(path, name, before, oldest=first)

    _of_mirrors(paths, failures, vacuumed)


def _of_mirrors(
    paths: LakePaths, failures: Failures, work: Callable[[AnyPath, str, int, int], T]
) -> list[T]:
    """Work on each mirror and history that cuts name, except those that fail.

    The work gets a table, its name for people, and the oldest and the newest version that a cut
    names.
    """
    names = upstream_names(paths)
    done: list[T] = []
    for path, versions in sorted(named_versions(paths).items()):
        name = names.get(path.name, f"{path.parent.name}/{path.name}")
        outcome = failures.attempted(partial(work, path, name, *versions), name)
        if not isinstance(outcome, Failure):
            done.append(outcome)
    return done


def _remove_unused(
    table: AnyPath, name: str, before: datetime, *, oldest: int | None = None
) -> None:
    """Remove the files that a table does not need (`removable`), without a commit.

    A table whose log has a checkpoint that only libraries can read keeps them.
    """
    with reading(table):
        paths = removable(table, before, oldest=oldest)
    if not paths:
        return
    tell(f"removing unused files of {name}")
    require_lease(table)
    for path in paths:
        path.unlink(missing_ok=True)


def _remove_unnamed_mirrors(paths: LakePaths) -> None:
    """Remove the folders of mirrors and histories that no kept cut names, like dropped tables'."""
    # In this order: a folder that another run makes while this one is stalled is not listed.
    folders = _folders(paths)
    named = named_versions(paths)
    for item in folders if named else ():
        if item not in named:
            require_lease(item)
            remove_tree(item)


def _remove_generations(lake: Lake) -> None:
    """Remove the generations that no kept cut names, and the logs of those before the published.

    Readers of an older cut need only its mirrors and histories.
    """
    try:
        with lake.making():
            remove_unpublished(lake.paths)
    except BusyError:
        # A verify is making a generation; it removes the rest when it ends.
        return
    for older in _generations(lake.paths):
        if older.generation != lake.paths.generation:
            for name in names_in(older.generation_folder):
                if name not in (MIRRORS, HISTORIES):
                    require_lease(older.generation_folder)
                    remove_tree(older.generation_folder / name)


# Logs -------------------------------------------------------------------------------------------

_READ_KEPT = timedelta(hours=1)
"""How long log entries of shared tables are kept, for readers that have listed them."""

STAGED_KEPT = timedelta(days=1)
"""How long an unnamed commit is kept: its writer was killed, or is stalled."""

# Written by `storage.creating`, by delta-rs in a folder and on HDFS, and by Spark.
_STAGED = re.compile(
    r"\.?[0-9]{20}\.json(?:-[0-9a-f]{32}|#[0-9]+|\.tmp\.[0-9]+|\.[0-9a-f-]{36}\.tmp)"
)
_LOG_FILE = re.compile(
    r"(?P<version>[0-9]{20})\.(?P<kind>json|crc|checkpoint(\.[0-9]+\.[0-9]+)?\.parquet)"
)


def clean_logs(paths: LakePaths, failures: Failures, *, kept: timedelta = _READ_KEPT) -> int:
    """Remove log entries that no readable version needs; return how many files.

    `failures` receives the mirrors and histories whose logs stay, because they are damaged.

    Raises:
        LakeDamagedError: another table is damaged.
    """
    removed = _of_mirrors(paths, failures, lambda path, _, version, __: _clean_log(path, version))
    return sum(removed) + clean_shared_logs(paths, kept=kept)


def clean_shared_logs(paths: LakePaths, *, kept: timedelta = _READ_KEPT) -> int:
    """Remove log entries of tables whose older versions nobody reads; return how many files.

    A writer lists a log for each commit, and a run that follows its source commits 40,000 times a
    day.
    """
    moment, removed = datetime.now(UTC) - kept, 0
    for table in paths.tables:
        newest = newest_version(table)
        # After a commit of another program, an older one has the writer's progress.
        if newest >= 0 and read_commit(table, newest).commit_id is not None:
            removed += _clean_until(table, moment)
    return removed


def _clean_until(table: AnyPath, moment: datetime) -> int:
    """Remove entries that versions committed since a moment do not need; see `_clean_log`."""
    listed = list(files_below(table / LOG))
    before = [
        number
        for number, kind, item in _log_files(listed)
        if kind == "json" and item.modified < moment.timestamp()
    ]
    return _clean_log(table, max(before), listed) if before else 0


def _clean_log(table: AnyPath, version: int, listed: Sequence[ListedFile] | None = None) -> int:
    """Remove entries before the newest checkpoint at or below `version`, and staged commits.

    Killed writers staged these and never named them.

    Raises:
        LakeDamagedError: the checkpoint cannot be read.
    """
    listed = list(files_below(table / LOG)) if listed is None else listed
    least = (datetime.now(UTC) - STAGED_KEPT).timestamp()
    gone = [
        item.path
        for item in listed
        if item.modified < least and _STAGED.fullmatch(str(item.below)) is not None
    ]
    files = _log_files(listed)
    checkpoints = [
        number
        for number, kind, _ in files
        # A checkpoint of several parts may be incomplete.
        if kind == "checkpoint.parquet" and number <= version
    ]
    first = max(checkpoints, default=0)
    entries = [item.path for number, _, item in files if number < first]
    if entries:
        # Only a readable checkpoint replaces them.
        with reading(table, first):
            existing_state(table, first, is_whole=True)
    if gone or entries:
        require_lease(table)
    for path in (*gone, *entries):
        path.unlink(missing_ok=True)
    return len(gone) + len(entries)


def _log_files(listed: Iterable[ListedFile]) -> list[tuple[int, str, ListedFile]]:
    matches = ((_LOG_FILE.fullmatch(str(item.below)), item) for item in listed)
    return sorted(
        (
            (int(match["version"]), match["kind"], item)
            for match, item in matches
            if match is not None
        ),
        key=lambda file: file[:2],
    )


_VERSIONS = ("version", "history_version")


def named_versions(paths: LakePaths) -> dict[AnyPath, tuple[int, int]]:
    """Return the tables whose versions cuts name, each with the oldest and the newest of these."""
    named: dict[AnyPath, tuple[int, int]] = {}
    bounds = [(name, how) for name in _VERSIONS for how in ("min", "max")]
    for entries in read_entries(paths, ("mirror_id", *_VERSIONS)):
        for row in entries.group_by([GENERATION, "mirror_id"]).aggregate(bounds).to_pylist():
            place = paths.of(row[GENERATION])
            folders = (place.mirror(row["mirror_id"]), place.history(row["mirror_id"]))
            for path, name in zip(folders, _VERSIONS, strict=True):
                first, last = row[f"{name}_min"], row[f"{name}_max"]
                if first is not None:
                    oldest, newest = named.get(path, (first, last))
                    named[path] = (min(first, oldest), max(last, newest))
    return named


def upstream_names(paths: LakePaths) -> dict[str, str]:
    """Return the name of each table of the newest cut, by its mirror's folder name."""
    cut = newest_cut(paths)
    mirrors = () if cut is None else cut.mirrors
    return {item.mirror_id: joined_name(item.database, item.table) for item in mirrors}


# Numbers ----------------------------------------------------------------------------------------


def _states(paths: LakePaths) -> dict[str, TableState]:
    states = {name: _state(path) for name, path in _named(paths).items()}
    return {name: state for name, state in states.items() if state.disk_files}


def _named(paths: LakePaths) -> dict[str, AnyPath]:
    named = {path.name: path for path in paths.tables}
    for path in _folders(paths):
        older = (
            "" if path.parent.parent == paths.generation_folder else f"{path.parent.parent.name}/"
        )
        named[f"{older}{path.parent.name}/{path.name}"] = path
    return named


def _generations(paths: LakePaths) -> list[LakePaths]:
    named = {paths.generation, *(cut.generation for cut in read_heads(paths))}
    return [paths.of(name) for name in sorted(named)]


def _folders(paths: LakePaths) -> list[AnyPath]:
    """Return the folders of mirrors and histories, including those that no cut names."""
    return sorted(
        parent / name
        for generation in _generations(paths)
        for parent in generation.row_folders
        for name in names_in(parent)
        if name.replace("-", "").isdigit() and (parent / name).is_dir()
    )


def _state(path: AnyPath) -> TableState:
    try:
        table = open_table(path)
    except LakeDamagedError:
        table = None  # the work on it reports the error
    sizes = [item.size for item in files_below(path)]
    return TableState(
        files=0 if table is None else len(table.files),
        disk_files=len(sizes),
        disk_bytes=sum(sizes),
    )
