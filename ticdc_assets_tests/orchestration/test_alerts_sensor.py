"""Alerts: what is told of checks and runs, once each, to a real HTTP server and a real mail server.

Slack itself is not asked: that its URLs are understood is all that can be seen from here.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as MailHandler
from dagster import DagsterRunStatus
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.ports import free_port
from ticdc_assets.config import Alerts, OptionValue, load_settings
from ticdc_assets.observe.alerting import Problem, deliver, news, understands
from ticdc_assets.observe.verdicts import Check, Level
from ticdc_assets.orchestration.changefeeds import all_definitions, definitions_of
from ticdc_assets.orchestration.mirror_assets import WEBSERVER
from ticdc_assets.orchestration.partitions import IMPLICIT_ASSET_JOB_NAME, FeedNames
from ticdc_assets.orchestration.steps import steps_of
from ticdc_assets.orchestration.verdicts import OPEN, SEEN_UNTIL, CheckVerdict
from ticdc_assets_tests.orchestration.small_shop import SmallShop, plan

NAMES = FeedNames(changefeed="shop")
LAG = dg.AssetCheckKey(NAMES.asset("apply_changes"), "replication_lag")
QUARANTINE = dg.AssetCheckKey(NAMES.asset("quarantine"), "quarantine_growth")


class Hook:
    """An HTTP server of the test's own that keeps what is posted to it."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hook.status == 200:
                    hook.told.append(json.loads(body))
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def target(self) -> OptionValue:
        url = f"json://:secret@127.0.0.1:{self.server.server_port}/hook"
        return OptionValue(url, "{env: HOOK}")

    def taken(self) -> list[tuple[str, str]]:
        told, self.told = self.told, []
        return [(item["title"], item["message"]) for item in told]


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


