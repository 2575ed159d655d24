"""Many landed messages: what a sync of few changes costs behind them, and a look at where it is.

In: how many messages are to be landed and decoded. Out: the CPU seconds of a sync of a few changes
behind so many, of the status, and of a plan. None of these should follow the number.

A part of the messages comes from Kafka by a sync. The others are copies of the files that it left
in `raw_messages` and `change_log`, each with its own statistics, committed batch after batch as
landing and decoding would have done. Nothing reads their rows again: they are below the cut.
"""

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.filling import local_broker
from bench.growth import grown
from bench.measuring import Sample, measure
from bench.pipeline import Feed
from bench.results import CONSTANT, Part
from bench.traffic import Traffic, narrow
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.delta.files import WrittenFile
from ticdc_assets.log.change_files import CHANGE_LOG_SCHEMA
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.log.landing_files import RAW_SCHEMA
from ticdc_assets.mirrors.validity import Knowledge
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.source.kafka.records import produce

_COPIES = 5
"""The smallest number of messages is landed by a sync and so many commits, it included."""


def measure_landed(
    spark: SparkSession, folder: Path, sizes: Sequence[int], *, changes: int, repetitions: int
) -> Part:
    """Return what a sync, the status and a plan cost by the number of landed messages."""
    samples: dict[str, list[tuple[int, Sample]]] = {"sync": [], "status": [], "plan": []}
    with local_broker(folder / "broker") as broker:
        traffic = Traffic(shapes=[narrow()] * 4, topic="landed")
        source = broker.source("landed")
        broker.create_topic("landed", traffic.partitions)
        feed = Feed.of(spark, folder / "feed", source=source)
        once = sizes[0] // _COPIES
        produce(source, traffic.opening)
        produce(source, traffic.changes(once))
        feed.sync()
        raw, log = (Path(str(table)) for table in (feed.paths.raw_messages, feed.paths.change_log))
        tables = [(raw, RAW_SCHEMA, _files(raw)), (log, CHANGE_LOG_SCHEMA, _files(log))]

        def more() -> None:
            produce(source, traffic.changes(changes))

        def sync() -> None:
            more()
            feed.sync()

        def status() -> None:
            read_status(feed.lake, datetime.now(UTC))

        def plan() -> None:
            known = Knowledge.of(feed.paths, feed.changefeed.timezone)
            known.plan(require_cut(feed.paths).tso)

        copies = 1
        for size in sizes:
            for table, schema, files in tables:
                for number in range(copies, size // once):
                    _append_copies(table, schema, files, number)
            copies = size // once
            measured = measure(feed.sync, repetitions=repetitions, before=more)
            samples["sync"].append((size, measured))
            # What is known of a version is kept: each look follows a sync.
            for name, look in (("status", status), ("plan", plan)):
                samples[name].append((size, measure(look, repetitions=repetitions, before=sync)))
    shutil.rmtree(folder)
    what = {
        "sync": f"a sync of {changes:,} changes",
        "status": "the status",
        "plan": "a plan of all mirrors",
    }
    parts = [
        grown(
            found,
            plot="After landed messages",
            x="landed messages",
            limit=CONSTANT,
            what=lambda size, name=name: f"{what[name]} after {size:,} landed messages",
            name=name,
        )
        for name, found in samples.items()
    ]
    return Part.joined(parts)


def _files(table: Path) -> list[WrittenFile]:
    """Return the files that the commits of a table named."""
    found: list[WrittenFile] = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_bytes().splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                found.append(
                    WrittenFile(
                        path=added["path"],
                        size=added["size"],
                        rows=json.loads(added["stats"])["numRecords"],
                        partition=added["partitionValues"],
                        modified_ms=added["modificationTime"],
                        stats=added["stats"],
                    )
                )
    return found


def _append_copies(
    table: Path, schema: pa.Schema, files: Sequence[WrittenFile], number: int
) -> None:
    """Append copies of files in a commit that leaves positions as they are."""
    copies: list[WrittenFile] = []
    for file in files:
        path = str(Path(file.path).with_name(f"part-{uuid.uuid4()}.parquet"))
        # The same bytes under another name take no room.
        os.link(table / file.path, table / path)
        copies.append(replace(file, path=path))
    append_files(
        table,
        copies,
        schema,
        app_id="bench",
        version=number,
        metadata=commit_metadata(table),
        layout=BY_LANDING_DAY,
    )
