"""A lake that is broken for real: each command says so in a sentence, and its repair works.

One small lake is synced twice; each test breaks a copy of it, and some let more rows come. Two of
them sync and rebuild by a program of its own, as a user does; all other commands run here.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.config import Settings, load_settings
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.log.damage import damage_told, find_damage
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.checks import readable_key
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets_tests.commands import Commands, Done
from ticdc_assets_tests.lake.places import named_table
from ticdc_assets_tests.mirrors.test_damaged_mirrors import (
    commits,
    empty_log,
    lose_file,
    tear_file,
)
from ticdc_assets_tests.orchestration.small_shop import ODD, ORDERS, SmallShop

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with a lake of two cuts, and the rows of its mirrors."""
    folder = tmp_path_factory.mktemp("damage")
    shop, commands = SmallShop(folder), Commands(folder)
    shop.create_tables()
    for _ in range(2):
        shop.insert(ORDERS, 3)
        shop.insert(ODD, 2)
        shop.send()
        commands.done("sync", "shop")
    rows = sorted(commands.done("dump", "shop").splitlines())
    assert len(rows) == 10
    there = shop.capture.read_bytes()
    shop.insert(ORDERS, 1)
    with shop.upstream.transaction() as transaction:
        transaction.update(
            ORDERS, next(iter(shop.upstream.rows(ORDERS))), changes={"price": "1.00"}
        )
    shop.send()
    (folder / LATER).write_bytes(shop.capture.read_bytes()[len(there) :])
    shop.capture.write_bytes(there)
    return folder, rows


LATER = "later.jsonl"
"""One more row of orders, and another price of the first one."""


def is_later(found: list[str], rows: list[str]) -> bool:
    """Whether found rows are those of before with what came later."""
    return (len(found), len({*rows} - {*found})) == (11, 1)


def send_later(commands: Commands) -> None:
    with (commands.folder / "messages.jsonl").open("ab") as capture:
        capture.write((commands.folder / LATER).read_bytes())


@pytest.fixture
def lake(synced: tuple[Path, list[str]], tmp_path: Path) -> Commands:
    folder, _ = synced
    shutil.copytree(folder, tmp_path / "copy")
    return Commands(tmp_path / "copy")


@pytest.fixture
def rows(synced: tuple[Path, list[str]]) -> list[str]:
    return synced[1]


def tear_log(table: Path) -> None:
    newest = commits(table)[-1]
    newest.write_bytes(newest.read_bytes()[:-20])


def lose_end(table: Path) -> None:
    commits(table)[-1].unlink()


def mirror(commands: Commands, name: tuple[str, str]) -> Path:
    paths = commands.paths("shop")
    found = require_cut(paths).mirror(*name)
    assert found is not None
    return found.path(paths)


