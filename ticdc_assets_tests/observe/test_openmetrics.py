"""Metrics: what the library's own parser reads of what we write."""

from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ticdc_assets.observe.openmetrics import FIGURES, Figures, openmetrics_text, serve_figures
from ticdc_assets_tests.statuses import NOW, held, mirror, offsets, status

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


ODD = 'a"b\\c\nd}'


def test_the_figures_come_back_as_they_were() -> None:
    waits = offsets(3, 12, 5, topic=ODD)
    seen = status(
        100,
        70,
        waiting_since=50,
        partitions=(waits,),
        cut_changes={
            "number": 7,
            "mirrors": (mirror(ODD, rows=9, quarantined=2),),
            "held": (held(30),),
        },
    )
    found = parsed(
        openmetrics_text(Figures(statuses=[seen], source_up={"shop": True, "crm": False}))
    )
    feed = ("changefeed", "shop")

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted([feed, *labels.items()]))]

    assert value("ticdc_replication_lag_seconds") == 100.0
    parts = {
        part: value("ticdc_replication_lag_part_seconds", part=part)
        for part in ("source_to_kafka", "kafka_to_raw", "raw_to_mirror")
    }
    assert parts == {"source_to_kafka": 20.0, "kafka_to_raw": 50.0, "raw_to_mirror": 30.0}
    assert value("ticdc_cuts_total") == 7
    assert value("ticdc_cut_timestamp_seconds") == NOW.timestamp() - 100
    assert value("ticdc_partition_backlog_records", topic=ODD, partition="3") == 7
    assert value("ticdc_table_rows", database="shop", table=ODD) == 9
    assert value("ticdc_table_quarantined_rows", database="shop", table=ODD) == 2
    assert value("ticdc_table_lag_seconds", database="crm", table="visits") == 100.0
    assert value("ticdc_topic_state", topic="shop", state="live") == 1
    assert value("ticdc_held_oldest_seconds") == 30.0
    assert value("ticdc_source_up") == 1.0
    assert found["ticdc_source_up", (("changefeed", "crm"),)] == 0.0
    # A table that is known from held rows only has no mirror, so no rows of one.
    assert (
        "ticdc_table_rows",
        tuple(sorted([feed, ("database", "crm"), ("table", "visits")])),
    ) not in (found)


def test_what_is_not_known_is_left_out() -> None:
    text = openmetrics_text(Figures(statuses=[status(None, None, topics=())], source_up={}))
    names = {name for name, _ in parsed(text)}
    assert not names & {
        "ticdc_replication_lag_seconds",
        "ticdc_cut_timestamp_seconds",
        "ticdc_watermark_timestamp_seconds",
        "ticdc_held_rows",
        "ticdc_held_oldest_seconds",
        "ticdc_source_up",
    }
    assert {"ticdc_cuts_total", "ticdc_quarantine_open"} <= names


def test_names_are_ours_and_each_once() -> None:
    names = [figure.name for figure in FIGURES]
    assert len(set(names)) == len(names)
    assert all(name.startswith("ticdc_") and not name.endswith("_total") for name in names)
    two = openmetrics_text(Figures(statuses=[status(), status(changefeed="crm")], source_up={}))
    assert {dict(labels)["changefeed"] for _, labels in parsed(two)} == {"shop", "crm"}
    assert two.endswith("# EOF\n")


def test_they_are_served_as_they_are_at_each_request() -> None:
    numbers = iter([7, 8])

    def read() -> Figures:
        seen = status(100, 70, cut_changes={"number": next(numbers)})
        return Figures(statuses=[seen], source_up={"shop": True})

    with serve_figures(read, "127.0.0.1", 0) as url:
        for number in (7, 8):
            request = Request(url, headers={"Accept": "application/openmetrics-text"})
            with urlopen(request, timeout=10) as answer:
                found = parsed(answer.read().decode())
            assert found["ticdc_cuts_total", (("changefeed", "shop"),)] == number
        with pytest.raises(HTTPError, match="500"):
            urlopen(url, timeout=10)
