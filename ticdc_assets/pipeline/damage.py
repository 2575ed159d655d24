"""Damage: which tables of a changefeed are broken, found by their files and without Spark.

In: a changefeed's folder. Out: one `LakeDamagedError` for each table that is broken, with its name
and what repairs it. `control` says the same of a table that it opens; here it is looked for, in all
tables (`doctor`), in the mirrors of a cut (each sync, `tables`), or behind an error that some
library raised for it (`damage_told`), whose own words would not tell anybody what to do.

What it costs: for a mirror the commits since its last checkpoint are read and each of its files is
looked up, a quarter of a millisecond. Footers are read by `doctor` and behind an error only.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ticdc_assets.engine.control import commit_metadata, open_table
from ticdc_assets.engine.delta_files import broken, is_ahead
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.repairs import changefeed_of, damaged
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.pipeline.cuts import Cut, MirrorCut, newest_cut

_OF_LIBRARIES = (DeltaError, pa.ArrowException, Py4JError, PySparkException, OSError)


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
    for table, version in (
        (mirror.path(paths), mirror.version),
        (paths.history(mirror.mirror_id), mirror.history_version),
    ):
        if version is None:
            continue
        finding = broken(table, version, footers=footers)
        if finding is None and is_ahead(table, version):
            # What a killed run left behind: broken, it keeps every later version from being made.
            finding = broken(table, footers=footers)
        if finding is not None:
            raise damaged(table, finding, name)


def damaged_mirrors(
    paths: LakePaths, cut: Cut | None, *, footers: bool = False
) -> dict[str, LakeDamagedError]:
    """Return, by mirror id, what is wrong with the mirrors of a cut that are broken."""
    found: dict[str, LakeDamagedError] = {}
    for mirror in cut.mirrors if cut is not None else ():
        try:
            check_files(paths, mirror, footers=footers)
        except LakeDamagedError as error:
            found[mirror.mirror_id] = error
    return found


def table_damage(table: Path, *, footers: bool = True) -> LakeDamagedError | None:
    """Return what is wrong with one of the tables that are no mirrors, None if nothing is."""
    try:
        if open_table(table) is None:
            return None
    except LakeDamagedError as error:
        return error
    finding = broken(table, footers=footers)
    return None if finding is None else damaged(table, finding)


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
            require_in_step(paths)
        except LakeDamagedError as error:
            found.append(error)
    if all(error.path != str(paths.cuts) for error in found):
        try:
            cut = newest_cut(paths)
        except LakeDamagedError as error:
            found.append(error)
    return [*found, *damaged_mirrors(paths, cut, footers=deep).values()]


def require_in_step(paths: LakePaths) -> None:
    """Check that no table is behind those that are made from it.

    A log that lost its last commits is sound in itself. What was made from them tells.

    Raises:
        LakeDamagedError: one is behind.
    """
    landed = commit_metadata(paths.raw_messages).get("batch", 0)
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


@contextmanager
def damage_told(*changefeeds: LakePaths) -> Iterator[None]:
    """Say which table is broken where work on the tables of changefeeds fails because one is.

    Raises:
        LakeDamagedError: in place of what the libraries say of a broken table.
    """
    try:
        yield
    except LakeDamagedError as error:
        raise _named(error) from error
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


def _named(error: LakeDamagedError) -> LakeDamagedError:
    """Return an error of a mirror or a history with the name of its table, if that is known."""
    table = Path(error.path)
    paths = changefeed_of(table)
    if table.parent.parent != paths.base:
        return error
    with suppress(LakeDamagedError):
        cut = newest_cut(paths)
        for mirror in cut.mirrors if cut is not None else ():
            if mirror.mirror_id == table.name:
                return damaged(table, error.finding, (mirror.database, mirror.table))
    return error
