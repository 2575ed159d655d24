"""Messages that are too large: cut to the handle key, or whole in a folder of claim checks."""

import base64
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from ticdc_assets.config import ClaimCheck
from ticdc_assets.demo.simulator.commits import CommittedTransaction
from ticdc_assets.demo.simulator.shop import ShopOptions, ShopWorkload
from ticdc_assets.demo.simulator.stored_table import Key, TableName
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import Event, Op, RowChange
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.source.claim_check import ClaimCheckStore
from ticdc_assets_tests.demo.simulator.builders import keyless_upstream
from ticdc_assets_tests.demo.simulator.large_messages import RECORD_OVERHEAD, LargeMessages
from ticdc_assets_tests.demo.simulator.odd_changefeed import OddFeedOptions
from ticdc_assets_tests.demo.simulator.variants import VARIANTS, Variant

ZONE = "Asia/Shanghai"

# Such that some rows of each format are large and some are not.
LIMITS = {
    "simple-json": 540,
    "simple-json-checksums-lz4": 540,
    "simple-avro": 380,
    "open-protocol": 950,
    "open-protocol-cut-lz4": 500,
    "canal-json": 950,
    "canal-json-compatible": 620,
    "canal-json-cut-lz4": 620,
}
RAW = [name for name, variant in VARIANTS.items() if name in LIMITS and "open" not in name]


def shop(steps: int = 150) -> Upstream:
    upstream = Upstream(timezone=ZONE)
    for _ in ShopWorkload(upstream, 5, options=ShopOptions(steps_per_ddl=6)).steps(steps):
        pass
    return upstream


def sent(
    variant: Variant, upstream: Upstream, options: LargeMessages, *, seed: int = 0
) -> tuple[list[tuple[Coordinates, Event]], int]:
    """Return the events, and the watermark at which all of them are there."""
    changefeed = variant.changefeed(upstream, OddFeedOptions(large_messages=options), seed=seed)
    records = list(changefeed.tick())
    for record in records:
        events = variant.events([record])
        size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD
        assert size <= options.max_message_bytes or not isinstance(events[0][1], RowChange)
    return variant.events(records), changefeed.watermark_ts


@pytest.mark.parametrize(
    ("name", "raw_value"),
    [
        # By day each with files of one kind: of bare values where it has these.
        *(
            pytest.param(name, False, marks=pytest.mark.slow if name in RAW else ())
            for name in LIMITS
        ),
        *((name, True) for name in RAW),
    ],
)
@pytest.mark.thorough
def test_claim_checks_complete_the_truth(name: str, raw_value: bool, tmp_path: Path) -> None:
    variant, upstream = VARIANTS[name], shop()
    folder = tmp_path / "claim checks é"
    large = LargeMessages(max_message_bytes=LIMITS[name], claim_check=folder, raw_value=raw_value)
    events, at = sent(variant, upstream, large)
    cited = [
        event.claim_check_location
        for _, event in events
        if isinstance(event, RowChange) and event.claim_check_location is not None
    ]
    rows = sum(isinstance(event, RowChange) for _, event in events)
    assert 10 < len(cited) < rows - 100
    assert {folder / location.rpartition("/")[2] for location in cited} == set(folder.iterdir())
    assert all(location.startswith(folder.as_uri() + "/") for location in cited)
    store = ClaimCheckStore(
        ClaimCheck(location=str(folder), raw_value=raw_value),
        variant.wire_format,
        variant.compression,
    )
    whole = [
        (place, whole_event)
        for place, event in events
        for whole_event in (
            store.fetch(event.claim_check_location)
            if isinstance(event, RowChange) and event.claim_check_location is not None
            else [event]
        )
    ]
    changefeed = variant.changefeed(upstream)
    assert variant.folded(whole, at, ZONE) == variant.wanted(changefeed, at)


def test_files_are_named_by_the_seed_and_hold_what_ticdc_writes(tmp_path: Path) -> None:
    upstream = shop(40)
    names: dict[int, list[str]] = defaultdict(list)
    for number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(number)
        large = LargeMessages(max_message_bytes=1000, claim_check=folder)
        sent(VARIANTS["open-protocol"], upstream, large, seed=seed)
        names[number] = sorted(path.name for path in folder.iterdir())
    assert names[0] == names[1] != names[2]
    for path in (tmp_path / "0").iterdir():
        file = json.loads(path.read_bytes())
        assert list(file) == ["key", "value"]
        assert base64.b64decode(file["key"])[:8] == (1).to_bytes(8)
        assert len(base64.b64decode(file["value"])) > 400


def changed(upstream: Upstream) -> dict[tuple[TableName, int], set[Key]]:
    """Return the keys of the rows that each commit put."""
    result: dict[tuple[TableName, int], set[Key]] = defaultdict(set)
    for commit in upstream.history:
        for row in commit.rows if isinstance(commit, CommittedTransaction) else ():
            if row.after is not None:
                result[(row.schema.database, row.schema.table), commit.commit_ts].add(row.key)
    return result


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.thorough
def test_rows_cut_to_their_handle_key_are_there_and_marked(name: str) -> None:
    variant, upstream = VARIANTS[name], shop()
    events, at = sent(variant, upstream, LargeMessages(max_message_bytes=LIMITS[name]))
    tables = variant.tables(events, at, ZONE)
    truth = upstream.truth(at)
    assert all(not table.quarantined for table in tables.values())
    cut = {
        ((event.database, event.table), event.commit_ts)
        for _, event in events
        if isinstance(event, RowChange) and event.handle_key_only
    }
    marked = {table.plan.name for table in tables.values() if table.plan.caveats}
    names = {name for name, ts in cut if name in tables and ts > tables[name].plan.floor_ts}
    assert names <= marked
    assert names
    # What was last sent whole is as upstream; for the others only their keys are told.
    last_whole: dict[TableName, dict[Key, bool]] = defaultdict(dict)
    for (table, commit_ts), keys in sorted(changed(upstream).items(), key=lambda item: item[0][1]):
        for key in keys:
            last_whole[table][key] = (table, commit_ts) not in cut
    compared = 0
    for table, rows in truth.items():
        folded = tables[table]
        handle_key = folded.plan.schema.handle_key
        found = {tuple(row[part] for part in handle_key): row for row in folded.listed()}
        assert set(found) == set(rows)
        for key, row in rows.items():
            if last_whole[table].get(key):
                assert found[key] == row
                compared += 1
    assert compared > 60
    assert len(cut) > 10


def test_an_update_cut_in_open_protocol_is_an_insert_when_only_changes_are_sent() -> None:
    variant = VARIANTS["open-protocol-cut-lz4"]
    events, _ = sent(variant, shop(), LargeMessages(max_message_bytes=520))
    cut = [e for _, e in events if isinstance(e, RowChange) and e.handle_key_only]
    assert {row.op for row in cut} <= {Op.INSERT, Op.DELETE}
    assert {row.op for _, row in events if isinstance(row, RowChange)} == set(Op) - {Op.SNAPSHOT}


@pytest.mark.parametrize(
    "build", [lambda: shop(5), lambda: keyless_upstream(rows=1)], ids=["key", "no key"]
)
def test_what_is_too_large_even_when_cut_is_refused(build: Callable[[], Upstream]) -> None:
    options = OddFeedOptions(
        force_replicate=True, large_messages=LargeMessages(max_message_bytes=150)
    )
    changefeed = VARIANTS["simple-json"].changefeed(build(), options)
    with pytest.raises(ValueError, match="too large even as its handle key"):
        list(changefeed.tick())