def sentence(commands: Commands, *words: object) -> str:
    """Run a command that ends with what is broken and return that."""
    done = commands.here(*words)
    assert done.returncode == 1, (words, done.stdout, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    return told


def type_repair(commands: Commands, told: str, by: Callable[..., Done] = Commands.here) -> None:
    """Type the first command that a sentence names."""
    found = re.search(r"(``?)ticdc-assets (.+?)\1", told)
    assert found is not None, told
    done = by(commands, *shlex.split(found[2]))
    assert done.returncode == 0, done.stderr


def dumped(commands: Commands) -> list[str]:
    return sorted(commands.done("dump", "shop").splitlines())


def test_damaged_mirrors_are_made_again_by_a_sync_that_reads_them(
    lake: Commands, rows: list[str]
) -> None:
    lose_file(mirror(lake, ORDERS))
    told = sentence(lake, "show", "shop", *ORDERS)
    assert "the mirror of shop.orders of changefeed 'shop' is damaged: data file part-" in told
    assert "is missing" in told
    assert "`ticdc-assets backfill shop --table shop.orders`" in told
    whole = lake.here("dump", "shop")
    assert whole.returncode == 1
    assert sorted(whole.stdout.splitlines()) == [row for row in rows if '"a.b"' in row]
    assert told in whole.stderr
    doctor = lake.here("doctor")
    assert doctor.returncode == 1
    (line,) = [item for item in doctor.stdout.splitlines() if "FAIL  tables shop:" in item]
    assert "the mirror of shop.orders" in line
    assert "backfill shop --table shop.orders" in line

    # Nothing new has come, so nothing of the mirrors is read.
    assert "unchanged: " in lake.here("sync", "shop").stdout

    # The other mirror has no changes either, but a log that lost its versions is told by its names.
    empty_log(mirror(lake, ODD))
    send_later(lake)
    done = lake.program("sync", "shop")
    assert done.returncode == 0, done.stderr
    assert "2 of them made again because they were damaged" in done.stdout
    assert done.stdout.count("made again: the mirror of") == 2
    assert is_later(dumped(lake), rows)
    assert find_damage(lake.paths("shop")) == []


@pytest.mark.parametrize("breaks", [tear_log, lose_end, tear_file], ids=lambda item: item.__name__)
def test_a_mirror_is_made_again_by_the_command_that_is_named(
    lake: Commands, rows: list[str], breaks: Callable[[Path], None]
) -> None:
    older = require_cut(lake.paths("shop")).number
    breaks(mirror(lake, ODD))
    type_repair(lake, sentence(lake, "show", "shop", *ODD))
    assert dumped(lake) == rows
    cut = require_cut(lake.paths("shop"))
    assert cut.number == older + 1
    # The moment before is still read: from the change log, where its version is gone.
    before = lake.here("dump", "shop", "--as-of", cut.tso)
    assert sorted(before.stdout.splitlines()) == rows


@pytest.mark.parametrize(
    ("name", "breaks"),
    [("change_log", lose_file), ("cuts", empty_log), ("change_groups", tear_log)],
    ids=lambda item: item if isinstance(item, str) else item.__name__,
)
def test_what_was_made_from_the_records_is_made_again(
    lake: Commands, rows: list[str], name: str, breaks: Callable[[Path], None]
) -> None:
    table = named_table(lake.paths("shop"), name)
    breaks(table)
    # The change log is read by what needs it only: a fold of a table.
    told = sentence(lake, *(FOLD if name == "change_log" else ("sync", "shop")))
    doctor = lake.here("doctor")
    assert doctor.returncode == 1
    (listed,) = [line for line in doctor.stdout.splitlines() if f"{name} of changefeed" in line]
    assert "`ticdc-assets rebuild shop`" in listed
    assert name in told
    type_repair(lake, listed, by=Commands.program if name == "cuts" else Commands.here)
    assert dumped(lake) == rows
    assert find_damage(lake.paths("shop")) == []


def test_all_is_made_again_while_the_source_is_away(lake: Commands, rows: list[str]) -> None:
    paths, capture = lake.paths("shop"), lake.folder / "messages.jsonl"
    capture.rename(lake.folder / "away.jsonl")
    # Which partitions there are is known from `landings`; without it nothing could be published.
    shutil.copytree(paths.landings, lake.folder / "landings")
    empty_log(paths.landings)
    assert "messages.jsonl" in sentence(lake, "rebuild", "shop")
    assert require_cut(paths).mirror(*ORDERS) is not None
    shutil.rmtree(paths.landings)
    shutil.copytree(lake.folder / "landings", paths.landings)
    done = lake.here("rebuild", "shop")
    assert done.returncode == 0, done.stderr
    assert "2 of 2 mirrors" in done.stdout
    assert dumped(lake) == rows
    (lake.folder / "away.jsonl").rename(capture)
    assert "landed 0 records" in lake.here("sync", "shop").stdout


FOLD = ("backfill", "shop", "--table", "shop.orders")


def test_landed_records_that_lost_their_end_are_landed_again(
    lake: Commands, rows: list[str]
) -> None:
    lose_end(lake.paths("shop").raw_messages)
    told = sentence(lake, "sync", "shop")
    assert "raw_messages of changefeed 'shop' is damaged: its newest batch is 1" in told
    type_repair(lake, told)
    assert dumped(lake) == rows


def test_landed_records_come_back_from_a_copy(
    lake: Commands, rows: list[str], tmp_path: Path
) -> None:
    table = lake.paths("shop").raw_messages
    shutil.copytree(table, tmp_path / "backup")
    empty_log(table)
    told = sentence(lake, "sync", "shop")
    assert "raw_messages of changefeed 'shop' is damaged: " in told
    assert "restore it from a copy" in told
    assert sentence(lake, "rebuild", "shop") == told
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "backup", table)
    lake.done("sync", "shop")
    assert dumped(lake) == rows


