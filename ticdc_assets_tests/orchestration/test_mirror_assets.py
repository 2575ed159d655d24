"""Each mirror as an asset of its own: its key, metadata and check, and others that depend on it."""

import itertools
import threading
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.config import InDagster, TableChoice
from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log.cuts import publish
from ticdc_assets.orchestration.changefeeds import all_definitions, definitions_of
from ticdc_assets.orchestration.metadata import sample_metadata
from ticdc_assets.orchestration.mirror_assets import WEBSERVER, MirrorAssets, reload_location, tick
from ticdc_assets.orchestration.partitions import TABLE_LAG, FeedNames
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets_tests.observe.report.small_lake import cut_of, mirror_of, published
from ticdc_assets_tests.orchestration.small_shop import ODD, ORDERS, SmallShop, materializations
from ticdc_assets_tests.statuses import NOW, ago

NAMES = FeedNames(changefeed="shop")
ODD_TABLES = (("shop", "a-b"), ("shop", "a_b"), ("shop", "a__b"), ("shop__a", "b"), ("表", "a/b"))


def identifier(database: str, table: str) -> str:
    return NAMES.mirror(database, table).to_python_identifier()


@given(st.lists(st.tuples(st.text("ab_-x5F ü", max_size=6), st.text("ab_-x5F ü", max_size=6))))
def test_two_tables_never_share_a_key_nor_a_name_of_an_input(tables: Any) -> None:
    for one, other in itertools.combinations(set(tables), 2):
        assert identifier(*one) != identifier(*other)
    for table in tables:
        assert identifier(*table).isascii()
        assert identifier(*table).isidentifier()


def test_common_names_stay_as_they_are() -> None:
    for table in (("shop", "order_items"), ("crm2", "pos_x"), ("Shop", "ORDERS")):
        assert list(NAMES.mirror(*table).path) == ["shop", "mirrors", *table]
    assert NAMES.mirror("my shop", "a-b").path[2:] == ["my_x20xshop", "a_x2Dxb"]


def test_a_location_shows_the_mirrors_of_the_newest_cut(steps: ChangefeedSteps) -> None:
    assert MirrorAssets.of(steps).mirrors == (), "an empty lake has none"
    published(steps.paths, *ODD_TABLES)
    definitions = definitions_of([steps])
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    for table in ODD_TABLES:
        node = graph.get(NAMES.mirror(*table))
        assert node.parent_keys == {NAMES.asset("change_log")}
        assert node.is_executable
        assert node.pools == {"ticdc_shop"}
        assert node.group_name == "shop_mirrors"
        assert node.kinds == {"deltalake", "table"}
        assert node.metadata["dagster/table_name"] == f"shop.{table[0]}.{table[1]}"
        assert str(node.metadata["dagster/uri"]).startswith("file:///")
        assert {key.name for key in graph.get_check_keys_for_assets({node.key})} == {TABLE_LAG}


def test_a_broken_table_of_cuts_leaves_the_other_definitions(steps: ChangefeedSteps) -> None:
    published(steps.paths, ("shop", "orders"))
    for log in (steps.paths.cuts / "_delta_log").glob("*.json"):
        log.write_text("{")
    assert MirrorAssets.of(steps).mirrors == ()
    dg.Definitions.validate_loadable(definitions_of([steps]))


def evaluations(result: dg.SensorResult) -> dict[dg.AssetKey, Any]:
    assert all(isinstance(event, dg.AssetCheckEvaluation) for event in result.asset_events)
    return {event.asset_key: event for event in result.asset_events}


