"""Mirrors beside an export of the upstream."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ticdc_assets.base.errors import (
    ConfigError,
    NotFoundError,
    PrerequisiteError,
    StoreUnavailableError,
)
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.mirrors.mirror_making import MirrorMaker
from ticdc_assets.model.tso import from_datetime
from ticdc_assets.repair import diffing
from ticdc_assets.repair.comparing import RowFinding
from ticdc_assets.repair.diffing import SourceDifference, diff
from ticdc_assets.storage.paths import names_in
from ticdc_assets_tests.demo.simulator.builders import plain_upstream
from ticdc_assets_tests.lake.feeds import Feed
from ticdc_assets_tests.lake.killing import raising

pytestmark = pytest.mark.spark


def test_a_shop_equals_its_export(tmp_path: Path, feed: Feed) -> None:
    upstream = Upstream(timezone="UTC")
    workload = ShopWorkload(upstream, 5)
    for _ in workload.steps(40):
        pass
    export_upstream(upstream, tmp_path / "export", file_type="sql")
    for _ in workload.steps(20):
        pass
    feed.write(StandInChangefeed(upstream, "topic").tick())
    feed.sync()
    before = feed.rows()
    found = diff(feed.lake, str(tmp_path / "export"))
    assert found.equal, found.tables
    assert {(item.database, item.table) for item in found.tables} >= {("shop", "orders")}
    assert feed.rows() == before
    assert names_in(feed.paths.generations) == [feed.paths.generation]


def test_what_differs_is_told_by_key_and_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: Feed
) -> None:
    upstream = plain_upstream(("d", "keyed"), ("d", "same"), bags=[("d", "bag")], rows=20)
    at = export_upstream(upstream, tmp_path / "export")
    feed.write(
        StandInChangefeed(upstream, "topic", options=FeedOptions(force_replicate=True)).tick()
    )
    with pytest.raises(NotFoundError, match="has no published cut yet"):
        diff(feed.lake, str(tmp_path / "export"))
    feed.sync()
    with monkeypatch.context() as patch:
        # The moment is refused before the export is landed.
        patch.delattr(diffing, "seed")
        metadata = (tmp_path / "export" / "metadata").rename(tmp_path / "metadata")
        for tso in (1, feed.cut.tso + 1):
            with pytest.raises(NotFoundError):
                diff(feed.lake, str(tmp_path / "export"), tso=tso)
        then = from_datetime(datetime.now(UTC) + timedelta(days=9))
        with pytest.raises(ConfigError, match="check --tso, or the clock"):
            diff(feed.lake, str(tmp_path / "export"), tso=then)
        metadata.rename(tmp_path / "export" / "metadata")
    with monkeypatch.context() as patch:
        away = StoreUnavailableError("s3://lake", "it does not answer")
        patch.setattr(diffing, "_compared_table", raising(away))
        with pytest.raises(StoreUnavailableError):
            compared(feed, tmp_path)
    for reason, failure in (
        (OSError(28, "No space left on device"), PrerequisiteError),
        (RuntimeError("it breaks"), None),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(MirrorMaker, "_make_mirror", raising(reason))
            if failure is not None:
                with pytest.raises(failure, match="no space is left on the device of"):
                    compared(feed, tmp_path)
            else:
                sentences = {item.sentence for item in compared(feed, tmp_path).tables}
                assert sentences == {"not compared: the export's rows: RuntimeError: it breaks"}
    assert compared(feed, tmp_path).equal
    path = tmp_path / "export" / "d.keyed.000000000.csv"
    header, first, second, *others = path.read_bytes().split(b"\r\n")
    changed = second.split(b",")[0] + b',"changed"'
    added = b'-5,"added"'
    # A line that is no row, and a row whose value does not fit.
    unread = b"no row", b'seven,"text"'
    path.write_bytes(b"\r\n".join([header, changed, added, *unread, *others]))
    bag = tmp_path / "export" / "d.bag.000000000.csv"
    rows = bag.read_bytes().split(b"\r\n")
    bag.write_bytes(b"\r\n".join([*rows[:-2], rows[1], b""]))
    found = compared(feed, tmp_path)
    assert found.tso == at
    by_name = {item.table: item for item in found.tables}
    assert by_name["same"].equal
    keyed = by_name["keyed"]
    assert (keyed.counts.changed, keyed.counts.missing, keyed.counts.too_many) == (1, 1, 1)
    assert keyed.unread == 2
    assert keyed.sentence == (
        "1 row differs; 1 row is missing in the mirror; 1 row is extra in the mirror; "
        "2 rows of the export cannot be read"
    )
    alone = replace(found, tables=(keyed,))
    assert alone.summary.startswith("1 of 1 mirror differs from the export at ")
    findings = {item.finding: item for item in keyed.examples}
    assert findings[RowFinding.CHANGED].key == {"id": second.split(b",")[0].decode()}
    (cell,) = findings[RowFinding.CHANGED].columns
    assert (cell.name, cell.rebuilt) == ("v", "changed")
    assert findings[RowFinding.MISSING].key == {"id": "-5"}
    assert findings[RowFinding.TOO_MANY].key == {"id": first.split(b",")[0].decode()}
    assert by_name["bag"].counts.total == 2
    assert "_ticdc_commit_ts" not in str(by_name["bag"].examples)
    # The rows of a file that cannot be read are not rows that the mirror has too many.
    bag.with_name(f"{bag.name}.gz").write_bytes(b"not zipped")
    bag.unlink()
    by_name = {item.table: item for item in compared(feed, tmp_path).tables}
    assert by_name["bag"].sentence.startswith(f"not compared: file {bag.name}.gz: the file cannot")
    assert by_name["same"].equal
    shutil.rmtree(tmp_path / "export")
    with pytest.raises(NotFoundError, match="there is no folder"):
        compared(feed, tmp_path)


def compared(feed: Feed, folder: Path) -> SourceDifference:
    return diff(feed.lake, str(folder / "export"))
