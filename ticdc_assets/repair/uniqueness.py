"""Check that every key is in a mirror only once: a wrong write of rows would show here first.

In: the mirrors of a cut, at the versions that it names. Out: for each mirror with a handle key and
repeated keys, the number of such keys and some of them. Tables are only read, so running it again
is safe; syncs may run meanwhile, because the versions stay.

Keys are compared by their typed columns, and by the exact text of values that fit no typed column.
Text keys that differ only by case are equal upstream under most collations and count as two here.
Tables without a key may repeat rows, and are not checked.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from ticdc_assets.base.isolation import Failure, Failures
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.cuts import Cut, MirrorCut
from ticdc_assets.repair.comparing import compared_mirror, repeated_keys
from ticdc_assets.spark.scratch import READING, Scratch
from ticdc_assets.storage.paths import AnyPath

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

    Attributes:
        cut: number of the cut.
        tso: its TSO.
        mirrors: mirrors with a key, which were checked.
        without_key: mirrors without one.
        rows: checked rows.
        repeated: the mirrors with repeated keys.
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
    with closing(Scratch(lake.paths, READING)) as scratch:
        for mirror in keyed:
            # One row has one key, and an empty table none.
            if mirror.rows < 2:
                continue
            work = partial(_repeated, lake, mirror, scratch.folder())
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


def _repeated(lake: Lake, mirror: MirrorCut, folder: AnyPath) -> RepeatedKeys:
    count, examples = repeated_keys(
        lake.spark,
        compared_mirror(lake.paths, mirror),
        lake.changefeed.timezone,
        folder,
        examples=MAX_KEYS,
    )
    return RepeatedKeys(database=mirror.database, table=mirror.table, keys=count, examples=examples)
