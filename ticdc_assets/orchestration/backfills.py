"""Backfills from a program: chosen days of `change_log`, chosen mirrors.

In: days, or tables by name. Out: the results. The runs materialise the same assets as a person in
the UI; a run takes a range of adjacent days, like Dagster's own single-run backfills, or all
tables. A correct day is left as it is, and a table is folded to its current state, so running it
again is safe.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, timedelta
from itertools import groupby
from typing import Any

from dagster import DagsterInstance

from ticdc_assets.base.errors import ConfigError, NotFoundError
from ticdc_assets.base.names import joined_name, split_name
from ticdc_assets.config import Settings
from ticdc_assets.log.cuts import Cut, MirrorCut, require_cut
from ticdc_assets.log.landing import landed_days
from ticdc_assets.observe.wording import listed
from ticdc_assets.orchestration.metadata import utc_now
from ticdc_assets.orchestration.mirror_assets import MirrorAssets
from ticdc_assets.orchestration.partitions import DAY_FORMAT
from ticdc_assets.orchestration.run import run_job
from ticdc_assets.orchestration.steps import steps_of
from ticdc_assets.repair.redecoding import Redecoding

_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"


def days_between(first: date, last: date) -> list[date]:
    """Return the days from `first` to `last`, both included.

    Raises:
        ConfigError: the last one is before the first.
    """
    if last < first:
        raise ConfigError(f"the days end on {last}, before they begin on {first}")
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def backfill_days(
    settings: Settings,
    changefeed: str,
    days: Collection[date],
    *,
    accept_losses: bool = False,
    instance: DagsterInstance | None = None,
) -> tuple[Redecoding, ...]:
    """Decode landing days (UTC) again, as runs of `change_log`; return the result of each run.

    With `accept_losses`, rows may go whose record is refused now. It raises as `run_job`, and:

    Raises:
        NotFoundError: nothing landed on any of the days, or one is no longer whole.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    landed = landed_days(steps.paths)
    if not landed or not set(landed) & set(days):
        known = f"records landed from {landed[0]} to {landed[-1]}" if landed else "nothing landed"
        raise NotFoundError(f"nothing landed on {listed(map(str, sorted(days)))}: {known}")
    wanted = {day for day in days if landed[0] <= day <= utc_now().date()}
    config = {"change_log": {"accept_losses": accept_losses}}
    selection = [steps.names.asset("change_log")]
    runs = (
        run_job(
            settings, changefeed, None, config, instance=instance, selection=selection, tags=tags
        )
        for tags in _ranges(wanted)
    )
    return tuple(run.last(Redecoding) for run in runs)


def backfill_tables(
    settings: Settings,
    changefeed: str,
    tables: Sequence[str],
    *,
    instance: DagsterInstance | None = None,
) -> tuple[Cut, list[MirrorCut]]:
    """Fold tables again from the change log, at the newest cut, in one run of their assets.

    Return the newest cut afterwards, and its mirrors of these tables. It raises as `run_job`, and:

    Raises:
        NotFoundError: nothing is published yet, or there is no such table.
    """
    steps = steps_of(settings, settings.changefeed(changefeed))
    cut = require_cut(steps.paths)
    names = {(item.database, item.table) for item in (named_mirror(cut, text) for text in tables)}
    shown = MirrorAssets.of(steps)
    config: dict[str, dict[str, Any]] = {}
    selection = sorted(key for key, name in shown.by_key.items() if name in names)
    if not shown.mirrors:
        config = {"mirrors": {"tables": sorted(joined_name(*name) for name in names)}}
        selection = [steps.names.asset("mirrors")]
    report = run_job(settings, changefeed, None, config, instance=instance, selection=selection)
    cut = report.applying.cut or cut
    return cut, [item for item in cut.mirrors if (item.database, item.table) in names]


def named_mirror(cut: Cut, text: str) -> MirrorCut:
    """Return the mirror that `text` names.

    Raises:
        NotFoundError: the cut has no such mirror.
    """
    name = split_name(text)
    mirror = None if name is None else cut.mirror(*name)
    if mirror is None:
        names = listed(sorted(joined_name(item.database, item.table) for item in cut.mirrors))
        raise NotFoundError(
            f"no mirror {text!r} in the newest cut ({cut.moment}); there are: {names or 'none'}"
        )
    return mirror


def _ranges(days: Iterable[date]) -> Iterator[dict[str, str]]:
    """Yield tags of runs, a range of adjacent days each, as Dagster's own backfills divide them."""
    for _, adjacent in groupby(enumerate(sorted(days)), lambda item: item[1].toordinal() - item[0]):
        keys = [f"{day:{DAY_FORMAT}}" for _, day in adjacent]
        yield {_RANGE_START: keys[0], _RANGE_END: keys[-1]}
