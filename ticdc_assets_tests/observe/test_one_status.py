"""One lake, one set of figures: whoever tells how a changefeed is tells the same.

Each case is a lake with something wrong. `status`, `tables`, `metrics`, the page of `report`, the
asset checks and the sensor look at it at one moment; their numbers and verdicts have to be equal,
and those that the case expects.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ticdc_assets.changelog.plan import LACKS_EARLIER
from ticdc_assets.config import load_settings
from ticdc_assets.delta.appending import write_table
from ticdc_assets.log.accepted_gaps import AcceptedGap, append_accepted
from ticdc_assets.log.cuts import ChangeAccount, Cut, FailedMirror, HeldRows, Mode, publish
from ticdc_assets.log.landing import _LANDINGS_SCHEMA as LANDINGS_SCHEMA
from ticdc_assets.observe.lag import LagPart
from ticdc_assets.observe.verdicts import Check, Level
from ticdc_assets.observe.wording import duration, iso
from ticdc_assets.orchestration.checks import judge_cheaply
from ticdc_assets.orchestration.sensors import tick
from ticdc_assets.orchestration.steps import steps_of
from ticdc_assets.orchestration.verdicts import commands_named
from ticdc_assets.source.capture import CaptureRecord, CaptureWriter
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.fresh import printed
from ticdc_assets_tests.observe.report.small_lake import (
    cut_of,
    mirror_of,
    write_groups,
    write_quarantine,
)
from ticdc_assets_tests.statuses import NOW, ago, at, held, write_tables

FEED = "shop"
LANDED = 10
ORDERS, VISITS = ("shop", "orders"), ("crm", "visits")


class Clock(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # pyright: ignore[reportIncompatibleMethodOverride]
        return NOW.astimezone(tz)


def waits(seconds: float, rows: int = 2, mirror_id: str | None = "1") -> HeldRows:
    database, table = VISITS if mirror_id is None else ORDERS
    more = {"database": database, "mirror_id": mirror_id, "rows": rows}
    return held(seconds, table, min_ts=at(seconds + 5), **more)


def failure(name: tuple[str, str], mirror_id: str, rows_at: float | None) -> FailedMirror:
    return FailedMirror(
        mirror_id=mirror_id,
        database=name[0],
        table=name[1],
        table_id=1,
        reason="No space left on device",
        since=ago(300),
        tso=None if rows_at is None else at(rows_at),
        waiting=7,
    )


UNACCOUNTED = ChangeAccount(
    database="crm",
    table="visits",
    read=3,
    applied=1,
    unaccounted=2,
    first_ts=at(60),
    examples=("topic/0/1/0",),
)

FAULTS: list[dict[str, Any]] = [
    {"offset": 3, "quarantined_at": ago(30)},
    *(
        {
            "offset": offset,
            "stage": "apply",
            "reason": "value_out_of_range",
            "database": "shop",
            "table": table,
            "commit_ts": at(seconds),
            "quarantined_at": ago(20),
        }
        # The last is of a table that is not mirrored, so nobody counts it.
        for offset, table, seconds in ((4, "orders", 400), (5, "orders", 200), (6, "draft", 90))
    ),
    {"offset": 7, "quarantined_at": ago(90), "redriven_at": ago(10)},
]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A lake, and what everybody has to say of it.

    Attributes:
        lag: seconds from the cut to now.
        watermark: seconds from the watermark that has landed to now.
        waits: records that wait in the source.
        landed: seconds from the newest landed record to now.
        orders: how the mirror of `shop.orders` differs from one that is well.
        cut: how the cut differs from one that is.
        faults: rows of the quarantine.
        accepted: whether a gap was accepted.
        gap: whether records are gone that were not landed.
        ended: whether nothing more comes.
        newest: seconds from the newest change to now, if it is not at the watermark.
        levels: what checks say, but for those that say ok.
        parts: seconds of the lag's parts, source to Kafka first.
        tables: of each table its lag in seconds, and its verdict.
    """

    lag: float = 8
    watermark: float = 8
    waits: int = 0
    landed: float = 8
    orders: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cut: Mapping[str, Any] = field(default_factory=dict[str, Any])
    faults: tuple[dict[str, Any], ...] = ()
    accepted: bool = False
    gap: bool = False
    ended: bool = False
    newest: float | None = None
    levels: Mapping[Check, str] = field(default_factory=dict[Check, str])
    parts: tuple[float, float, float] = (8, 0, 0)
    tables: Mapping[tuple[str, str], tuple[float, str]] = field(
        default_factory=lambda: {ORDERS: (8.0, "ok")}
    )


