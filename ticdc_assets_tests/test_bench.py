"""The benchmarks work: the same code as `make bench`, on very little and without Spark."""

import math
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.apart import apart
from bench.conversions import TYPES, measure_conversions
from bench.decoding import SHUFFLED, measure_decoding
from bench.fitting import REACH, fitted
from bench.folding import changes_of, measure_folding, mirror_plans
from bench.goals import Goal, Reached
from bench.measuring import Memory, Sample
from bench.messages import Messages, load_messages
from bench.parts import PARTS, QUICK, run_part
from bench.pipeline import Feed, Shop
from bench.plots import draw
from bench.results import (
    BEGIN,
    CONSTANT,
    END,
    FASTER,
    GOALS_PLOT,
    GROWS,
    GROWTH_PLOT,
    SHARES_PLOT,
    SLOWER,
    Part,
    Report,
    Result,
    Run,
    Series,
    Shares,
    read_runs,
    write_runs,
)
from bench.stage import GOALS as STAGE_GOALS
from bench.sustained import seconds_until_cut
from bench.traffic import TEXT_FORMATS, Traffic, narrow, wide
from ticdc_assets.log.cuts import Cut, require_cut
from ticdc_assets.model.events import Image, Op, RowChange, Watermark
from ticdc_assets.spark.session import LazySession
from ticdc_assets.storage.lake_paths import FIRST_GENERATION
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record

PLOTS = [GOALS_PLOT, GROWTH_PLOT, SHARES_PLOT]


def run_of(part: Part) -> Run:
    return Run(
        name="all",
        part=part,
        seconds=60,
        memory=Memory(jvm=1, python=2),
        load=0.5,
        machine="A machine.",
    )


@pytest.fixture(scope="module")
def messages() -> Messages:
    return load_messages(300)


def test_all_row_changes_become_operations(messages: Messages) -> None:
    named = {plan.name for plan in mirror_plans(messages)}
    changes = changes_of(messages)
    assert set(changes) <= named
    rows = sum(batch.num_rows for batches in changes.values() for batch in batches)
    assert rows == messages.rows


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.3, 1.0, 2.0])
def test_the_power_of_a_cost_is_found(power: float) -> None:
    fit = fitted([(size, 3 * size**power) for size in (1, 10, 100, 1_000)], reach=math.inf)
    assert fit is not None
    assert fit.power == pytest.approx(power, abs=1e-9)
    assert (fit.least, fit.most) == (pytest.approx(1), 1_000)
    assert fit.at(50) == pytest.approx(3 * 50**power)


def test_a_fixed_cost_does_not_hide_growth() -> None:
    points = [(size, 100 + size) for size in (1, 10, 100, 1_000, 10_000)]
    near, all_of_them = fitted(points, reach=REACH), fitted(points, reach=math.inf)
    assert near is not None
    assert all_of_them is not None
    assert near.least == pytest.approx(1_000)
    assert near.power > 0.9 > 0.6 > all_of_them.power


def test_what_grows_is_told_beside_its_limit() -> None:
    def series(limit: float | None, power: float) -> Series:
        points = tuple((float(size), size**power) for size in (1, 10, 100))
        return Series(plot="p", x="rows", y="CPU", name="n", points=points, limit=limit)

    lines = [series(GROWS, 1.0).cells(), series(CONSTANT, 1.0).cells(), series(None, 1.0).cells()]
    assert lines == [
        ("p, n: CPU by rows", "10", "100", "1.00", "1.1", "yes"),
        ("p, n: CPU by rows", "1", "100", "1.00", "0.1", "no"),
        None,
    ]
    text = Report(runs=[run_of(Part(series=[series(GROWS, 1.2)]))]).markdown()
    assert "| p, n: CPU by rows | 10 | 100 | 1.20 | 1.1 | no |" in text