@contextmanager
def mail_server() -> Iterator[tuple[int, list[Mail]]]:
    mails: list[Mail] = []

    class Keep(MailHandler):
        def handle_message(self, message: Mail) -> None:
            mails.append(message)

    controller = Controller(Keep(), hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield controller.port, mails
    finally:
        controller.stop()


class Watched:
    """A changefeed whose alerts go to a hook, and Dagster's records of it."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, alerts: Alerts) -> None:
        shop = SmallShop(folder)
        steps = steps_of(shop.settings, replace(shop.changefeed, alerts=alerts))
        self.definitions = definitions_of([steps])
        self.instance = instance
        self.cursor: str | None = None

    def tick(self) -> str:
        sensor = self.definitions.resolve_sensor_def("shop_alerts")
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor) as context:
            data = sensor.evaluate_tick(context)
        self.cursor = data.cursor
        assert not data.run_requests
        return data.skip_message or ""

    def judge(
        self,
        key: dg.AssetCheckKey,
        level: Level,
        sentence: str = "as it is",
        *,
        seen: str | None = None,
        left: int = 0,
    ) -> None:
        metadata = {} if seen is None else {SEEN_UNTIL: seen, OPEN: left}
        event = CheckVerdict(level, sentence, metadata).evaluation(key)
        self.instance.report_runless_asset_event(event)

    def ran(
        self,
        status: DagsterRunStatus,
        name: str = "shop_sync",
        assets: Sequence[str] = (),
        checks: Sequence[dg.AssetCheckKey] = (),
        **tags: str,
    ) -> str:
        assert self.definitions.resolve_job_def(name).name == name
        is_part = bool(assets or checks)
        run = self.instance.add_run(
            dg.DagsterRun(
                job_name=name,
                tags={"ticdc/changefeed": "shop"} | {"dagster/" + k: tags[k] for k in tags},
                asset_selection=frozenset(map(NAMES.asset, assets)) if is_part else None,
                asset_check_selection=frozenset(checks) if is_part else None,
            )
        )
        if status is DagsterRunStatus.FAILURE:
            self.instance.report_run_failed(run, "the worker is gone")
        else:
            ended = dg.DagsterEvent(event_type_value="PIPELINE_SUCCESS", job_name=name)
            self.instance.report_dagster_event(ended, run.run_id)
        return run.run_id


@pytest.fixture
def watched(tmp_path: Path, instance: dg.DagsterInstance, hook: Hook) -> Watched:
    return Watched(tmp_path, instance, Alerts(to=(hook.target,)))


def test_a_check_is_told_when_it_fails_and_when_it_is_well_again(
    watched: Watched, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WEBSERVER, "http://127.0.0.1:3000/")
    assert watched.tick() == "0 problems; {env: HOOK}: 0 changes sent"
    watched.judge(LAG, Level.WARN)
    assert watched.tick() == "1 problem; {env: HOOK}: 0 changes sent", "warnings are not wanted"
    watched.judge(LAG, Level.FAIL, "The mirrors are 2 h behind.")
    assert watched.tick() == "1 problem; {env: HOOK}: 1 change sent"
    watched.judge(LAG, Level.FAIL, "The mirrors are 3 h behind.")
    watched.tick()
    link = "http://127.0.0.1:3000/assets/shop/apply_changes?view=checks&checkDetail=replication_lag"
    assert hook.taken() == [
        (
            "shop: replication_lag failing",
            f"FAIL replication_lag: The mirrors are 2 h behind.\n{link}",
        )
    ]
    watched.judge(LAG, Level.OK)
    watched.tick()
    watched.tick()
    assert hook.taken() == [("shop: replication_lag ok again", "OK replication_lag: ok again")]


def test_the_mistakes_of_an_entry_are_told_to_its_own_targets(
    tmp_path: Path, instance: dg.DagsterInstance, hook: Hook
) -> None:
    """Its changefeed is not synced any more, and no other sensor reports about it."""
    path = tmp_path / "changefeeds.yaml"
    entry = {"name": "shop", "format": "simple-jsn", "alerts": {"to": [{"env": "HOOK"}]}}
    path.write_text(json.dumps({"changefeeds": [entry]}))
    env = {"TICDC_CHANGEFEEDS": str(path), "TICDC_LAKE": str(tmp_path), "HOOK": hook.target.value}
    definitions = all_definitions(load_settings(env, partly=True))
    for name in ("shop_configuration_sensor", "shop_alerts"):
        with dg.build_sensor_context(instance=instance, definitions=definitions) as context:
            data = definitions.resolve_sensor_def(name).evaluate_tick(context)
        for event in data.asset_events:
            assert isinstance(event, dg.AssetCheckEvaluation)
            instance.report_runless_asset_event(event)
    ((title, text),) = hook.taken()
    assert title == "shop: configuration_valid failing"
    assert "changefeeds[0].format: expected one of" in text


def test_a_failed_run_is_told_unless_it_is_tried_again(watched: Watched, hook: Hook) -> None:
    watched.ran(DagsterRunStatus.FAILURE, will_retry="true")
    watched.tick()
    assert not hook.taken()
    watched.ran(DagsterRunStatus.FAILURE)
    watched.tick()
    watched.ran(DagsterRunStatus.FAILURE)
    watched.tick()
    assert hook.taken() == [
        ("shop: run of shop_sync failing", "FAIL run of shop_sync: the worker is gone")
    ]
    watched.ran(DagsterRunStatus.SUCCESS)
    watched.tick()
    assert hook.taken() == [("shop: run of shop_sync ok again", "OK run of shop_sync: ok again")]


@pytest.mark.parametrize("name", ["shop_maintenance", IMPLICIT_ASSET_JOB_NAME])
def test_a_failed_run_is_told_as_long_as_its_job_has_no_later_one(
    watched: Watched, hook: Hook, name: str
) -> None:
    watched.ran(DagsterRunStatus.FAILURE, name)
    watched.tick()
    assert [title for title, _ in hook.taken()] == [f"shop: run of {name} failing"]
    for _ in range(60):
        watched.ran(DagsterRunStatus.SUCCESS, NAMES.job("report"))
    assert watched.tick() == "1 problem; {env: HOOK}: 0 changes sent"
    watched.cursor = None
    watched.tick()
    assert [title for title, _ in hook.taken()] == [f"shop: run of {name} failing"]
    watched.ran(DagsterRunStatus.SUCCESS, name)
    watched.tick()
    assert [title for title, _ in hook.taken()] == [f"shop: run of {name} ok again"]


def test_runs_of_chosen_assets_are_told_apart(watched: Watched, hook: Hook) -> None:
    """All of them are runs of one job of Dagster's own."""

    def ran(status: DagsterRunStatus, *assets: str, check: bool = False) -> list[str]:
        checks = (LAG,) * check
        watched.ran(status, IMPLICIT_ASSET_JOB_NAME, assets=assets, checks=checks)
        watched.tick()
        return [title for title, _ in hook.taken()]

    good, bad = DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE
    assert ran(bad, "raw_messages") == ["shop: run of shop/raw_messages failing"]
    for _ in range(20):
        assert ran(good, "report") == []
    assert ran(bad, "report", "change_log") == ["shop: run of shop/change_log, shop/report failing"]
    assert ran(good, "report") == [], "the change log was not made"
    assert ran(good, "raw_messages") == ["shop: run of shop/raw_messages ok again"]
    # What makes all of them, and more, makes up for it.
    assert ran(good, "raw_messages", "report", "change_log") == [
        "shop: run of shop/change_log, shop/report ok again"
    ]
    assert ran(bad, check=True) == ["shop: run of shop/apply_changes:replication_lag failing"]
    assert ran(good, "report") == []
    assert ran(good) == ["shop: run of shop/apply_changes:replication_lag ok again"]


def test_a_target_that_is_away_is_told_later_and_the_others_at_once(
    tmp_path: Path, instance: dg.DagsterInstance, hook: Hook
) -> None:
    away = OptionValue("json://127.0.0.1:1/", "{env: AWAY}")
    watched = Watched(tmp_path, instance, Alerts(to=(away, hook.target)))
    watched.judge(LAG, Level.FAIL)
    said = watched.tick()
    assert "{env: AWAY} did not accept the alert" in said
    assert "{env: HOOK}: 1 change sent" in said
    assert len(hook.taken()) == 1
    hook.status = 500
    watched.judge(LAG, Level.OK)
    assert "{env: HOOK} did not accept the alert" in watched.tick()
    hook.status = 200
    watched.tick()
    assert [title for title, _ in hook.taken()] == ["shop: replication_lag ok again"]


def test_each_growth_of_the_quarantine_is_told_and_no_end_of_it(
    tmp_path: Path, instance: dg.DagsterInstance, hook: Hook
) -> None:
    watched = Watched(tmp_path, instance, Alerts(to=(hook.target,), level="warn"))
    for number, sentence in enumerate(("3 came.", "2 came.")):
        watched.judge(QUARANTINE, Level.WARN, sentence, seen=moment(number), left=5)
        watched.tick()
    watched.judge(QUARANTINE, Level.OK, seen=moment(1), left=0)
    watched.tick()
    assert [body for _, body in hook.taken()] == [
        f"WARN {Check.QUARANTINE_GROWTH}: 3 came.",
        f"WARN {Check.QUARANTINE_GROWTH}: 2 came.",
    ]


def moment(minute: int) -> str:
    return f"2026-11-21T12:{minute:02d}:00.500000+00:00"


def test_a_growth_of_the_quarantine_is_told_after_the_next_sync_too(
    tmp_path: Path, instance: dg.DagsterInstance, hook: Hook
) -> None:
    """A run that follows looks again a second later, and Dagster keeps one evaluation of a run."""
    watched = Watched(tmp_path, instance, Alerts(to=(hook.target,), level="warn"))
    watched.judge(QUARANTINE, Level.OK, seen="", left=0)
    watched.tick()
    for minute in (1, 2):
        watched.judge(QUARANTINE, Level.WARN, "1 came.", seen=moment(minute), left=minute)
        watched.judge(QUARANTINE, Level.OK, "Nothing new.", seen=moment(minute), left=minute)
        watched.tick()
        watched.judge(QUARANTINE, Level.OK, "Nothing new.", seen=moment(minute), left=minute)
        watched.tick()
    # What is tried again in vain is no news, and what was told stays told when some is mended.
    watched.judge(QUARANTINE, Level.OK, "Nothing new.", seen=moment(2), left=1)
    watched.tick()
    told = [body for _, body in hook.taken()]
    assert [text.partition(": ")[0] for text in told] == ["WARN quarantine_growth"] * 2
    assert "the last at 2026-11-21 12:01:00 UTC; 1 are open" in told[0]
    assert "the last at 2026-11-21 12:02:00 UTC; 2 are open" in told[1]


def test_a_run_that_has_not_come_to_its_checks_changes_nothing(
    watched: Watched, hook: Hook, instance: dg.DagsterInstance
) -> None:
    watched.judge(LAG, Level.FAIL)
    watched.tick()
    assert len(hook.taken()) == 1
    plan(instance, watched.definitions.resolve_job_def("shop_sync"), LAG)
    assert watched.tick() == "1 problem; {env: HOOK}: 0 changes sent"


def test_a_cursor_that_is_none_tells_everything_once_more(watched: Watched, hook: Hook) -> None:
    watched.judge(LAG, Level.FAIL)
    for cursor in ("{", "[1]", '{"{env: HOOK}": 3}'):
        watched.cursor = cursor
        watched.tick()
        assert len(hook.taken()) == 1


def test_alerts_come_by_mail() -> None:
    with mail_server() as (port, mails):
        url = f"mailto://127.0.0.1:{port}/?from=ticdc@example.com&to=ops@example.com"
        problem = Problem(name="held_rows", level=Level.FAIL, sentence="5 rows wait.")
        message, _ = news("shop", [problem], {}, Level.FAIL)
        assert message is not None
        deliver(message, OptionValue(url, "{env: MAIL}"))
    (mail,) = mails
    assert mail["To"] == "ops@example.com"
    assert mail["Subject"] == "shop: held_rows failing"
    assert "5 rows wait." in str(mail.get_payload())


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", True),
        ("mailtos://user:password@example.com?to=ops@example.com", True),
        ("no URL", False),
        ("", False),
    ],
)
def test_urls_are_understood_or_not(url: str, known: bool) -> None:
    assert understands(OptionValue(url, "{env: A}")) is known


