"""What a mirror of rows that were exchanged again and again is marked for, without a long wait."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ticdc_assets.changelog.plan import ExportedRows, MirrorPlan, Plan, RowGroup
from ticdc_assets.config import CaptureSource, Changefeed
from ticdc_assets.log.accepted_gaps import AcceptedGap, gap_caveats
from ticdc_assets.log.change_statistics import ChangeStatistics, Correction
from ticdc_assets.mirrors.caveats import export_gap
from ticdc_assets.mirrors.truncation_points import TruncationPoint, caveats_below
from ticdc_assets.mirrors.validity import Knowledge, LateRows
from ticdc_assets.registry.history import SchemaHistory
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.test_encoder_damage import CREATE, planned
from ticdc_assets_tests.changelog.test_handovers import in_a_chain, in_a_lattice
from ticdc_assets_tests.repair.test_retention import cut_at
from ticdc_assets_tests.statuses import mirror

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Shape = Callable[[MirrorPlan], MirrorPlan]
every_shape = pytest.mark.parametrize("shape", [in_a_chain, in_a_lattice])


def group(min_ts: int) -> RowGroup:
    return RowGroup(
        database="d",
        table="t",
        table_id=None,
        schema_version=None,
        min_ts=min_ts,
        max_ts=min_ts,
        rows=1,
    )


@every_shape
def test_an_export_at_the_end_is_found(shape: Shape) -> None:
    first = planned(CREATE)
    nothing = ChangeStatistics(batch=1, rows=())
    begun = Changefeed(
        name="feed",
        wire_format=WireFormat.SIMPLE_JSON,
        timezone="UTC",
        source=CaptureSource(path=Path("none")),
        start_ts=80,
    )
    assert export_gap(shape(first), nothing, begun) is None
    exported = ExportedRows(ts=50, seed=1, database="d", table="t", rows=1)
    gap = export_gap(shape(replace(first, exported=exported)), nothing, begun)
    assert gap is not None
    assert gap.since_ts == 50


@every_shape
def test_a_correction_at_the_end_is_found(shape: Shape) -> None:
    plan = shape(planned(CREATE))
    for table, is_corrected in (("t", True), ("other", False)):
        correction = Correction(
            kind="row", database="d", table=table, batch=9, min_ts=15, first=1, last=1, kept_ts=0
        )
        known = Knowledge(SchemaHistory(), (), [correction], "UTC", {})
        for batch, expected in ((9, False), (8, is_corrected)):
            assert (
                known.is_corrected(replace(cut_at(1000, NOW), batch=batch), plan.sources())
                is expected
            )


@every_shape
def test_late_rows_at_the_end_are_found(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """They belong to the table that has them now."""
    plan = replace(shape(planned(CREATE)), bindings=())
    known, cut = Knowledge(SchemaHistory(), (), [], "UTC", {}), cut_at(1000, NOW)
    monkeypatch.setattr(Knowledge, "digests", lambda *_: {plan.mirror_id: plan.digest})
    was = mirror(digest=plan.digest)
    for table, is_late in (("t", True), ("other", False)):
        late = [LateRows(name=("d", table), min_ts=15, max_ts=15)]
        assert bool(known.flaw(plan, was, cut, late)) is is_late


@every_shape
def test_a_gap_at_the_end_is_found(shape: Shape, tmp_path: Path) -> None:
    plan = shape(planned(CREATE))
    gap = AcceptedGap(
        number=1,
        topic="t",
        topic_id=None,
        partition=0,
        from_offset=1,
        to_offset=2,
        offset_base=0,
        cause="it was gone",
        after_ts=20,
        until_ts=90,
        accepted_at=NOW,
        accepted_by="somebody",
    )
    paths = LakePaths(root=tmp_path, changefeed="feed")
    assert gap_caveats(paths, [gap], [plan], [], 2000) == {plan.mirror_id: [str(gap.caveat)]}


class _NoTables(Knowledge):
    """Knows changes, and no table that has or holds them."""

    def plan(self, tso: int) -> Plan:
        return Plan(cut_ts=tso, mirrors=(), held=(), ignored=())


@every_shape
def test_rows_below_a_truncation_at_the_end_are_found(shape: Shape) -> None:
    plan = shape(planned(CREATE))
    base = replace(cut_at(60, NOW), tso=60)
    point = TruncationPoint(batch=60, cut=base)
    for ts, marked in ((30, {plan.mirror_id}), (70, set[str]())):
        known = _NoTables(SchemaHistory(), [group(ts)], (), "UTC", {})
        cut = Plan(cut_ts=1000, mirrors=(plan,), held=(), ignored=())
        assert caveats_below(point, known, cut, lambda: ()).keys() == marked