@pytest.mark.thorough
def test_what_needs_no_spark_is_measured_and_written(messages: Messages, tmp_path: Path) -> None:
    decoded = measure_decoding(messages, repetitions=1)
    report = Report(runs=[run_of(Part(reached=[i for i in decoded if isinstance(i, Reached)]))])
    assert [item.value for item in report.reached] == [pytest.approx(1.0, abs=0.1)]
    results = [
        *(item for item in decoded if isinstance(item, Result)),
        *measure_folding(messages, repetitions=1),
        *measure_conversions(values=20, repetitions=1),
    ]
    decoders = 3 * len(WireFormat)
    assert len(results) == decoders + 2 * len(TEXT_FORMATS) + 2 * len(TYPES)
    goals = {result.goal for result in results if result.goal is not None}
    assert goals == {goal for goal in Goal if goal.startswith(("decode-", "typed-"))}
    assert all(result.sample.median > 0 for result in results)
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{BEGIN}\nof last time\n{END}\nafter\n", encoding="utf-8")
    Report(runs=[run_of(Part(results=results, facts=["A fact."]))]).write(document)
    text = document.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "of last time" not in text
    assert "- A fact." in text
    for result in results:
        assert f"| {result.what} |" in text


def test_a_result_says_of_its_goal_what_the_target_asks_for() -> None:
    sample = Sample(seconds=(2.0, 4.0, 6.0), cpu_seconds=1.0)
    base = Sample(seconds=(8.0,), cpu_seconds=3.0)

    def reached(goal: Goal, compared: str) -> float:
        result = Result(
            section="s", what="w", sample=sample, count=8, base=base, compared=compared, goal=goal
        )
        found = result.reached()
        assert found is not None
        return found.value

    assert reached(Goal.DECODE_SIMPLE_JSON, FASTER) == 3.0
    assert reached(Goal.SPARK_CRAFT, FASTER) == 2.0
    assert reached(Goal.MIRROR_CPU, SLOWER) == pytest.approx(1 / 3)
    assert reached(Goal.END_TO_END, "") == 2.0
    assert reached(Goal.SMALL_SYNC, "") == 4.0
    assert reached(Goal.FIRST_BATCH, "") == 1.0
    with pytest.raises(ValueError, match="no time of a piece of work"):
        reached(Goal.CRAFT_BYTES, "")


@pytest.mark.parametrize("wire_format", TEXT_FORMATS)
@pytest.mark.thorough
def test_traffic_has_changes_of_rows_that_are_there(wire_format: WireFormat) -> None:
    require_rows_that_are_there(
        Traffic(shapes=[narrow(), wide()], partitions=3, wire_format=wire_format)
    )


def require_rows_that_are_there(traffic: Traffic) -> list[Image]:
    """Check 2,000 changes and return the images of new and changed rows."""
    wire_format = traffic.wire_format
    ops: Counter[Op] = Counter()
    images: list[Image] = []
    rows: dict[str, set[object]] = {name: set() for name in traffic.live}
    stamps: list[int] = []
    offsets = {item.partition: item.offset for item in traffic.opening}
    for record in traffic.changes(2_000):
        assert record.offset == offsets[record.partition] + 1
        offsets[record.partition] = record.offset
        for event in decode(wire_format, Record(key=record.key, value=record.value)):
            if isinstance(event, Watermark):
                assert event.watermark_ts >= max(stamps)
            if not isinstance(event, RowChange):
                continue
            ops[event.op] += 1
            stamps.append(event.commit_ts)
            image = event.before if event.after is None else event.after
            assert image is not None
            key = image["id"]
            assert (key in rows[event.table]) == (event.op is not Op.INSERT)
            if event.after is not None:
                images.append(event.after)
            if event.op is Op.INSERT:
                rows[event.table].add(key)
            if event.op is Op.DELETE:
                rows[event.table].remove(key)
    assert stamps == sorted(stamps)
    assert ops[Op.INSERT] == pytest.approx(1_400, abs=30)
    assert ops[Op.UPDATE] == pytest.approx(400, abs=30)
    assert {name: len(found) for name, found in rows.items()} == traffic.live
    return images


