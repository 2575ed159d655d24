"""The messages of pingcap/ticdc's dialect: both decoders are equal, and rows have the truth's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, RowChange, Watermark
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.golden import NEW_SCENARIOS, Scenario
from ticdc_assets_tests.wire.comparing import assert_equal, decoded

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(("variant", "name"), NEW_SCENARIOS)
def test_both_decoders_say_the_same(
    variant: str, name: str, golden_new_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_new_dir(variant, name))
    records = [Record(key=item.key, value=item.value) for item in scenario.records]
    assert_equal(records, scenario.wire_format)


@pytest.mark.parametrize(("variant", "name"), NEW_SCENARIOS)
def test_every_record_means_what_the_truth_says(
    variant: str, name: str, golden_new_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_new_dir(variant, name))
    wanted: dict[tuple[int, int], list[object]] = {}
    for line in scenario.truth:
        wanted.setdefault((line["partition"], line["offset"]), []).append(_of_truth(line))
    for record in scenario.records:
        events = decoded(Record(key=record.key, value=record.value), scenario.wire_format)
        assert isinstance(events, list), events
        said = wanted[record.partition, record.offset]
        assert [_of_event(event) for event in events] == said


def _of_truth(line: dict[str, object]) -> tuple[object, ...]:
    """Return what is compared of an event, by the truth."""
    match line["type"]:
        case "row":
            name = (line["database"], line["table"])
            return ("row", line["op"], line["commit_ts"], *name)
        # send-all-bootstrap-at-start, in a format that has no bootstraps.
        case "ddl" if not line["commit_ts"]:
            return ("bootstrap",)
        case "ddl":
            return ("ddl", line["commit_ts"], line["sql"])
        case "watermark":
            return ("watermark", line["commit_ts"])
        case kind:
            return (kind,)


def _of_event(event: Event) -> tuple[object, ...]:
    """Return the same of an event as decoded."""
    match event:
        case RowChange():
            name = (event.database, event.table)
            return ("row", str(event.op), event.commit_ts, *name)
        case DdlEvent():
            return ("ddl", event.commit_ts, event.sql)
        case Watermark():
            return ("watermark", event.watermark_ts)
        case Bootstrap():
            return ("bootstrap",)
