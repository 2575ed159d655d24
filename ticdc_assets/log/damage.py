"""Find damage in all tables of a changefeed, on request.

A reader of a table notices its damage (`delta.damage`), and nothing is checked before. So a sync
does not notice damage that it does not read: in a file of a mirror without changes, or a missing
commit below the newest one. `doctor` (`find_damage`) and `verify` notice it.

A table's log cannot show that its end is lost, but the tables made from it can (`require_in_step`).
A sync checks this first, because otherwise it would land or decode the same records twice, or
others in their place.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.delta.damage import damaged
from ticdc_assets.delta.delta_files import broken
from ticdc_assets.delta.opening import open_table
from ticdc_assets.log.cuts import MirrorCut, named_cut, newest_cut
from ticdc_assets.log.positions import landed_batch
from ticdc_assets.log.seeds import decoded_seed, landed_seed
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath, RemotePath

_READERS = 16
"""How many tables of a lake in a store are checked at a time: each waits for the store."""


def find_damage(paths: LakePaths) -> list[LakeDamagedError]:
    """Return what is broken in the tables of a changefeed, as far as the newest cut needs them.

    Each file of the newest version, or of the version that the cut names, is looked up and its
    footer is read.
    """
    tables = (*paths.tables, paths.accepted_gaps)
    damage = [error for table in tables if (error := table_damage(table)) is not None]
    cut = None
    if all(error.path != str(paths.cuts) for error in damage):
        try:
            cut = newest_cut(paths)
            if not damage:
                require_ends(paths)
        except LakeDamagedError as error:
            damage.append(error)
    named = [] if cut is None else [item for of in cut.mirrors for item in of.tables(paths)]
    with ThreadPoolExecutor(_READERS if isinstance(paths.root, RemotePath) else 1) as pool:
        errors = pool.map(lambda item: table_damage(*item), named)
        return [*damage, *(error for error in errors if error is not None)]


def table_damage(
    table: AnyPath, version: int | None = None, *, footers: bool = True
) -> LakeDamagedError | None:
    """Return what is wrong with a table; None if nothing is, or if there is no such table.

    It may only be missing if no version is given. With `footers`, those of its files are read too.
    """
    try:
        newest = open_table(table)
    except LakeDamagedError as error:
        return error
    if newest is None and version is None:
        return None
    finding = broken(table, version, footers=footers)
    return None if finding is None else damaged(table, finding)


def require_whole(table: AnyPath, version: int | None = None, *, footers: bool = False) -> None:
    """Check a table before unnamed files are removed, or before it is read as a whole.

    A log that lost commits no longer names their files, which an intact copy of it does name. What
    `table_damage` returns is raised.
    """
    damage = table_damage(table, version, footers=footers)
    if damage is not None:
        raise damage


def check_files(paths: LakePaths, mirror: MirrorCut, *, footers: bool = False) -> None:
    """Raise LakeDamagedError unless a mirror and its history are intact at a cut's versions."""
    for table, version in mirror.tables(paths):
        require_whole(table, version, footers=footers)


def require_in_step(paths: LakePaths) -> None:
    """Check that no table ends before those made from it, and that their layout is current.

    A log that lost its last commits looks intact. The tables made from them show the loss.

    Raises:
        LakeDamagedError: a table has lost its end.
        LakeLayoutError: an earlier version of this package wrote them.
    """
    newest_cut(paths)
    log = commit_metadata(paths.change_log)
    grouped = commit_metadata(paths.change_groups).get("batch", 0)
    _require_end(
        paths.raw_messages, "batch", landed_batch(paths), paths.change_log, log.get("landed", 0)
    )
    _require_end(paths.change_log, "batch", log.get("batch", 0), paths.change_groups, grouped)


def require_ends(paths: LakePaths) -> None:
    """Raise LakeDamagedError if a table lacks its end, as far as others show; a sync checks fewer.

    A caller that removes unnamed files needs this: a log that lost its end does not name all files.
    """
    require_in_step(paths)
    seeds = landed_seed(paths), paths.change_log, decoded_seed(paths)
    _require_end(paths.snapshot_rows, "seed", *seeds)
    cut, named = newest_cut(paths), named_cut(paths)
    if cut is not None:
        _require_end(paths.cuts, "cut", cut.number, paths.by_name, named or 0)


def _require_end(table: AnyPath, kind: str, newest: int, output: AnyPath, last: int) -> None:
    """Check that the tables made from a table do not have more than it has."""
    if last > newest:
        raise damaged(
            table,
            f"its newest {kind} is {newest}, but {output.name} is of {kind} {last}: the end of its "
            "log is missing",
            is_behind=True,
        )


@contextmanager
def damage_told(*changefeeds: LakePaths) -> Iterator[None]:
    """Report which table is broken if work fails by an error that comes after the read.

    Spark and DuckDB read when rows are needed. So a command, or a step of a run, ends with this
    check of all tables if a library complains, since the library's error may not name the table.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of what a command prints has gone
    except _errors_of_libraries() as error:
        for damage in (damage for paths in changefeeds for damage in find_damage(paths)):
            raise damage from error
        raise


def _errors_of_libraries() -> tuple[type[Exception], ...]:
    # Only after an error, because pyspark takes a while to import.
    from ticdc_assets.spark.session import SPARK_ERRORS

    return (pa.ArrowException, *SPARK_ERRORS, OSError)