def test_lag_is_told_when_it_is_another_than_shown(
    steps: ChangefeedSteps, instance: dg.DagsterInstance
) -> None:
    published(steps.paths, ("shop", "orders"), ("shop", "customers"))
    shown = MirrorAssets.of(steps)
    context = dg.build_sensor_context(instance=instance)
    first = tick(context, shown, NOW)
    assert {event.passed for event in evaluations(first).values()} == {True}
    assert set(evaluations(first)) == {NAMES.mirror("shop", it) for it in ("orders", "customers")}
    for event in evaluations(first).values():
        instance.report_runless_asset_event(event)
    again = tick(context, shown, NOW)
    assert not evaluations(again)
    assert "0 of 2 mirrors late" in str(again.skip_reason)
    late = tick(context, shown, NOW + timedelta(days=2))
    assert {event.severity for event in evaluations(late).values()} == {dg.AssetCheckSeverity.ERROR}
    description = evaluations(late)[NAMES.mirror("shop", "orders")].description
    assert "complete up to 2.0 days ago" in str(description)
    assert "2 of 2 mirrors late" in str(late.skip_reason)


def test_the_check_runs_alone(steps: ChangefeedSteps, instance: dg.DagsterInstance) -> None:
    published(steps.paths, ("shop", "orders"), ("shop", "a-b"), ("shop", "a_b"))
    definitions = definitions_of([steps])
    wanted = dg.AssetCheckKey(NAMES.mirror("shop", "a-b"), TABLE_LAG)
    selection = dg.AssetSelection.checks(wanted)
    job = dg.define_asset_job("lags", selection=selection)
    merged = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    done = merged.resolve_job_def("lags").execute_in_process(instance=instance)
    assert done.success
    (evaluation,) = done.get_asset_check_evaluations()
    assert evaluation.asset_check_key == wanted
    assert not evaluation.passed, "that cut is old"


def test_tables_that_came_or_went_ask_for_a_reload(
    steps: ChangefeedSteps, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WEBSERVER, raising=False)
    published(steps.paths, ("shop", "orders"), ("shop", "gone"))
    shown = MirrorAssets.of(steps)
    context = dg.build_sensor_context(instance=instance)
    assert "reload" not in str(tick(context, shown, NOW).skip_reason)
    mirrors = (mirror_of("shop", "orders"), mirror_of("shop", "new"))
    publish(steps.paths, cut_of(2, ago(4), 1, mirrors=mirrors))
    said = str(tick(context, shown, NOW).skip_reason)
    assert "2 assets of tables new or gone: reload the code location" in said


def test_assets_that_no_table_brought_ask_for_a_reload(
    steps: ChangefeedSteps, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WEBSERVER, raising=False)
    many = replace(steps, changefeed=replace(steps.changefeed, dagster=InDagster(table_assets=1)))
    context = dg.build_sensor_context(instance=instance)
    empty = MirrorAssets.of(many)
    published(steps.paths, ("shop", "orders"), ("shop", "items"))
    said = str(tick(context, empty, NOW).skip_reason)
    assert "1 asset of tables new or gone: reload" in said, "the one that all share"
    assert "reload" not in str(tick(context, MirrorAssets.of(many), NOW).skip_reason)
    shown = MirrorAssets.of(steps)
    mirrors = (mirror_of("shop", "orders", history_version=1), mirror_of("shop", "items"))
    publish(steps.paths, cut_of(2, ago(4), 1, mirrors=mirrors))
    said = str(tick(context, shown, NOW).skip_reason)
    assert "1 asset of tables new or gone: reload" in said, "a history"


@pytest.mark.dagster
def test_others_depend_on_one_table(
    shop: SmallShop, steps: ChangefeedSteps, instance: dg.DagsterInstance
) -> None:
    shop.create_tables()
    shop.insert(ORDERS, 3)
    key = NAMES.mirror(*ORDERS)

    @dg.asset(deps=[key], automation_condition=dg.AutomationCondition.eager())
    def paid() -> None: ...

    def located() -> dg.Definitions:
        return dg.Definitions.merge(definitions_of([steps]), dg.Definitions(assets=[paid]))

    def asked(cursor: Any = None) -> Any:
        return dg.evaluate_automation_conditions(located(), instance=instance, cursor=cursor)

    shop.sync(instance)
    (event,) = materializations(instance, key)
    assert event.metadata["dagster/row_count"].value == 3
    assert list(sample(event)[0]) == ["id", "price", "placed"]
    assert sorted(sample(event), key=lambda row: row["id"]) == [
        {"id": str(id), "price": "9.90", "placed": "2026-01-01 12:00:00.000"} for id in (1, 2, 3)
    ]
    before = asked()
    shop.insert(ODD, 1)
    shop.sync(instance)
    other = asked(before.cursor)
    assert other.get_num_requested(dg.AssetKey("paid")) == 0, "another table changed"
    shop.insert(ORDERS, 1)
    shop.sync(instance)
    assert asked(other.cursor).get_num_requested(dg.AssetKey("paid")) == 1
    assert len(materializations(instance, key)) == 2


