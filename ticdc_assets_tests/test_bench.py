"""The benchmarks work: the same code as `make bench`, on very little and without Spark."""

import re
import time
from pathlib import Path

import pytest

from bench.conversions import TYPES, measure_conversions
from bench.decoding import measure_decoding
from bench.folding import changes_of, measure_folding, mirror_plans
from bench.measuring import cpu_seconds, measure, peak_megabytes
from bench.messages import Messages, load_messages
from bench.profiling import profile_decoding, profile_fold
from bench.results import BEGIN, END, Report, Result
from ticdc_assets.wire import WireFormat


@pytest.fixture(scope="module")
def messages() -> Messages:
    return load_messages(300)


@pytest.mark.parametrize("wire_format", WireFormat)
def test_messages_without_golden_ones_are_the_simulators(
    wire_format: WireFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICDC_GOLDEN", str(tmp_path))
    messages = load_messages(50, wire_format)
    assert messages.source == "the simulator"
    assert len(messages.records) == 50
    assert messages.rows > 0


def test_repeated_messages_have_offsets_of_their_own(messages: Messages) -> None:
    repeated = messages.repeated(3)
    places = {(item.partition, item.offset) for item in repeated.records}
    assert len(places) == len(repeated.records) == 3 * len(messages.records)


def test_all_row_changes_become_effects(messages: Messages) -> None:
    named = {plan.name for plan in mirror_plans(messages)}
    changes = changes_of(messages)
    assert set(changes) <= named
    rows = sum(batch.num_rows for batches in changes.values() for batch in batches)
    assert rows == messages.rows


def test_a_sample_says_how_often_and_how_long() -> None:
    calls: list[str] = []
    sample = measure(
        lambda: (calls.append("work"), time.sleep(0.002)),
        repetitions=3,
        warm_up=2,
        before=lambda: calls.append("before"),
    )
    assert calls == ["before", "work"] * 5
    assert len(sample.seconds) == 3
    assert 0.002 <= sample.least <= sample.median <= sample.most
    assert sample.cpu_seconds >= 0


def test_cpu_and_memory_grow_with_work() -> None:
    before = cpu_seconds()
    sum(number * number for number in range(300_000))
    assert cpu_seconds() > before
    assert peak_megabytes()[0] > 1


def test_what_needs_no_spark_is_measured_and_written(messages: Messages, tmp_path: Path) -> None:
    results = [
        *measure_decoding(messages, repetitions=1),
        *measure_folding(messages, repetitions=1),
        *measure_conversions(values=20, repetitions=1),
    ]
    decoders = 2 * len(WireFormat)
    assert len(results) == 1 + decoders + 1 + 2 * len(TYPES)
    assert all(result.sample.median > 0 for result in results)
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{BEGIN}\nof last time\n{END}\nafter\n", encoding="utf-8")
    Report(results=results, facts=["A fact."]).write(document)
    text = document.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "of last time" not in text
    assert "- A fact." in text
    for result in results:
        assert f"| {result.what} |" in text


def test_a_document_without_markers_is_left_alone(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("mine\n", encoding="utf-8")
    result = Result(section="s", what="w", sample=measure(lambda: None, repetitions=1))
    with pytest.raises(ValueError, match="lacks the markers"):
        Report(results=[result]).write(document)
    assert document.read_text(encoding="utf-8") == "mine\n"


def test_profiles_list_functions(messages: Messages) -> None:
    for text in (profile_decoding(messages), profile_fold(messages)):
        assert "function calls" in text
        assert re.search(r"\w+\.py:\d+\(\w+\)", text)


def test_the_document_has_the_markers(root: Path) -> None:
    text = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
