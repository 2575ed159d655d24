"""Which worker gets which file of tests."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ticdc_assets_tests.scheduling import OneOwner, Sharing, sharing_of

SHARING = "def test_it(tmp_path, spark: SparkSession) -> None: ...\n"
OTHER = "def test_it(tmp_path: Path) -> None: ...  # without spark\n"


class Worker:
    """A worker that notes the tests that it is given."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.tests: list[str] = []
        self.shutting_down = False
        self.gateway = SimpleNamespace(id=str(id(self)))

    def send_runtest_some(self, indices: list[int]) -> None:
        self.files += [self.tests[index].partition("::")[0] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(folder: Path, files: dict[str, str]) -> tuple[OneOwner, list[Worker]]:
    """Write files of one test each, and hand them out to two workers until none is left."""
    tests: list[str] = []
    for name, text in files.items():
        (folder / name).write_text(text)
        tests.append(f"{name}::test_it")
    config: Any = SimpleNamespace(
        rootpath=folder,
        option=SimpleNamespace(tx=["2*popen"], loadscopereorder=False),
        getvalue=lambda name: {"tx": ["2*popen"]}[name],
    )
    scheduler = OneOwner(config)
    workers = [Worker(), Worker()]
    for worker in workers:
        worker.tests = tests
        scheduler.add_node(worker)  # pyright: ignore[reportArgumentType]
        scheduler.add_node_collection(worker, tests)  # pyright: ignore[reportArgumentType]
    scheduler.schedule()
    return scheduler, workers


def finish(scheduler: OneOwner, worker: Worker) -> None:
    """Let a worker finish all that it was given; it gets more then."""
    done = 0
    while done < len(worker.files):
        number = worker.tests.index(f"{worker.files[done]}::test_it")
        scheduler.mark_test_complete(worker, number)  # pyright: ignore[reportArgumentType]
        done += 1


@pytest.mark.parametrize("quick", [0, 1], ids=["owner", "other"])
def test_the_first_worker_has_spark_until_another_has_nothing_else(
    tmp_path: Path, quick: int
) -> None:
    files = {
        f"test_{kind}{number}.py": text
        for number in range(6)
        for kind, text in (("jvm", SHARING), ("other", OTHER))
    }
    scheduler, workers = scheduled(tmp_path, files)
    finish(scheduler, workers[quick])
    finish(scheduler, workers[1 - quick])
    given = [worker.files for worker in workers]
    assert sorted(given[0] + given[1]) == sorted(files), "each file once"
    first = [name.removeprefix("test_")[:3] for name in given[quick]]
    own, others = ("jvm", "oth") if quick == 0 else ("oth", "jvm")
    assert first == sorted(first, key=(own, others).index), "its own kind first"
    assert others in first, "then it helps"
    assert {name.removeprefix("test_")[:3] for name in given[1 - quick]} == {others}


def test_lakes_of_the_run_come_first_and_stay_with_their_worker(tmp_path: Path) -> None:
    lakes = "def test_it(golden_lakes: GoldenLakes) -> None: ...\n"
    files = {"test_other.py": OTHER, "test_spark.py": SHARING, "test_lakes.py": lakes}
    files |= {f"test_more{number}.py": SHARING for number in range(3)}
    scheduler, (owner, other) = scheduled(tmp_path, files)
    assert owner.files[0] == "test_lakes.py"
    assert other.files[0] == "test_other.py"
    finish(scheduler, other)
    assert sorted(owner.files + other.files) == sorted(files)


def test_files_that_share_are_known_by_their_parameters(root: Path) -> None:
    tests = root / "ticdc_assets_tests"
    for sharing, names in {
        Sharing.LAKES: ("reading/test_embedded.py", "lake/test_golden_mirrors.py"),
        Sharing.SPARK: ("lake/test_killed_runs.py", "lake/test_golden_options.py"),
        Sharing.NOTHING: ("wire/test_batch.py", "e2e/test_gaps.py", "e2e/test_demo.py"),
    }.items():
        for name in names:
            assert sharing_of(tests / name) is sharing, name