FINISHED = Case(lag=1000, watermark=1000, ended=True, parts=(0, 0, 0), tables={ORDERS: (0.0, "ok")})
"""A source that has ended, all of it applied, a while ago."""

CASES = {
    "all is well": Case(),
    "held shortly": Case(
        orders={"held": 2},
        cut={"held": (waits(49), waits(30, 3, None))},
        levels={Check.MIRRORS_COMPLETE: "warn"},
        tables={ORDERS: (54.0, "warn"), VISITS: (35.0, "warn")},
    ),
    "held up to the limit": Case(
        orders={"held": 2},
        cut={"held": (waits(600),)},
        levels={Check.MIRRORS_COMPLETE: "warn", Check.HELD_ROWS: "warn"},
        tables={ORDERS: (605.0, "warn")},
    ),
    "held for hours": Case(
        orders={"held": 2},
        cut={"held": (waits(7200),)},
        levels={Check.MIRRORS_COMPLETE: "warn", Check.HELD_ROWS: "fail"},
        tables={ORDERS: (7205.0, "warn")},
    ),
    "not accounted for": Case(
        cut={"accounts": (UNACCOUNTED,)},
        levels={Check.MIRRORS_COMPLETE: "fail", Check.CHANGES_ACCOUNTED: "fail"},
        tables={ORDERS: (8.0, "ok"), VISITS: (60.0, "fail")},
    ),
    "rows of before the changefeed": Case(
        orders={"caveats": [f"{LACKS_EARLIER}then may be missing: seed it"]},
        levels={Check.MIRRORS_COMPLETE: "warn"},
        tables={ORDERS: (8.0, "warn")},
    ),
    "in quarantine": Case(
        orders={"quarantined": 2},
        cut={"quarantined": 1},
        faults=tuple(FAULTS),
        levels={Check.MIRRORS_COMPLETE: "warn", Check.QUARANTINE_GROWTH: "warn"},
        tables={ORDERS: (400.0, "warn")},
    ),
    "a mirror that failed": Case(
        orders={"mode": Mode.FAILED},
        cut={"failed": (failure(ORDERS, "1", 950),)},
        levels={Check.MIRRORS_COMPLETE: "fail"},
        tables={ORDERS: (950.0, "fail")},
    ),
    "a mirror that was never made": Case(
        cut={"failed": (failure(VISITS, "9", None),)},
        levels={Check.MIRRORS_COMPLETE: "fail"},
        tables={ORDERS: (8.0, "ok"), VISITS: (300.0, "fail")},
    ),
    "landed and not applied": Case(
        lag=500,
        levels={Check.REPLICATION_LAG: "warn"},
        parts=(8, 0, 492),
        tables={ORDERS: (500.0, "ok")},
    ),
    "waiting in Kafka": Case(
        lag=1000,
        watermark=990,
        waits=4,
        landed=600,
        levels={Check.REPLICATION_LAG: "fail", Check.WATERMARK_PROGRESS: "ok"},
        parts=(390, 600, 10),
        tables={ORDERS: (1000.0, "ok")},
    ),
    "late in TiCDC": Case(
        lag=1000,
        watermark=1000,
        levels={Check.REPLICATION_LAG: "fail"},
        parts=(1000, 0, 0),
        tables={ORDERS: (1000.0, "ok")},
    ),
    "ahead of the clock": Case(
        lag=-60,
        watermark=-60,
        levels={Check.REPLICATION_LAG: "warn"},
        parts=(0, 0, 0),
        tables={ORDERS: (0.0, "ok")},
    ),
    "finished": FINISHED,
    "finished with rows held": replace(
        FINISHED,
        orders={"held": 2},
        cut={"held": (waits(7200),)},
        levels={Check.MIRRORS_COMPLETE: "warn", Check.HELD_ROWS: "warn"},
        tables={ORDERS: (6205.0, "warn")},
    ),
    "finished below changes": replace(
        FINISHED, newest=10, levels={Check.WATERMARK_PROGRESS: "warn"}
    ),
    "ended and not landed": Case(
        lag=1000,
        watermark=1000,
        waits=1,
        landed=1000,
        ended=True,
        levels={Check.REPLICATION_LAG: "fail"},
        parts=(0, 1000, 0),
        tables={ORDERS: (1000.0, "ok")},
    ),
    "ended and not applied": Case(
        lag=1000,
        ended=True,
        levels={Check.REPLICATION_LAG: "fail"},
        parts=(8, 0, 992),
        tables={ORDERS: (1000.0, "ok")},
    ),
    "a gap": Case(gap=True),
    "an accepted gap": Case(
        orders={"caveats": ["records are gone before they landed"]},
        accepted=True,
        levels={Check.MIRRORS_COMPLETE: "warn"},
        tables={ORDERS: (8.0, "warn")},
    ),
}


