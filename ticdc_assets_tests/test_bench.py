"""The benchmarks work: the same code as `make bench`, on very little and without Spark."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.apart import apart
from bench.conversions import TYPES, measure_conversions
from bench.decoding import measure_decoding
from bench.folding import measure_folding
from bench.goals import TARGETS, Reached
from bench.measuring import Memory, Sample
from bench.messages import Messages, load_messages
from bench.parts import PARTS, Scale, run_part
from bench.plots import draw
from bench.results import (
    BEGIN,
    END,
    GOALS_PLOT,
    GROWTH_PLOT,
    SHARES_PLOT,
    Part,
    Report,
    Result,
    Run,
    Series,
    Shares,
    read_runs,
    write_runs,
)
from bench.traffic import TEXT_FORMATS
from ticdc_assets.wire import WireFormat

PLOTS = [GOALS_PLOT, GROWTH_PLOT, SHARES_PLOT]


def goals_like(*beginnings: str) -> list[str]:
    return [goal for goal in TARGETS if goal.startswith(beginnings)]


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


@pytest.mark.thorough
def test_what_needs_no_spark_is_measured_and_written(messages: Messages, tmp_path: Path) -> None:
    decoded = measure_decoding(messages, repetitions=1)
    assert [item.value for item in decoded.reached] == [pytest.approx(1.0, abs=0.1)]
    results = [
        *decoded.results,
        *measure_folding(messages, repetitions=1),
        *measure_conversions(values=20, repetitions=1),
    ]
    decoders = 3 * len(WireFormat)
    assert len(results) == decoders + 2 * len(TEXT_FORMATS) + 2 * len(TYPES)
    goals = {result.goal for result in results if result.goal is not None}
    assert goals == set(goals_like("decode-", "typed-"))
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


def test_runs_are_kept_and_drawn(tmp_path: Path) -> None:
    sample = Sample(seconds=(1.0, 2.0), cpu_seconds=1.5)
    run = run_of(
        Part(
            results=[Result("s", "w", sample, goal="nothing-new")],
            facts=["A fact."],
            reached=[Reached("memory-peak", 3.0)],
            series=[Series(plot="<p>", x="x", y="y", name="n", points=((1.0, 2.0), (9.0, 0.0)))],
            shares=[Shares(what="w", seconds=(("land", 1.0), ("apply", 0.0)))],
        )
    )
    kept = tmp_path / "kept.json"
    assert read_runs(kept) == []
    write_runs(kept, [run])
    report = Report(runs=read_runs(kept))
    assert report.markdown() == Report(runs=[run]).markdown()
    assert {item.goal for item in report.reached} == {"nothing-new", "memory-peak"}
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


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", PARTS)
def test_every_part_works_on_very_little(name: str, tmp_path: Path) -> None:
    run = apart(run_part, name, Scale(quick=True), tmp_path).result()
    assert run.part.results
    assert all(result.sample.median > 0 for result in run.part.results)
    found = {item.goal for item in Report(runs=[run]).reached}
    assert found >= GOALS_OF.get(name, set())


GOALS_OF = {
    "stage": {*goals_like("spark-")},
    "small": {"nothing-new", "small-sync", "small-sync-seen"},
    "differences": {*goals_like("shuffled-")},
    "growth": {"partitions"},
    "wide-rows": {"wide-rows"},
    "large": {"mirror-cpu", "mirror-merge", "mirror-bytes"},
    "catching-up": {"end-to-end", "memory-growth", "memory-peak"},
    "trickle": {
        *goals_like("trickle-"),
        *("first-batch", "own-process", "read-after-trickle"),
    },
    "sustained": {"sustained-p50", "sustained-p99"},
    "million-cold": {"million-cold", "rebuild"},
    "many-tables": {*goals_like("many-")},
}
