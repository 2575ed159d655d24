"""Gaps in topics of a real broker, by the command line: what says that there is one, and going on.

The command that accepts a gap and the sync after it run as programs; all else in this process.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.commands import Commands, Done, without_progress
from ticdc_assets_tests.e2e.topics import FEED, WrittenFeed

pytestmark = pytest.mark.kafka


@pytest.fixture
def feed(broker: OwnBroker, topic: str, tmp_path: Path) -> WrittenFeed:
    made = WrittenFeed.made(broker, topic, tmp_path)
    made.go_on()
    made.sync()
    return made


def told(
    feed: WrittenFeed, *words: object, code: int, by: Callable[..., Done] = Commands.here
) -> str:
    """Run a command and return all that it says, but for how far it is."""
    done = by(feed.commands, *words)
    said = done.stdout + "".join(f"{line}\n" for line in without_progress(done.stderr))
    assert done.returncode == code, said
    assert "Traceback" not in said
    return said


def caveats(feed: WrittenFeed) -> dict[str, list[str]]:
    """Return the caveats of each table that speak of lost records."""
    return {
        item["table"]: [caveat for caveat in item["caveats"] if "gone before" in caveat]
        for item in feed.commands.mirrors(FEED)
    }


def gaps(feed: WrittenFeed, code: int) -> list[dict[str, Any]]:
    """Return what `status --json` tells of gaps that stop landing."""
    result = feed.commands.run("status", FEED, "--json")
    assert result.exit_code == code, result.output
    (status,) = json.loads(result.stdout)
    return status["gaps"]


def test_going_on_after_records_have_expired(feed: WrittenFeed) -> None:
    assert gaps(feed, 0) == []
    position = feed.changefeed.next_offsets[1]
    feed.go_on()
    lost_until = feed.changefeed.next_offsets[1]
    feed.go_on()
    feed.broker.delete_records(feed.topic, {1: lost_until})
    command = f"ticdc-assets accept-gap {FEED} {feed.topic} 1"
    gap = f"gap in topic '{feed.topic}' partition 1: next offset to land is {position}"
    assert command in feed.refused()
    said = told(feed, "status", FEED, code=1)
    assert gap in said
    assert command in said
    assert f"a gap has stopped landing of {FEED}" in said
    (found,) = gaps(feed, 1)
    assert (found["partition"], found["landed"], found["available"]) == (1, position, lost_until)
    said = told(feed, "doctor", code=1)
    assert f"landing is stopped by a {gap}" in said
    assert command in said

    said = told(feed, "accept-gap", FEED, feed.topic, 1, code=0, by=Commands.program)
    assert f"accepted the loss of offsets {position} to {lost_until - 1} of topic" in said
    assert f"ticdc-assets sync {FEED}" in said
    said = told(feed, "accept-gap", FEED, feed.topic, 1, code=1)
    assert said.startswith(f"Error: there is no gap in topic '{feed.topic}' partition 1: ")
    assert len(said.splitlines()) == 1
    assert gaps(feed, 0) == []

    said = told(feed, "sync", FEED, code=0, by=Commands.program)
    assert "published: " in said
    landed = feed.landed()
    assert len(landed) == len(set(landed))
    assert {offset for number, offset in landed if number == 1} == {
        *range(position),
        *range(lost_until, feed.changefeed.next_offsets[1]),
    }
    assert feed.rows != feed.truth
    expected = f"offsets {position} to {lost_until - 1} of topic '{feed.topic}' partition 1"
    assert all(expected in text for texts in caveats(feed).values() for text in texts)
    assert {table: len(texts) for table, texts in caveats(feed).items()} == {
        "orders": 1,
        "customers": 1,
    }
    assert "accepted gap: offsets" in feed.commands.done("status", FEED)
    page = feed.commands.folder / "report.html"
    feed.commands.done("report", FEED, "--output", page)
    assert "Accepted gaps" in page.read_text()
    assert "ticdc_accepted_gaps{" in feed.commands.done("metrics", FEED)

    # TRUNCATE makes the table whole again, and ends the mark of it alone.
    feed.upstream.truncate_table(("shop", "orders"))
    feed.go_on()
    feed.sync()
    assert caveats(feed)["orders"] == []
    assert len(caveats(feed)["customers"]) == 1
    orders = {key: rows for key, rows in feed.truth.items() if key[1] == "orders"}
    assert {key: rows for key, rows in feed.rows.items() if key[1] == "orders"} == orders