def cut(case: Case) -> Cut:
    orders = mirror_of(*ORDERS, **{"version": 0} | dict(case.orders))
    return cut_of(1, NOW, case.lag, **{"mirrors": (orders,)} | dict(case.cut))


def write_lake(commands: Commands, case: Case) -> LakePaths:
    """Write a lake without Spark, and the capture that is its source."""
    capture = commands.folder / "capture.jsonl"
    commands.add_capture(FEED, capture, tables={"exclude": ["shop.draft"]}, ended=case.ended)
    with CaptureWriter(capture) as writer:
        for offset in range(LANDED - 3 if case.gap else LANDED + case.waits):
            writer.append(
                CaptureRecord(
                    topic=FEED, partition=0, offset=offset, timestamp_ms=0, key=None, value=b"x"
                )
            )
    paths, made = commands.paths(FEED), cut(case)
    write_tables(paths, made.mirrors)
    write_table(
        paths.raw_messages,
        pa.schema([]).empty_table(),
        overwrite=False,
        metadata={"batch": 1, "next": [[FEED, 0, LANDED]]},
    )
    partition = {
        "topic": FEED,
        "partition": 0,
        "earliest": 0,
        "end": LANDED + case.waits,
        "landed": LANDED,
        "newest_ms": round(ago(case.landed).timestamp() * 1000),
    }
    landing = {"number": 1, "landed_at": ago(5), "batch": 1, "records": LANDED}
    write_table(
        paths.landings,
        pa.Table.from_pylist([landing | {"partitions": [partition]}], schema=LANDINGS_SCHEMA),
        overwrite=False,
        metadata={"number": 1},
    )
    write_table(
        paths.change_log,
        pa.schema([]).empty_table(),
        overwrite=False,
        metadata={"batch": 3, "landed": 1},
    )
    newest = None if case.newest is None else ago(case.newest)
    write_groups(paths, ago(case.watermark), [ORDERS], newest=newest)
    if case.faults:
        write_quarantine(paths, case.faults)
    publish(paths, made)
    if case.accepted:
        append_accepted(paths, ACCEPTED)
    return paths


ACCEPTED = AcceptedGap(
    number=0,
    topic=FEED,
    partition=0,
    from_offset=2,
    to_offset=4,
    cause="they expired",
    accepted_at=ago(100),
    accepted_by="somebody",
    after_ts=0,
    topic_id=None,
    offset_base=0,
)


# Surfaces ---------------------------------------------------------------------------------------


def plain(markup: str) -> list[str]:
    """Return the texts in some markup."""
    texts = (html.unescape(text).strip() for text in re.split("<[^>]+>", markup))
    return [text for text in texts if text]


def cards_of(page: str) -> dict[str, tuple[str, str, str]]:
    """Return the level, the value and the sentence of each card that is always there, by label."""
    found = re.findall(r'<dl class="card (\w+)">(.*?)</dl>', page, re.DOTALL)
    cards = [(level, plain(markup)) for level, markup in found]
    return {texts[0]: (level, texts[-2], texts[-1]) for level, texts in cards}


def rows_of(page: str) -> dict[tuple[str, ...], list[tuple[str, str]]]:
    """Return the key and the text of each cell of the table of tables, by the name of a table."""
    (table,) = re.findall('<table[^>]* aria-label="Tables">(.*?)</table>', page, re.DOTALL)
    cell = re.compile('<t[dh](?:[^>]* data-key="([^"]*)")?[^>]*>(.*?)</t[dh]>', re.DOTALL)
    rows = [
        [(key, " ".join(plain(markup))) for key, markup in cell.findall(row)]
        for row in table.split("<tr>")[2:]
    ]
    return {tuple(row[0][1].split(" . ")): row for row in rows}


