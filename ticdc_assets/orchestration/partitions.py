"""Names of a changefeed in Dagster (assets, jobs, pool, tags), and partitions for landing days."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import wraps
from typing import Literal, TypeAlias, get_args

import dagster as dg

from ticdc_assets.base.errors import UNREADABLE
from ticdc_assets.log.landing import landed_days
from ticdc_assets.storage.lake_paths import LakePaths

CHANGEFEED_TAG = "ticdc/changefeed"
"""Tag of every run of a changefeed; its value is the changefeed's name."""

DAY_FORMAT = "%Y-%m-%d"
"""How the partition key of a landing day is written."""

REPORT = "report"
"""Name of the asset that is a page for people; what makes it reads, and no sync waits for it."""

TABLE_LAG = "table_lag"
"""Name of the check of each mirror; it is of the step that folds mirrors, which is in the pool."""

JobKind: TypeAlias = Literal[
    "sync",
    "follow",
    "redrive",
    "seed",
    "diff",
    "redecode",
    "maintenance",
    "verify",
    "rebuild",
    "report",
]
"""The kinds of jobs of a changefeed: `jobs` and `follow_job` say what each does.

`redecode` and `report` only have a schedule, which materialises an asset."""

_OF_SCHEDULES: tuple[JobKind, ...] = ("redecode", "report")

IMPLICIT_ASSET_JOB_NAME = "__ASSET_JOB"
"""The job of runs that materialise chosen assets, as the UI and its backfills start them."""

ANONYMOUS = "__anonymous_asset_job_"
"""The start of the name of the job of a schedule that materialises assets."""

_NO_IDENTIFIER = re.compile(r"\A\Z|\A_+|_+\Z|__+|_(?=x(?:[0-9A-F]{2})*x)|(?:_*[^A-Za-z0-9_]+_*)+")
"""The characters that a part of an asset's key cannot have: see `_identifier`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedNames:
    """The names of the assets and jobs of one changefeed."""

    changefeed: str

    def asset(self, name: str) -> dg.AssetKey:
        """Return the key of the changefeed's asset `name`."""
        return dg.AssetKey([self.changefeed, name])

    def mirror(self, database: str, table: str) -> dg.AssetKey:
        """Return the key of the asset of one mirror."""
        return dg.AssetKey([self.changefeed, "mirrors", _identifier(database), _identifier(table)])

    def history(self, database: str, table: str) -> dg.AssetKey:
        """Return the key of the asset of one mirror's history."""
        return dg.AssetKey(
            [self.changefeed, "histories", _identifier(database), _identifier(table)]
        )

    @property
    def mirrors_group(self) -> str:
        """The group of the assets of single mirrors."""
        return f"{self.changefeed}_mirrors"

    def op(self, name: str) -> str:
        """Return the name of the op that computes asset `name`; run configuration goes by it."""
        return f"{self.changefeed}__{name}"

    @property
    def pool(self) -> str:
        """The pool that keeps the changefeed's runs apart."""
        return f"ticdc_{self.changefeed}"

    def job(self, kind: JobKind) -> str:
        """Return the name of a job, as runs have it."""
        name = f"{self.changefeed}_{kind}"
        return f"{ANONYMOUS}{self.schedule(kind)}" if kind in _OF_SCHEDULES else name

    def schedule(self, kind: JobKind) -> str:
        """Return the name of the schedule of a job."""
        return f"{self.changefeed}_{kind}_schedule"

    @property
    def jobs(self) -> list[str]:
        """The names of all jobs."""
        return [self.job(kind) for kind in get_args(JobKind)]

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the changefeed's runs."""
        return {CHANGEFEED_TAG: self.changefeed}


_Due: TypeAlias = Callable[[dg.ScheduleEvaluationContext], dg.RunRequest | dg.SkipReason]


def skipping_unreadable(due: _Due) -> _Due:
    """Return the evaluation of a schedule that skips, with a sentence, if a table is unreadable."""

    @wraps(due)
    def evaluated(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        try:
            return due(context)
        except UNREADABLE as error:
            return dg.SkipReason(str(error))

    return evaluated


def landing_days(paths: Callable[[], LakePaths], today: date) -> dg.DailyPartitionsDefinition:
    """Return one partition a day (UTC), from the first day with landed records to today.

    Without any record, or while these cannot be read, it is today only.
    """
    first = today
    with suppress(*UNREADABLE):
        first = min(landed_days(paths()), default=today)
    return dg.DailyPartitionsDefinition(
        start_date=first.isoformat(), end_offset=1, timezone="UTC", fmt=DAY_FORMAT
    )


def _identifier(name: str) -> str:
    """Return a table's name as part of an asset's key.

    Dagster makes names of inputs of a key: its parts joined by `__`, of ASCII letters, digits and
    underscores only. So each run of other characters becomes `_x`, its UTF-8 bytes in hexadecimal,
    and `x`: two tables never have one key, and no key has a part with `__`.
    """
    return _NO_IDENTIFIER.sub(
        lambda match: f"_x{match[0].encode('utf-8', 'surrogatepass').hex().upper()}x", name
    )