def test_waits_are_from_a_change_to_the_first_cut_that_has_it() -> None:
    def cut(ms: int, published_ms: int) -> Cut:
        return Cut(
            generation=FIRST_GENERATION,
            number=ms,
            tso=ms << 18,
            published_at=datetime.fromtimestamp(published_ms / 1_000, UTC),
            batch=1,
            mirrors=(),
            held=(),
            quarantined=0,
            replays=0,
            late=0,
            steps_back=0,
            ignored={},
        )

    cuts = [cut(1_000, 1_500), cut(2_000, 3_000)]
    assert seconds_until_cut(cuts, [900 << 18, 1_000 << 18, 1_001 << 18]) == pytest.approx(
        [0.6, 0.5, 1.999]
    )
    (waiting,) = seconds_until_cut(cuts, [int(time.time() * 1_000 - 500) << 18])
    assert waiting >= 0.5


def test_runs_are_kept_and_drawn(tmp_path: Path) -> None:
    sample = Sample(seconds=(1.0, 2.0), cpu_seconds=1.5)
    run = run_of(
        Part(
            results=[Result(section="s", what="w", sample=sample, goal=Goal.NOTHING_NEW)],
            facts=["A fact."],
            reached=[Reached(goal=Goal.MEMORY_PEAK, value=3.0)],
            series=[Series(plot="<p>", x="x", y="y", name="n", points=((1.0, 2.0), (9.0, 0.0)))],
            shares=[Shares(what="w", seconds=(("land", 1.0), ("apply", 0.0)))],
        )
    )
    kept = tmp_path / "kept.json"
    assert read_runs(kept) == []
    write_runs(kept, [run])
    report = Report(runs=read_runs(kept))
    assert report.markdown() == Report(runs=[run]).markdown()
    assert {item.goal for item in report.reached} == {Goal.NOTHING_NEW, Goal.MEMORY_PEAK}
    drawn = draw(report, tmp_path / "images")
    assert [path.name for path in drawn] == PLOTS
    for path in drawn:
        assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert path.stat().st_size < 60_000


def test_what_is_kept_and_the_document_agree(root: Path) -> None:
    text = (root / "bench" / "figures.md").read_text(encoding="utf-8")
    page = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    kept = read_runs(root / "bench" / "measured.json")
    if not kept:
        pytest.skip("nothing is kept yet")
    assert Report(runs=kept).markdown() in text
    for name in PLOTS:
        assert (root / "docs" / "images" / name).is_file()
        assert f"../docs/images/{name}" in text
        assert f"images/{name}" in page


def test_a_lake_of_the_bench_is_synced(tmp_path: Path) -> None:
    shop = Shop.open(Feed.of(LazySession(), tmp_path), tables=2, rows=10)
    shop.feed.sync()
    assert [mirror.rows for mirror in require_cut(shop.feed.paths).mirrors] == [10, 10]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", PARTS)
def test_every_part_works_on_very_little(name: str, tmp_path: Path) -> None:
    run = apart(run_part, name, QUICK, tmp_path).result()
    assert run.part.results
    assert all(result.sample.median > 0 for result in run.part.results)
    found = {item.goal for item in Report(runs=[run]).reached}
    assert found >= GOALS_OF.get(name, set())


GOALS_OF = {
    "stage": set(STAGE_GOALS.values()),
    "small": {Goal.NOTHING_NEW, Goal.SMALL_SYNC, Goal.SMALL_SYNC_SEEN},
    "differences": set(SHUFFLED.values()),
    "growth": {Goal.PARTITIONS},
    "wide-rows": {Goal.WIDE_ROWS},
    "large": {Goal.MIRROR_CPU, Goal.MIRROR_MERGE, Goal.MIRROR_BYTES},
    "catching-up": {Goal.END_TO_END, Goal.MEMORY_GROWTH, Goal.MEMORY_PEAK},
    "trickle": {
        *(goal for goal in Goal if goal.startswith("trickle-")),
        *(Goal.FIRST_BATCH, Goal.OWN_PROCESS, Goal.READ_AFTER_TRICKLE),
    },
    "sustained": {Goal.SUSTAINED_P50, Goal.SUSTAINED_P99},
    "million-cold": {Goal.MILLION_COLD, Goal.REBUILD},
    "many-tables": {goal for goal in Goal if goal.startswith("many-")},
}
