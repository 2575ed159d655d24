"""Damage: find damaged tables of a changefeed by their files, without Spark.

In: a changefeed's folder. Out: one `LakeDamagedError` for each damaged table, with its name and its
repair. `control` raises the same error for a table that it opens. This module looks for damage in
all tables (`doctor`), in the mirrors of a cut (each sync, `tables`), or after a library raised an
error (`damage_told`), whose text would not say what to do.

Cost: for a mirror, the commits since its last checkpoint are read and each of its files is looked
up, which takes a quarter of a millisecond. Footers are read only by `doctor` and after an error.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa
from deltalake.exceptions import DeltaError

from ticdc_assets.engine.control import commit_metadata, kept, open_table
from ticdc_assets.engine.delta_files import broken, is_ahead
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.repairs import changefeed_of, damaged
from ticdc_assets.engine.session import SPARK_ERRORS
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.pipeline.cuts import Cut, MirrorCut, newest_cut
from ticdc_assets.pipeline.positions import landed_batch
from ticdc_assets.pipeline.publishing import named_cut
from ticdc_assets.pipeline.seeds import decoded_seed, landed_seed
from ticdc_assets.storage.paths import AnyPath, RemotePath, at

_READERS = 16
"""Mirrors of a lake in a store that are looked at at a time."""

_OF_LIBRARIES = (DeltaError, pa.ArrowException, *SPARK_ERRORS, OSError)


def check_files(paths: LakePaths, mirror: MirrorCut, *, footers: bool = False) -> None:
    """Check that a mirror, and its history if it has one, is there as a cut names it.

    Args:
        paths: tables of the changefeed.
        mirror: the mirror in the cut.
        footers: whether to read the footers of its files too.

    Raises:
        LakeDamagedError: it is not.
    """
    name = (mirror.database, mirror.table)
    versions = [(mirror.path(paths), mirror.version)]
    if mirror.history_version is not None:
        versions.append((mirror.history_path(paths), mirror.history_version))
    for table, version in versions:
        # An apply looks at each mirror, and so does the check behind it.
        finding = kept(
            table,
            f"broken, footers={footers}",
            partial(_finding, table, version, footers=footers),
            version=version,
        )
        if finding is not None:
            raise damaged(table, finding, name)


def _finding(table: AnyPath, version: int | None, *, footers: bool) -> str | None:
    """Return what is broken in a version of a table, or in the newest one behind it."""
    finding = broken(table, version, footers=footers)
    if finding is None and version is not None and is_ahead(table, version):
        # What a killed run left behind: broken, it keeps every later version from being made.
        finding = broken(table, footers=footers)
    return finding


def damaged_mirrors(
    paths: LakePaths, cut: Cut | None, *, footers: bool = False
) -> dict[str, LakeDamagedError]:
    """Return, by mirror id, what is wrong with the mirrors of a cut that are broken."""

    def checked(mirror: MirrorCut) -> LakeDamagedError | None:
        try:
            check_files(paths, mirror, footers=footers)
        except LakeDamagedError as error:
            return error
        return None

    mirrors = cut.mirrors if cut is not None else ()
    if isinstance(paths.root, RemotePath):
        # Each waits for the store, and not for the processor.
        with ThreadPoolExecutor(_READERS) as pool:
            errors = list(pool.map(checked, mirrors))
    else:
        errors = [checked(mirror) for mirror in mirrors]
    return {
        mirror.mirror_id: error
        for mirror, error in zip(mirrors, errors, strict=True)
        if error is not None
    }


def table_damage(
    table: AnyPath, version: int | None = None, *, footers: bool = True
) -> LakeDamagedError | None:
    """Return what is wrong with a table, None if nothing is, or if there is no such table.

    Args:
        table: its folder.
        version: a version that it must have; None if it may be missing.
        footers: whether to read the footers of its files too.
    """
    try:
        if open_table(table) is None and version is None:
            return None
    except LakeDamagedError as error:
        return error
    finding = _finding(table, version, footers=footers)
    return None if finding is None else damaged(table, finding)


def require_whole(table: AnyPath, version: int | None = None) -> None:
    """Check a table before files are removed that its log does not name.

    Where a log lacks what was committed, these are good files, which an intact copy of it names.

    Args:
        table: its folder.
        version: the newest version that is known to have been committed, if one is.

    Raises:
        LakeDamagedError: its log or a file of it is broken, or ends before that version.
    """
    damage = table_damage(table, version, footers=False)
    if damage is not None:
        raise damage


def find_damage(paths: LakePaths, *, deep: bool = True) -> list[LakeDamagedError]:
    """Return what is broken in the tables of a changefeed.

    Args:
        paths: its tables.
        deep: whether to look at each file of each table and its footer, instead of the logs of the
            tables and the files of the newest cut's mirrors.
    """
    found: list[LakeDamagedError] = []
    for table in paths.tables:
        error = None
        if deep:
            error = table_damage(table)
        else:
            try:
                open_table(table)
            except LakeDamagedError as damage:
                error = damage
        if error is not None:
            found.append(error)
    cut = None
    if not found:
        try:
            require_ends(paths)
        except LakeDamagedError as error:
            found.append(error)
    if all(error.path != str(paths.cuts) for error in found):
        try:
            cut = newest_cut(paths)
        except LakeDamagedError as error:
            found.append(error)
    return [*found, *damaged_mirrors(paths, cut, footers=deep).values()]


def require_in_step(paths: LakePaths) -> None:
    """Check that no table is behind those that are made from it, and that their layout is ours.

    A log that lost its last commits is sound in itself. What was made from them tells.

    Raises:
        LakeDamagedError: one is behind.
        LakeLayoutError: an earlier version of this package wrote them.
    """
    newest_cut(paths)
    landed = landed_batch(paths)
    log = commit_metadata(paths.change_log)
    grouped = commit_metadata(paths.change_groups).get("batch", 0)
    if log.get("landed", 0) > landed:
        raise damaged(
            paths.raw_messages,
            f"its newest commit is batch {landed}, but change_log has batch {log['landed']} of it: "
            "the end of its log is missing",
            is_behind=True,
        )
    if grouped > log.get("batch", 0):
        raise damaged(
            paths.change_log,
            f"its newest commit is batch {log.get('batch', 0)}, but change_groups has batch "
            f"{grouped} of it: the end of its log is missing",
        )


def require_ends(paths: LakePaths) -> None:
    """Check that no table lacks its end, as far as others tell; a sync need not ask for all.

    Who removes what tables do not name has to: a log that lost its end does not name all there is.

    Raises:
        LakeDamagedError: one lacks it.
    """
    require_in_step(paths)
    landed, decoded = landed_seed(paths), decoded_seed(paths)
    if decoded > landed:
        raise damaged(
            paths.snapshot_rows,
            f"its newest seed is {landed}, but change_log has seed {decoded} of it: the end of its "
            "log is missing",
        )
    cut, named = newest_cut(paths), named_cut(paths)
    if cut is not None and named is not None and named > cut.number:
        raise damaged(
            paths.cuts,
            f"its newest cut is {cut.number}, but {paths.by_name.name} is of cut {named}: the end "
            "of its log is missing",
        )


@contextmanager
def damage_told(*changefeeds: LakePaths) -> Iterator[None]:
    """Say which table is broken where work on the tables of changefeeds fails because one is.

    Raises:
        LakeDamagedError: in place of what the libraries say of a broken table.
    """
    try:
        yield
    except LakeDamagedError as error:
        raise _named(error, changefeeds) from error
    except _OF_LIBRARIES as error:
        found = [damage for paths in changefeeds for damage in find_damage(paths)]
        if not found:
            raise
        raise _together(found) from error


def _together(found: list[LakeDamagedError]) -> LakeDamagedError:
    first, more = found[0], len(found) - 1
    if not more:
        return first
    repair = f"{first.repair}; {more} more tables are damaged, which `ticdc-assets doctor` lists"
    return LakeDamagedError(first.changefeed, first.table, first.path, first.finding, repair)


def _named(error: LakeDamagedError, changefeeds: Sequence[LakePaths]) -> LakeDamagedError:
    """Return an error of a mirror or a history with the name of its table, if that is known."""
    if not changefeeds:
        return error
    table = at(error.path, changefeeds[0].root)
    paths = changefeed_of(table)
    if table.parent not in paths.row_folders:
        return error
    with suppress(LakeDamagedError):
        cut = newest_cut(paths)
        for mirror in cut.mirrors if cut is not None else ():
            if mirror.mirror_id == table.name:
                return damaged(table, error.finding, (mirror.database, mirror.table))
    return error
