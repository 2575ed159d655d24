"""Accepted gaps: records that expired before they were landed, and the caveats for them.

In: rows of `accepted_gaps`, written by `ticdc-assets accept-gap`, and by `accept-loss`: a record
that no decoder reads is a gap of one offset, after it landed. Out: where landing continues
(`positions.read_position`), the shift of the offsets of a recreated topic, and the mirrors that may
lack changes since.

A recreated topic counts its offsets from the beginning, so landing adds the gap's `offset_base` to
them: a later record has a greater offset, as all steps after `raw_messages` assume.

Lost changes are above the last watermark of the partition before the gap. A mirror whose table was
created or truncated later lacks nothing if that DDL landed after the gap in the same partition:
TiCDC sends no row beyond a DDL of its table before the DDL. If a partition gets no DDL at all, the
DDL must be above the first watermark that landed after the gap.

Only the row stores an acceptance. Everything derived from it is computed again each time, except
`until_ts`, which is stored because retention removes the watermark that it came from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import Caveat, MirrorPlan
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import commit_metadata, read_rows, read_table
from ticdc_assets.delta.row_schema import fields_of
from ticdc_assets.log.totals import NO_TOPIC
from ticdc_assets.registry.history import folded
from ticdc_assets.storage.lake_paths import LakePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedGap:
    """One accepted gap.

    Attributes:
        number: 1, 2, 3, ... in the order of acceptance.
        accepted_by: user and machine.
        topic_id: the topic's id then; None if the source has none.
        from_offset: the next offset to land then.
        to_offset: offset at which landing continues.
        offset_base: what landing adds to the source's offsets from here on.
        cause: one clause that says what happened.
        after_ts: highest landed watermark of the partition: the lost changes are above it.
        until_ts: the first higher watermark after the gap; None until one landed.
    """

    number: int
    accepted_at: datetime
    accepted_by: str
    topic: str
    partition: int
    topic_id: str | None
    from_offset: int
    to_offset: int
    offset_base: int
    cause: str
    after_ts: int
    until_ts: int | None = None

    @property
    def sentence(self) -> str:
        """The accepted gap in a sentence for people."""
        return (
            f"{self.lost} of topic {self.topic!r} partition {self.partition} ({self.cause}), "
            f"accepted by {self.accepted_by} at {self.accepted_at:%Y-%m-%d %H:%M:%S} UTC"
        )

    @property
    def lost(self) -> str:
        """Which offsets are lost, as far as that is known."""
        if self.to_offset == self.from_offset + 1:
            return f"offset {self.from_offset}"
        if self.to_offset > self.from_offset:
            return f"offsets {self.from_offset} to {self.to_offset - 1}"
        return f"offsets from {self.from_offset} on, up to where it was created again or truncated,"

    @property
    def caveat(self) -> Caveat:
        """The reason why a mirror may differ from its table."""
        where = f"topic {self.topic!r} partition {self.partition}"
        if self.cause.startswith(UNREADABLE):
            why = "cannot be decoded and was given up"
        elif self.to_offset == self.from_offset + 1:
            why = "was gone before it landed"
        else:
            why = "were gone before they landed"
        return Caveat(
            reason=f"changes may be missing: {self.lost} of {where} {why}", since_ts=self.after_ts
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self) | {"accepted_at": self.accepted_at.isoformat(timespec="seconds")}


UNREADABLE = "no decoder reads it"
"""How the cause of a gap begins that is a landed record."""

ACCEPTED_GAPS_SCHEMA = pa.schema(fields_of(AcceptedGap, partition=pa.int32()))
"""`accepted_gaps`: one row a gap."""


def read_accepted(paths: LakePaths) -> tuple[AcceptedGap, ...]:
    """Return the accepted gaps in the order of acceptance; needs no Spark."""
    rows = sorted(read_rows(paths.accepted_gaps), key=lambda row: row["number"])
    return tuple(AcceptedGap(**row) for row in rows)


def append_accepted(paths: LakePaths, gap: AcceptedGap) -> AcceptedGap:
    """Append a gap under the next number. The caller holds the writer lock."""
    number = commit_metadata(paths.accepted_gaps).get("number", 0) + 1
    numbered = replace(gap, number=number)
    rows = pa.Table.from_pylist([asdict(numbered)], ACCEPTED_GAPS_SCHEMA)
    write_table(paths.accepted_gaps, rows, overwrite=False, metadata={"number": number})
    return numbered


def close_accepted(paths: LakePaths, *, es_only: bool) -> tuple[AcceptedGap, ...]:
    """Return the accepted gaps, and store where they end if that is known by now.

    A generation that is apart stores nothing. Any record ends a gap if messages have no watermarks.
    """

    def until(gap: AcceptedGap) -> int | None:
        condition = (
            (ds.field("topic") == gap.topic)
            & (ds.field("partition") == gap.partition)
            & (ds.field("offset") >= gap.to_offset)
            & (ds.field("commit_ts") > gap.after_ts)
        )
        if not es_only:
            condition &= ds.field("kind") == "watermark"
        records = read_table(paths.change_log, condition, columns=["commit_ts"])
        return None if records is None else pc.min(records["commit_ts"]).as_py()

    gaps = read_accepted(paths)
    closed = tuple(
        gap if gap.until_ts is not None else replace(gap, until_ts=until(gap)) for gap in gaps
    )
    if closed != gaps and not paths.apart:
        rows = pa.Table.from_pylist([asdict(gap) for gap in closed], ACCEPTED_GAPS_SCHEMA)
        metadata = commit_metadata(paths.accepted_gaps)
        write_table(paths.accepted_gaps, rows, overwrite=True, metadata=metadata)
    return closed


def gap_caveats(
    paths: LakePaths,
    gaps: Iterable[AcceptedGap],
    mirrors: Sequence[MirrorPlan],
    groups: Sequence[Mapping[str, Any]],
    tso: int,
) -> dict[str, list[str]]:
    """Return the caveats of each mirror that may lack changes at `tso`.

    A lost record may belong to any table. A table gets no caveat only if it was never in the topic
    but was in others, and if the topic had tables and no DDL of databases. `groups` is the change
    log in numbers (`change_groups`).
    """
    gaps = [gap for gap in gaps if not gap.after_ts or tso > gap.after_ts]
    if not gaps:
        return {}
    carried = _Carried(groups)
    plans = [(mirror.mirror_id, [*mirror.sources()]) for mirror in mirrors]
    least = min(gap.after_ts for gap in gaps)
    floors = {plan.floor_ts for _, sources in plans for plan in sources if plan.floor_ts > least}
    # The DDL that let a table start again.
    is_begin = (ds.field("kind") == "ddl") & ds.field("commit_ts").isin(sorted(floors))
    columns = ["topic", "partition", "offset", "commit_ts"]
    begins = read_rows(paths.change_log, is_begin, columns=columns) if floors else []
    caveats: dict[str, list[str]] = {}
    for gap in gaps:
        landed = {
            row["commit_ts"]
            for row in begins
            if (row["topic"], row["partition"]) == (gap.topic, gap.partition)
            and row["offset"] >= gap.to_offset
            and row["commit_ts"] > gap.after_ts
        }
        for mirror_id, sources in plans:
            # The rows of other tables that it began with may lack them too.
            if any(_may_lack(plan, gap, landed, carried) for plan in sources):
                caveats.setdefault(mirror_id, []).append(str(gap.caveat))
    return caveats


def _may_lack(
    plan: MirrorPlan, gap: AcceptedGap, landed: Collection[int], carried: "_Carried"
) -> bool:
    """Return whether a table may lack changes that were lost in a gap.

    `landed` has the commit ts of the DDL that landed after the gap in its partition.
    """
    is_above = gap.until_ts is not None and plan.floor_ts > gap.until_ts
    if plan.exported is not None:
        # No record shows it: what counts is whether the mirror has the lost changes.
        began_later = is_above
    else:
        # Where DDL comes, it came before the gap, or was lost in it.
        gets_ddl = (gap.topic, gap.partition) in carried.with_ddl
        began_later = plan.floor_ts in landed or (is_above and not gets_ddl)
    names = {folded((item.database, item.table)) for item in plan.bindings}
    return not began_later and carried.may_carry(gap.topic, names)


class _Carried:
    """What each topic carried: which tables, and which of its partitions get DDL."""

    def __init__(self, groups: Sequence[Mapping[str, Any]]) -> None:
        self._names: dict[str, set[tuple[str, str]]] = {}
        self._others: set[str] = set()
        self.with_ddl: set[tuple[str, int]] = set()
        """The partitions that ever got a DDL."""
        for row in groups:
            if row["kind"] not in ("row", "bootstrap", "ddl") or row["topic"] == NO_TOPIC:
                continue
            if row["kind"] == "bootstrap" and row["database"] is None:
                continue  # one without content concerns no table
            if row["kind"] == "ddl":
                self.with_ddl.add((row["topic"], row["partition"]))
            if row["database"] and row["table"]:
                name = folded((row["database"], row["table"]))
                self._names.setdefault(row["topic"], set()).add(name)
            else:
                self._others.add(row["topic"])

    def may_carry(self, topic: str, names: set[tuple[str, str]]) -> bool:
        """Return whether a topic may have had records of a table with these names."""
        there = self._names.get(topic)
        if there is None or topic in self._others or there & names:
            return True
        return not any(names & seen for seen in self._names.values())
