"""Cleaning of logs: remove entries of `_delta_log` that no readable version needs.

In: the kept cuts, which name versions of mirrors and histories. Out: the logs without the entries
before the newest checkpoint at or below the oldest readable version, and without the hidden files
of killed writers. Delta's own clean-up goes by age and ignores cuts, so a property delays it
(`delta.logRetentionDuration`).

Why running it again is safe: only entries that a checkpoint replaces are removed, after the
checkpoint was read. A hidden file that a writer still needs is seconds old. If it is removed, its
writer fails and commits nothing.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from ticdc_assets.base.isolation import Failure, Failures
from ticdc_assets.base.names import joined_name
from ticdc_assets.delta.commits import newest_version, read_commit
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.fencing import require_lease
from ticdc_assets.delta.lake import GENERATION
from ticdc_assets.delta.log_reading import existing_state
from ticdc_assets.log.cuts import newest_cut, read_entries, read_heads
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import LOG, AnyPath, ListedFile, files_below

LOG_KEPT = timedelta(days=30)
"""The shortest time that log entries of the change log are kept: Delta's default."""

_READ_KEPT = timedelta(hours=1)
"""How long those of other tables are kept, for readers that have listed them."""

STAGED_KEPT = timedelta(days=1)
"""How long an unnamed commit is kept: its writer was killed, or is stalled."""

# Written by `storage.creating`, by delta-rs in a folder and on HDFS, and by Spark.
_STAGED = re.compile(
    r"\.?[0-9]{20}\.json(?:-[0-9a-f]{32}|#[0-9]+|\.tmp\.[0-9]+|\.[0-9a-f-]{36}\.tmp)"
)
_LOG_FILE = re.compile(
    r"(?P<version>[0-9]{20})\.(?P<kind>json|crc|checkpoint(\.[0-9]+\.[0-9]+)?\.parquet)"
)


def clean_logs(paths: LakePaths, failures: Failures, *, kept: timedelta = LOG_KEPT) -> int:
    """Remove log entries that no readable version needs; return how many files.

    Args:
        paths: tables of the changefeed.
        failures: receives the mirrors and histories whose logs stay, because they are damaged.
        kept: how long log entries of the change log are kept at least.

    Raises:
        LakeDamagedError: another table is damaged.
    """
    names = upstream_names(paths)
    removed = 0
    for path, (version, _) in named_versions(paths).items():
        found = failures.attempted(
            partial(_clean_log, path, version),
            names.get(path.name, f"{path.parent.name}/{path.name}"),
        )
        removed += 0 if isinstance(found, Failure) else found
    # The change log's own log has the landed batches of each kept cut.
    published = (cut.published_at for cut in read_heads(paths))
    moment = min([datetime.now(UTC) - kept, *published])
    return removed + _clean_until(paths.change_log, moment) + clean_shared_logs(paths)


def clean_shared_logs(paths: LakePaths, *, kept: timedelta = _READ_KEPT) -> int:
    """Remove log entries of tables whose older versions nobody reads; return how many files.

    A writer lists a log for each commit, and a run that follows its source commits 40,000 times a
    day.
    """
    moment, removed = datetime.now(UTC) - kept, 0
    for table in paths.tables:
        newest = -1 if table == paths.change_log else newest_version(table)
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
    found = ((_LOG_FILE.fullmatch(str(item.below)), item) for item in listed)
    return sorted(
        (
            (int(match["version"]), match["kind"], item)
            for match, item in found
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