class Folding:
    """A shop with two tables that were synced, in one instance."""

    def __init__(self, shop: SmallShop, instance: dg.DagsterInstance) -> None:
        self.shop, self.instance = shop, instance
        shop.create_tables()
        shop.insert(ORDERS, 3)
        shop.insert(ODD, 2)
        shop.sync(instance)

    @property
    def job(self) -> dg.JobDefinition:
        """The job behind the button on an asset's page."""
        return all_definitions(self.shop.settings).resolve_implicit_global_asset_job_def()

    def materialise(self, *keys: dg.AssetKey, **config: Any) -> dg.ExecuteInProcessResult:
        return self.job.execute_in_process(
            instance=self.instance,
            asset_selection=list(keys),
            run_config={"ops": {"shop__mirrors": {"config": config}}} if config else None,
        )

    def made(self, key: dg.AssetKey) -> list[dg.AssetMaterialization]:
        return materializations(self.instance, key)[::-1]


@pytest.fixture
def folding(shop: SmallShop, instance: dg.DagsterInstance) -> Folding:
    return Folding(shop, instance)


@pytest.mark.dagster
def test_a_mirror_is_folded_again_from_its_page(folding: Folding) -> None:
    orders, odd = NAMES.mirror(*ORDERS), NAMES.mirror(*ODD)
    done = folding.materialise(orders)
    assert done.success
    assert {event.asset_key for event in done.get_asset_materialization_events()} == {orders}
    again, first = folding.made(orders)
    assert again.metadata["mode"].value == "fold"
    assert again.metadata["cut"].value == 2, "a cut of its own, at the same TSO"
    assert again.metadata["applied_ts"].value == first.metadata["applied_ts"].value
    assert again.metadata["sample"].value == first.metadata["sample"].value
    assert len(folding.made(odd)) == 1, "the other table is as it was"
    assert TABLE_LAG in {item.check_name for item in done.get_asset_check_evaluations()}


@pytest.mark.dagster
def test_a_table_that_was_dropped_stops_no_other_one(folding: Folding) -> None:
    orders, odd = NAMES.mirror(*ORDERS), NAMES.mirror(*ODD)
    loaded_before = folding.job
    folding.shop.upstream.drop_table(ODD)
    folding.shop.sync(folding.instance)
    done = loaded_before.execute_in_process(
        instance=folding.instance, asset_selection=[orders, odd], raise_on_error=False
    )
    assert not done.success
    assert {event.asset_key for event in done.get_asset_materialization_events()} == {orders}
    assert folding.made(orders)[0].metadata["mode"].value == "fold"
    (failure,) = done.filter_events(lambda event: event.is_step_failure)
    told = failure.step_failure_data.user_failure_data
    assert told is not None, "one sentence, without wrappers"
    assert "no mirror of `a.b`.50% of c/d in the newest cut" in (told.description or "")