PAGE_KEYS = {"0": "ok", "1": "warn", "2": "fail"}
CARDS = {
    "Replication lag": Check.REPLICATION_LAG,
    "Global watermark": Check.WATERMARK_PROGRESS,
    "Tables behind": Check.MIRRORS_COMPLETE,
    "Held rows": Check.HELD_ROWS,
    "Quarantine": Check.QUARANTINE_GROWTH,
}
LEVELS = {dg.AssetCheckSeverity.WARN: "warn", dg.AssetCheckSeverity.ERROR: "fail"}


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name.removeprefix("ticdc_"), sample.labels, sample.value


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.thorough
def test_everybody_tells_the_same(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("cli.looking", "observe.overview"):
        monkeypatch.setattr(f"ticdc_assets.{module}.datetime", Clock)
    commands = Commands(tmp_path)
    paths = write_lake(commands, case)

    # `status` tells all of it.
    result = commands.run("status", "--json")
    assert result.exit_code == (1 if case.gap else 0), result.output
    (told,) = json.loads(result.stdout)
    verdicts = told["verdicts"]
    expected = dict.fromkeys(Check, "ok") | dict(case.levels)
    assert {name: item["level"] for name, item in verdicts.items()} == expected
    is_finished = case.ended and not any(case.parts)
    end = f"finished at {ago(case.lag):%Y-%m-%d %H:%M:%S} UTC"
    assert told["finished_at"] == (iso(ago(case.lag)) if is_finished else None)
    text = commands.run("status").stdout
    assert (f"{FEED}: {end}; cut 1 at " in text) is is_finished
    assert (f"{end}: " in verdicts[Check.REPLICATION_LAG]["sentence"]) is is_finished
    lag_seconds = 0 if is_finished else max(0, case.lag)
    assert told["lag_seconds"] == lag_seconds == sum(case.parts)
    assert told["ahead_seconds"] == max(0, -case.lag)
    assert tuple(told["lag_parts_seconds"].values()) == case.parts
    tables = {(item["database"], item["table"]): item for item in told["tables"]}
    assert {
        name: (item["lag_seconds"], item["verdict"]["level"]) for name, item in tables.items()
    } == case.tables
    assert told["incomplete_tables"] == sum(not item["complete"] for item in tables.values())
    assert told["quarantined"] == (
        {"decode": 1, "apply": 2} if case.faults else {"decode": 0, "apply": 0}
    )
    assert told["waiting"] == 7 * told["failed_mirrors"] == 7 * len(case.cut.get("failed", ()))
    assert (len(told["gaps"]), len(told["accepted_gaps"])) == (case.gap, case.accepted)
    for name, item in verdicts.items():
        line = f"{FEED}: {item['level']}: {name}: {item['sentence']}\n"
        assert (line in text) is (item["level"] != "ok")

    # `tables`: what has a mirror, and what is known from rows only.
    listed = {(item["database"], item["table"]): item for item in commands.mirrors(FEED)}
    assert listed.keys() == tables.keys()
    for name, item in listed.items():
        assert item | tables[name] == item
        assert item["incomplete"] is not tables[name]["complete"]

    # `metrics`
    figures = list(samples(commands.done("metrics")))

    def values(name: str, *labels: str) -> dict[Any, float]:
        found = {
            tuple(given[label] for label in labels): value
            for sample, given, value in figures
            if sample == name
        }
        return {key[0] if len(key) == 1 else key: value for key, value in found.items()}

    levels = {"ok": 0, "warn": 1, "fail": 2}
    assert values("check_level", "check") == {
        name: levels[item["level"]] for name, item in verdicts.items()
    }
    assert values("replication_lag_part_seconds", "part") == told["lag_parts_seconds"]
    assert values("quarantine_open", "stage") == told["quarantined"]
    for metric, figure in (
        ("replication_lag_seconds", told["lag_seconds"]),
        ("finished", is_finished),
        ("held_rows", told["held"]),
        ("incomplete_tables", told["incomplete_tables"]),
        ("landing_gaps", len(told["gaps"])),
    ):
        assert values(metric) == {(): figure}, metric
    for metric, name in (
        ("table_lag_seconds", "lag_seconds"),
        ("table_held_rows", "held"),
        ("table_quarantined_rows", "quarantined"),
    ):
        assert values(metric, "database", "table") == {
            key: item[name] for key, item in tables.items()
        }
    assert values("table_level", "database", "table") == {
        key: levels[item["verdict"]["level"]] for key, item in tables.items()
    }

    # `report`: a card has its label, a sign with a word, its value and the sentence.
    output = tmp_path / "page.html"
    line = commands.done("report", "--output", output).splitlines()[0]
    page = output.read_text(encoding="utf-8")
    shown = cards_of(page)
    assert {label: (item[0], item[2]) for label, item in shown.items()} == {
        label: (verdicts[check]["level"], verdicts[check]["sentence"])
        for label, check in CARDS.items()
    }
    assert shown["Held rows"][1] == str(told["held"])
    assert shown["Quarantine"][1] == str(sum(told["quarantined"].values()))
    assert shown["Tables behind"][1] == f"{told['incomplete_tables']} of {len(tables)}"
    behind = f"{duration(-case.lag)} ahead" if case.lag < 0 else duration(case.lag)
    behind = end if is_finished else behind
    assert shown["Replication lag"][1] == behind
    assert f"replication lag: {behind}" in line
    worst = max(levels[item["level"]] for item in verdicts.values())
    assert line.startswith(f"{FEED}: {('ok', 'warn', 'fail')[worst]}: ")
    rows = rows_of(page)
    assert {
        name: (float(row[4][0] or -1), PAGE_KEYS[row[5][0]]) for name, row in rows.items()
    } == case.tables
    for name, row in rows.items():
        state, _, reasons = tables[name]["verdict"]["sentence"].partition(": ")
        assert state in row[5][1]
        assert reasons.replace(", ", "; ") in row[5][1].replace(", ", "; ")

    # Dagster: the checks of a run, and what the sensor keeps.
    monkeypatch.setenv("TICDC_CHANGEFEEDS", commands.env["TICDC_CHANGEFEEDS"])
    monkeypatch.setenv("TICDC_LAKE", commands.env["TICDC_LAKE"])
    settings = load_settings()
    steps = steps_of(settings, settings.changefeed(FEED))
    with dg.DagsterInstance.ephemeral() as instance:
        checked = {key.name: item for key, item in judge_cheaply(steps, instance, NOW).items()}
        with dg.build_sensor_context(instance=instance) as context:
            ticked = tick(context, steps, NOW)
    news = [it for it in ticked.asset_events if isinstance(it, dg.AssetCheckEvaluation)]
    assert checked.pop("lake_readable").level is Level.OK
    assert {
        name: {"level": item.level.word, "sentence": commands_named(item.sentence)}
        for name, item in checked.items()
    } == verdicts
    lag = checked[Check.REPLICATION_LAG].metadata
    assert lag["lag_seconds"] == told["lag_seconds"]
    assert ("finished_at" in lag) is is_finished
    assert tuple(lag[f"{part}_seconds"] for part in LagPart) == case.parts
    assert checked[Check.HELD_ROWS].metadata["held"] == told["held"]
    complete = checked[Check.MIRRORS_COMPLETE].metadata
    assert complete["incomplete"] == told["incomplete_tables"]
    assert complete["failed"] == told["failed_mirrors"]
    growth = checked[Check.QUARANTINE_GROWTH].metadata
    assert growth["open"] == sum(told["quarantined"].values())
    # A first verdict that passes is no news; the growth of the quarantine is not the sensor's.
    assert {event.check_name: LEVELS[event.severity] for event in news} == {
        name: level
        for name, level in expected.items()
        if level != "ok" and name != Check.QUARANTINE_GROWTH
    }
    assert paths.base.exists()


def test_the_limits_are_those_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_assets.cli.looking.datetime", Clock)
    commands = Commands(tmp_path)
    write_lake(commands, replace(CASES["held shortly"], lag=8))
    for limits, level in (({"held_warn_seconds": 40}, "warn"), ({"held_warn_seconds": 50}, "ok")):
        commands.set(FEED, checks=limits)
        (told,) = json.loads(commands.done("status", "--json"))
        assert told["verdicts"][Check.HELD_ROWS]["level"] == level


@pytest.mark.thorough
def test_figures_and_verdicts_need_neither_spark_nor_dagster() -> None:
    code = "import sys, ticdc_assets.observe.judging; print(*sys.modules)"
    imported = set(printed(code).split())
    assert "ticdc_assets.observe.status" in imported
    assert not imported & {"pyspark", "py4j", "delta", "dagster"}