def test_no_secret_is_in_the_reason() -> None:
    (message, _) = news("shop", [Problem(name="a", level=Level.FAIL, sentence="b")], {}, Level.WARN)
    assert message is not None
    for url in ("json://user:S3cret@127.0.0.1:1/", "nothing://S3cret", "S3cret"):
        with pytest.raises(TicdcError, match="HOOK") as caught:
            deliver(message, OptionValue(url, "{env: HOOK}"))
        assert "S3cret" not in str(caught.value)


STATES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from([Level.WARN, Level.FAIL]), max_size=3
)


@given(st.lists(STATES, max_size=6), st.sampled_from([Level.WARN, Level.FAIL]))
def test_whoever_reads_all_messages_knows_how_it_is(
    states: list[dict[str, Level]], least: Level
) -> None:
    told: dict[str, str] = {}
    known: dict[str, str] = {}
    for state in states:
        found = [Problem(name=name, level=level, sentence="") for name, level in state.items()]
        message, told = news("shop", found, told, least)
        for line in message.body.split("\n\n") if message else ():
            word, name = line.partition(":")[0].split()
            assert known.get(name, "OK") != word, "it was told before"
            known[name] = word
        assert {name: word for name, word in known.items() if word != "OK"} == {
            name: level.name for name, level in state.items() if level >= least
        }
        assert news("shop", found, told, least)[0] is None


def test_many_problems_are_one_short_message() -> None:
    said = "long " * 1000
    found = [Problem(name=f"run of job_{n}", level=Level.FAIL, sentence=said) for n in range(50)]
    message, _ = news("shop", found, {}, Level.FAIL)
    assert message is not None
    assert message.title == "shop: 50 failing"
    assert message.body.endswith("... and 30 more")
    assert len(message.body) < 12_000