@pytest.mark.dagster
def test_a_history_is_an_asset_that_is_folded_with_its_mirror(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    shop.set(history=TableChoice(("shop.orders",)))
    folding = Folding(shop, instance)
    orders, history = NAMES.mirror(*ORDERS), NAMES.history(*ORDERS)
    (first,) = folding.made(history)
    assert first.metadata["versions"].value == 3
    assert not instance.has_asset_key(NAMES.history(*ODD)), "it has none"
    assert folding.materialise(history).success
    assert len(folding.made(history)) == len(folding.made(orders)) == 2


@pytest.mark.dagster
def test_a_sync_reports_a_changed_schema_once(folding: Folding) -> None:
    folding.shop.upstream.alter_table(ORDERS, AddColumn(column=column("note", "varchar(10)")))
    for rows in (1, 2):
        folding.shop.insert(ORDERS, rows)
        folding.shop.sync(folding.instance)
    records = folding.instance.fetch_observations(NAMES.mirror(*ORDERS), limit=9).records
    (event,) = (record.asset_observation for record in records)
    assert event is not None
    assert event.description == "schema changed: note added (varchar(10))"


@pytest.mark.dagster
def test_a_run_of_everything_is_a_sync(folding: Folding) -> None:
    folding.shop.insert(ORDERS, 1)
    folding.shop.send()
    names = ("raw_messages", "decode_messages", "quarantine", "schema_registry", "apply_changes")
    keys = [*map(NAMES.asset, names), NAMES.mirror(*ORDERS), NAMES.mirror(*ODD)]
    assert folding.materialise(*keys).success
    newest, applied, *_ = folding.made(NAMES.mirror(*ORDERS))
    assert newest.metadata["rows"].value == applied.metadata["rows"].value == 4
    for item in (newest, folding.made(NAMES.mirror(*ODD))[0]):
        cut = item.metadata["cut"].value
        assert cut == applied.metadata["cut"].value, "mirrors are reported after they are applied"
    assert newest.metadata["mode"].value != "fold", "there is no reason to fold all again"
    assert "sample" in newest.metadata
    folding.shop.insert(ORDERS, 1)
    folding.shop.set(dagster=InDagster(sample_rows=0))
    folding.shop.sync(folding.instance)
    newest, *_ = folding.made(NAMES.mirror(*ORDERS))
    assert newest.metadata["rows"].value == 5
    assert "sample" not in newest.metadata, "the changefeed says so"


@pytest.mark.dagster
def test_beyond_the_limit_one_asset_folds_the_tables_that_are_named(folding: Folding) -> None:
    folding.shop.insert(ORDERS, 1)
    folding.shop.set(dagster=InDagster(table_assets=1))
    folding.shop.sync(folding.instance)
    shared = NAMES.asset("mirrors")
    (synced,) = folding.made(shared)
    assert synced.metadata["names"].value == "shop.orders"
    assert folding.materialise(shared).success
    assert len(folding.made(shared)) == 1, "no table was named"
    assert folding.materialise(shared, tables=["shop.orders"]).success
    again, _ = folding.made(shared)
    assert again.metadata["modes"].value == {"fold": 1}


def sample(event: dg.AssetMaterialization) -> list[dict[str, Any]]:
    table = event.metadata["sample"]
    assert isinstance(table, dg.TableMetadataValue)
    names = [column.name for column in table.schema.columns]
    return [{name: record.data[name] for name in names} for record in table.records]


def test_long_values_are_shortened_and_null_is_said() -> None:
    table = sample_metadata([{"a|b": "x | y\n<b>*z*</b>", "c": None, "d": "e" * 100}])["sample"]
    (record,) = table.records
    assert record.data == {"a|b": "x | y\n<b>*z*</b>", "c": "NULL", "d": f"{'e' * 59}…"}


def test_a_web_server_that_is_away_is_said() -> None:
    with pytest.raises(TicdcError, match="no answer"):
        reload_location("http://127.0.0.1:1", "shop")


# Dagster's client calls its library as versions before did.
@pytest.mark.filterwarnings("ignore:Using variable_values")
def test_a_web_server_below_a_path_is_called_there() -> None:
    called: list[str] = []

    class Login(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            called.append(self.path)
            self.send_error(401)

    with HTTPServer(("127.0.0.1", 0), Login) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(TicdcError, match=r"^no answer: .*401.*$"):
            reload_location(f"http://127.0.0.1:{server.server_port}/dagster/", "shop")
    assert called == ["/dagster/graphql"]