def test_what_spark_says_of_a_broken_table_is_our_sentence(
    lake: Commands, spark: SparkSession
) -> None:
    paths = lake.paths("shop")
    found = require_cut(paths).mirror(*ORDERS)
    assert found is not None
    lose_file(found.path(paths))
    with pytest.raises(LakeDamagedError, match=r"the mirror of shop\.orders"), damage_told(paths):
        delta_frame(spark, *found.at(paths)).collect()
    tear_log(found.path(paths))
    with pytest.raises(LakeDamagedError, match="is torn"), damage_told(paths):
        delta_frame(spark, *found.at(paths)).collect()
    # What has nothing to do with the tables comes out as it was.
    with pytest.raises(ValueError, match="else"), damage_told(paths):
        raise ValueError("else")


# Dagster ----------------------------------------------------------------------------------------

SECOND = """\
  - name: crm
    format: simple-json
    timezone: UTC
    source: {capture: messages.jsonl}
  - name: wrong
    format: simple-jsn
    source: {capture: messages.jsonl}
"""


def with_others(lake: Commands) -> Settings:
    """Add a changefeed that is whole and an entry that is wrong."""
    file = lake.folder / "changefeeds.yaml"
    file.write_text(file.read_text() + SECOND)
    return load_settings(lake.env, partly=True)


def test_the_code_location_loads_whatever_is_broken(lake: Commands, root: Path) -> None:
    settings = with_others(lake)
    for table in lake.paths("shop").tables:
        if (table / "_delta_log").is_dir():
            tear_log(table)
    definitions = all_definitions(settings)
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    assert {key.path[0] for key in keys} == {"shop", "crm", "wrong"}
    assert dg.AssetKey(["shop", "apply_changes"]) in keys
    assert dg.AssetKey(["wrong", "configuration"]) in keys
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"],
        env=os.environ | lake.env,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "Validation successful for code location ticdc_assets." in said
    assert "UserWarning" not in said
    # The command line goes on reporting every mistake at once.
    refused = lake.here("status", "crm")
    assert refused.returncode == 1
    assert "changefeeds[2].format" in refused.stderr
    assert "changefeeds[2].timezone" in refused.stderr


def test_sensors_of_a_broken_changefeed_skip_with_the_sentence_and_fail_its_check(
    lake: Commands,
) -> None:
    tear_log(lake.paths("shop").change_groups)
    empty_log(lake.paths("shop").cuts)
    definitions = all_definitions(with_others(lake))
    repository = definitions.get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        found = {
            sensor.name: sensor.evaluate_tick(
                dg.build_sensor_context(instance=instance, definitions=definitions)
            )
            for sensor in repository.sensor_defs
        }
        for name in ("shop_sync_sensor", "shop_tables_sensor"):
            assert "cuts of changefeed 'shop' is damaged" in (found[name].skip_message or "")
            assert not found[name].run_requests
        (event,) = found["shop_sync_sensor"].asset_events
        assert isinstance(event, dg.AssetCheckEvaluation)
        assert (event.asset_key, event.check_name) == readable_key(FeedNames(changefeed="shop"))
        assert not event.passed
        assert "`ticdc-assets rebuild shop`" in (event.description or "")
        assert found["crm_sync_sensor"].run_requests
        (mistake,) = found["wrong_configuration_sensor"].asset_events
        assert isinstance(mistake, dg.AssetCheckEvaluation)
        assert "did you mean 'simple-json'?" in (mistake.description or "")

        # Each check that cannot read what it judges fails with the sentence.
        names = {"lake_readable", "replication_lag"}
        graph = definitions.resolve_asset_graph()
        keys = [
            key
            for key in graph.asset_check_keys
            if key.asset_key.path[0] == "shop" and key.name in names
        ]
        job = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(*keys))
        result = job.resolve(asset_graph=graph).execute_in_process(
            instance=instance, raise_on_error=False
        )
        evaluations = result.get_asset_check_evaluations()
        assert {item.check_name for item in evaluations} == names
        for evaluation in evaluations:
            assert not evaluation.passed
            assert "is damaged" in (evaluation.description or "")
