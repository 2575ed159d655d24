"""The changefeeds file: what is read, and that every mistake is told by its key."""

import pickle
import re
import traceback
from collections.abc import Iterator
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import ConfigError, NotFoundError
from ticdc_assets.config import (
    ALL_TABLES,
    OFF,
    WIRE_FORMATS,
    CaptureSource,
    Changefeed,
    CheckLimits,
    ClaimCheck,
    KafkaSource,
    Retention,
    Schedules,
    StartKind,
    StartPosition,
    TableChoice,
    TableFilter,
    Writer,
    is_loopback,
    lake_path,
    load_settings,
    parse_changefeeds,
)
from ticdc_assets.config.reading import Keys, fields_of
from ticdc_assets.config.sources import SourceKeys
from ticdc_assets.config.topics import TopicPattern
from ticdc_assets.storage.paths import RemotePath
from ticdc_assets.storage.stores import Storage
from ticdc_assets.wire import Compression, WireFormat

PATH = Path("/somewhere/changefeeds.yaml")
KAFKA = {
    "bootstrap_servers": "127.0.0.1:9092",
    "topics": ["shop"],
    "options": {"security.protocol": "PLAINTEXT"},
}


def entry(**changes: Any) -> dict[str, Any]:
    """A valid changefeed with some keys changed; None leaves a key out."""
    fields: dict[str, Any] = {
        "name": "shop",
        "format": "simple-json",
        "timezone": "UTC",
        "source": {"kafka": KAFKA},
    } | changes
    return {key: value for key, value in fields.items() if value is not None}


def kafka(**changes: Any) -> dict[str, Any]:
    fields = {key: value for key, value in (KAFKA | changes).items() if value is not None}
    return entry(source={"kafka": fields})


def parse(*entries: Any, env: dict[str, str] | None = None) -> tuple[Changefeed, ...]:
    text = yaml.safe_dump({"changefeeds": list(entries)}, allow_unicode=True)
    return parse_changefeeds(text, path=PATH, env=env or {})


def write(folder: Path, *entries: Any) -> dict[str, str]:
    """Write a file and return the environment that names it."""
    path = folder / "changefeeds.yaml"
    path.write_text(yaml.safe_dump({"changefeeds": list(entries)}), encoding="utf-8")
    return {"TICDC_CHANGEFEEDS": str(path)}


def mistake(*entries: Any, env: dict[str, str] | None = None) -> str:
    """The message of the one mistake in a file, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        parse(*entries, env=env)
    message = str(caught.value)
    assert message.startswith(f"{PATH}: "), message
    return message.removeprefix(f"{PATH}: ")


def source_of(*entries: Any, env: dict[str, str] | None = None) -> KafkaSource:
    source = parse(*entries, env=env)[0].source
    assert isinstance(source, KafkaSource)
    return source


# --- what is read ---


def test_example_of_the_project_is_valid(root: Path) -> None:
    settings = load_settings({"TICDC_CHANGEFEEDS": str(root / "changefeeds.yaml")})
    shop = settings.changefeed("shop")
    assert (shop.wire_format, shop.timezone) == ("simple-json", "UTC")
    assert shop.source == source_of(entry())
    assert (shop.lag_warn_seconds, shop.lag_error_seconds) == (300, 900)


def test_defaults_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, entry())
    settings = load_settings({})
    assert settings.path == tmp_path / "changefeeds.yaml"
    assert settings.lake == tmp_path / ".lake"
    assert load_settings({"TICDC_LAKE": "elsewhere"}).lake == tmp_path / "elsewhere"


def test_unknown_changefeed_lists_the_names(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, entry(), entry(name="orders")))
    assert [feed.name for feed in settings.changefeeds] == ["shop", "orders"]
    with pytest.raises(NotFoundError, match=r"'order'.*did you mean 'orders'.*shop, orders"):
        settings.changefeed("order")


def test_capture_is_relative_to_the_file() -> None:
    source = parse(entry(source={"capture": "in/m.jsonl.gz", "partitions": {"shop": 3}}))[0].source
    assert source == CaptureSource(path=PATH.parent / "in/m.jsonl.gz", partitions={"shop": 3})
    absolute = parse(entry(source={"capture": "/data/m.jsonl"}))[0].source
    assert absolute == CaptureSource(path=Path("/data/m.jsonl"))


def test_the_instance_is_where_dagster_looks_for_it(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, entry()))
    assert settings.home({"DAGSTER_HOME": "~/instance"}) == Path.home() / "instance"
    # Dagster leaves it as it is, and refuses it, as `doctor` says.
    odd = settings.home({"DAGSTER_HOME": "~no-such-user/x"})
    assert odd == Path("~no-such-user/x").absolute()


def test_scalars_are_text_whatever_yaml_thinks() -> None:
    text = """
changefeeds:
- name: no
  format: simple-json
  timezone: UTC
  lag_warn_seconds: 1.5
  source: {kafka: {bootstrap_servers: "h:1", topics: [2024-01-01, 12], options: {
    security.protocol: plaintext, enable.x: true, y: 010}}}
"""
    feed = parse_changefeeds(text, path=PATH, env={})[0]
    assert isinstance(feed.source, KafkaSource)
    assert (feed.name, feed.lag_warn_seconds) == ("no", 1.5)
    assert feed.source.topics == ("2024-01-01", "12")
    values = {key: option.value for key, option in feed.source.options.items()}
    assert values == {"security.protocol": "plaintext", "enable.x": "true", "y": "010"}


def test_what_is_kept_how_long() -> None:
    def read(**retention: str) -> Retention:
        return parse(entry(retention=retention))[0].retention

    assert read() == Retention(raw_messages=None, change_log=None, cuts=timedelta(days=30))
    some = read(raw_messages="1 day", change_log="36 hours", cuts="2 days")
    assert (some.raw_messages, some.change_log) == (timedelta(days=1), timedelta(hours=36))
    assert some.longest == timedelta(days=2)
    assert read(raw_messages="90 days").longest == timedelta(days=90)
    assert read(raw_messages="90 days", cuts="forever").longest is None


def test_several_servers_are_normalised() -> None:
    servers = " a.example:1 , [::1]:9092,"
    assert source_of(kafka(bootstrap_servers=servers)).bootstrap_servers == "a.example:1,[::1]:9092"


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.1:1,localhost:2,[::1]:3", True),
        ("127.0.0.1:1,10.0.0.1:2", False),
        ("localhost.example:1", False),
        ("0.0.0.0:1", False),
    ],
)
def test_loopback(servers: str, expected: bool) -> None:
    assert is_loopback(servers) is expected


@pytest.mark.parametrize("wire_format", WireFormat)
def test_messages_are_plain_by_default(wire_format: WireFormat) -> None:
    plain = entry(format=str(wire_format))
    (feed,) = parse(plain)
    assert (feed.wire_format, feed.compression) == (wire_format, Compression.NONE)
    assert feed.claim_check is None
    assert parse(plain | {"compression": "none"}) == (feed,)


@pytest.mark.parametrize("compression", ["lz4", "snappy"])
@pytest.mark.parametrize("wire_format", [name for name in WIRE_FORMATS if name != "craft"])
def test_compression_and_claim_check(wire_format: str, compression: str) -> None:
    (feed,) = parse(
        entry(format=wire_format, compression=compression, claim_check={"location": "large"})
    )
    assert feed.compression is Compression(compression)
    assert feed.claim_check == ClaimCheck(location=str(PATH.parent / "large"), raw_value=False)
    assert pickle.loads(pickle.dumps(feed)) == feed


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/data/large", "/data/large"),
        ("../large files", f"{PATH.parent}/../large files"),
        ("file:///data/large", "file:///data/large"),
        ("s3://bucket/large?region=eu-west-1", "s3://bucket/large?region=eu-west-1"),
        ("gs://bucket/large", "gs://bucket/large"),
    ],
)
def test_location_of_claim_checks(location: str, expected: str) -> None:
    (feed,) = parse(entry(claim_check={"location": location, "raw_value": True}))
    assert feed.claim_check == ClaimCheck(location=expected, raw_value=True)


def test_topics_by_name_and_by_pattern() -> None:
    source = source_of(kafka(topics=["shop", "cdc_{schema}_{table}", "old-*"]))
    assert source.topics == ("shop",)
    assert source.patterns == (TopicPattern("cdc_{schema}_{table}"), TopicPattern("old-*"))
    assert source.topics_shown == "shop, cdc_{schema}_{table}, old-*"
    topics = ["shop", "cdc_crm_orders", "old-", "shops", "cdc_crm", "cold-1", "__old-1"]
    assert [topic for topic in topics if source.takes(topic)] == topics[:3]
    assert source_of(kafka(topics=["{schema}"])).topics == ()


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, StartPosition(StartKind.EARLIEST)),
        ("earliest", StartPosition(StartKind.EARLIEST)),
        ("latest", StartPosition(StartKind.LATEST)),
        ("2026-11-20T00:00:00Z", StartPosition(StartKind.TIMESTAMP, 1_795_132_800_000)),
        ("2026-11-20T08:00:00.123456+08:00", StartPosition(StartKind.TIMESTAMP, 1_795_132_800_123)),
        ("1970-01-01 00:00:00+00:00", StartPosition(StartKind.TIMESTAMP, 0)),
    ],
)
def test_where_landing_begins(start: str | None, expected: StartPosition) -> None:
    assert source_of(kafka(start=start)).start == expected


def test_owners_are_those_that_dagster_takes() -> None:
    from dagster import AssetKey
    from dagster._core.definitions.utils import validate_asset_owner

    for owner in ("team:x", "team:Ö/x", "a@b.io", "_@b.example", "A.b%c+d-e@1.company"):
        (feed,) = parse(entry(owners=[owner]))
        validate_asset_owner(feed.owners[0], AssetKey("a"))


def test_tables_to_mirror() -> None:
    (feed,) = parse(entry())
    assert feed.tables == TableFilter(include=ALL_TABLES, exclude=TableChoice())
    assert feed.tables.takes_all
    assert feed.tables.includes("any", "where")
    (feed,) = parse(entry(tables={"exclude": ["*.tmp_*"]}))
    assert not feed.tables.takes_all
    names = [("shop", "orders"), ("Shop", "TMP_1"), ("crm", "tmp"), ("crm", "people")]
    assert [name for name in names if feed.tables.includes(*name)] == [names[0], *names[2:]]
    (feed,) = parse(entry(tables={"include": ["SHOP.*", "crm.people"], "exclude": ["*.tmp_*"]}))
    assert [name for name in names if feed.tables.includes(*name)] == [names[0], names[3]]
    (feed,) = parse(entry(tables={"include": "all", "exclude": "all"}))
    assert not feed.tables.includes("shop", "orders")
    assert not feed.tables.takes_all


LIMITS: dict[str, Any] = {
    "held_warn_seconds": 1.5,
    "held_error_seconds": 2,
    "stuck_warn_seconds": 3,
    "stuck_error_seconds": 3,
}
SCHEDULES = {"maintenance": "30 1 * * *", "verify": "off", "report": " */15  8-18 * * Mon-Fri "}
OWNERS = ["team:data-platform", "ada@example.com", "a.b+c@x-y.example.org"]
READ: list[tuple[dict[str, Any], str, Any]] = [
    ({}, "checks", CheckLimits()),
    (
        {"checks": LIMITS | {"held_warn_seconds": "1.5", "quiet_warn_seconds": "never"}},
        "checks",
        CheckLimits(**LIMITS, quiet_warn_seconds=None),
    ),
    ({"checks": {"quiet_warn_seconds": 60}}, "checks", CheckLimits(quiet_warn_seconds=60)),
    ({}, "exports", None),
    ({"exports": "exports"}, "exports", f"{PATH.parent}/exports"),
    ({"exports": "/data/exports"}, "exports", "/data/exports"),
    ({"exports": "~/exports"}, "exports", f"{Path.home()}/exports"),
    ({"exports": "s3://bucket/exports"}, "exports", "s3://bucket/exports"),
    ({}, "follow_seconds", 600),
    ({"follow_seconds": 0}, "follow_seconds", 0),
    ({}, "max_ahead_seconds", 3600),
    ({"max_ahead_seconds": 10**12}, "max_ahead_seconds", 1e12),
    ({}, "owners", ()),
    ({"owners": OWNERS}, "owners", tuple(OWNERS)),
    ({}, "schedules", Schedules()),
    (
        {"schedules": SCHEDULES},
        "schedules",
        Schedules(maintenance="30 1 * * *", verify=OFF, report="*/15 8-18 * * Mon-Fri"),
    ),
    ({}, "writer", Writer(lease=None)),
    ({}, "writer.lease_seconds", 60),
    ({"writer": {"lease": "2 minutes"}}, "writer.lease_seconds", 120),
    ({"writer": {"lease": "5 seconds"}}, "writer.lease_seconds", 5),
]
"""Keys of a changefeed, a setting, and its value by them."""


@pytest.mark.parametrize(("keys", "setting", "value"), READ)
def test_keys_are_read(keys: dict[str, Any], setting: str, value: object) -> None:
    (feed,) = parse(entry(**keys))
    assert attrgetter(setting)(feed) == value


# --- secrets ---


def test_credentials_in_the_location_of_claim_checks_are_not_shown() -> None:
    location = "s3://hunter2:hunter3@bucket/large?token=hunter4"
    env = {"LOCATION": location}
    (feed,) = parse(entry(claim_check={"location": {"env": "LOCATION"}}), env=env)
    assert feed.claim_check is not None
    assert feed.claim_check.location == location
    assert feed.claim_check.shown == "s3://bucket/large"
    assert "hunter" not in repr(feed)
    for wrong in ("ftp://hunter2:hunter3@host/x", "ftp://[hunter2@x/y"):
        for spelled in (wrong, {"env": "LOCATION"}):
            message = mistake(entry(claim_check={"location": spelled}), env={"LOCATION": wrong})
            assert message.startswith("changefeeds[0].claim_check.location: expected the path")
            assert "hunter" not in message


@pytest.mark.parametrize(
    "location",
    [
        "s3://alice:hunter2@bucket/large",
        "s3://bucket/large?region=eu-west-1&secret_key=hunter2",
        "abfss://files@account.dfs.core.windows.net/large?sas_token=hunter2",
        "s3://bucket/large?session_token=",
    ],
)
def test_credentials_of_claim_checks_come_from_the_environment_only(location: str) -> None:
    message = mistake(entry(claim_check={"location": location}))
    assert message.startswith(
        "changefeeds[0].claim_check.location: expected {env: NAME}, because a secret must "
        "come from the environment, got '"
    )
    assert "hunter" not in message


def test_env_values_are_resolved_and_not_shown() -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": {"env": "USER_NAME"},
        "sasl.password": {"env": "PASSWORD"},
        "ssl.key.password": {"env": "KEY_PASSWORD"},
    }
    env = {"USER_NAME": "env-alice", "PASSWORD": "env-hunter2", "KEY_PASSWORD": "env-hunter3"}
    feeds = parse(kafka(options=options), env=env)
    source = feeds[0].source
    assert isinstance(source, KafkaSource)
    assert source.options["sasl.username"].value == "env-alice"
    assert source.options["sasl.password"].value == "env-hunter2"
    for shown in (repr(feeds), str(source.options["ssl.key.password"]), f"{source.options}"):
        assert not re.search("hunter|alice", shown)
    assert "{env: USER_NAME}" in repr(feeds)
    assert pickle.loads(pickle.dumps(feeds)) == feeds


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "some.new.Token",
    ],
)
def test_a_secret_in_the_file_is_a_mistake(key: str) -> None:
    options = SASL | WHO | {key: "hunter2"}
    message = mistake(kafka(bootstrap_servers=REMOTE, options=options), env=PASSWORD)
    assert message == (
        f"changefeeds[0].source.kafka.options.{key}: expected {{env: NAME}}, because a secret must "
        "come from the environment, got a value"
    )
    options[key] = {"env": "HUNTER"}
    env = PASSWORD | {"HUNTER": "hunter2"}
    source = source_of(kafka(bootstrap_servers=REMOTE, options=options), env=env)
    assert source.options[key].value == "hunter2"
    assert "hunter2" not in repr(source)


def test_where_a_secret_is_may_stand_in_the_file() -> None:
    options = {
        "ssl.key.location": "/etc/kafka/key.pem",
        "ssl.keystore.location": "/etc/kafka/store.p12",
        "ssl.ca.pem": "CERTIFICATE",
        "ssl.certificate.pem": "CERTIFICATE",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.kerberos.keytab": "/etc/kafka/client.keytab",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.scope": "all",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    }
    given = kafka(bootstrap_servers=REMOTE, options=SASL | WHO | options)
    assert options.keys() < source_of(given, env=PASSWORD).options.keys()


def test_secrets_are_not_in_errors() -> None:
    options = {"sasl.password": "hunter2", "ssl.key.password": ["hunter3"], "a": {"b": "hunter4"}}
    with pytest.raises(ConfigError) as caught:
        parse(kafka(options=options), kafka(options="hunter5"), env={})
    assert "hunter" not in str(caught.value)


def test_secret_in_the_wrong_variable_is_not_in_errors() -> None:
    env = {"SERVERS": "hunter2"}
    message = mistake(kafka(bootstrap_servers={"env": "SERVERS"}), env=env)
    assert message == (
        "changefeeds[0].source.kafka.bootstrap_servers: expected host:port, several separated by "
        "commas, got {env: SERVERS}"
    )


@pytest.mark.parametrize("env", [{}, {"KAFKA_PASSWORD": ""}])
def test_missing_variable_names_key_and_variable(env: dict[str, str]) -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": {"env": "KAFKA_PASSWORD"},
    }
    assert mistake(kafka(options=options), env=env) == (
        "changefeeds[0].source.kafka.options.sasl.password: "
        "the environment variable 'KAFKA_PASSWORD' is not set or is empty"
    )


def test_what_stands_in_the_wrong_place_is_not_in_errors() -> None:
    """A secret that got into a key which has none is in no message, nor in what led to it."""
    options = {"sasl.password": "hunter2"}
    wrong = [
        entry(source=[{"kafka": options}], owners=[options]),
        entry(name=options, timezone=[options], checks={"held_warn_seconds": options}),
        kafka(topics=[options], start=options, bootstrap_servers=options) | {"name": "other"},
        [options],
    ]
    with pytest.raises(ConfigError) as caught:
        parse(*wrong)
    shown = "".join(traceback.format_exception(caught.value, chain=True))
    assert "has 9 mistakes" in shown
    assert "hunter" not in shown
    assert caught.value.__context__ is None


# --- what is refused ---


NO_FIT: list[tuple[str, str, list[Any]]] = [
    (
        "name",
        "1 to 64 of a-z, 0-9 and _, not starting or ending with _",
        ["Shop", "../x", "_x", "x_", "a" * 65, ["a"]],
    ),
    (
        "format",
        "one of simple-json, simple-avro, open-protocol",
        ["avro", "simple", ["simple-json"]],
    ),
    ("compression", "one of none, lz4, snappy, got ", ["gzip", ["lz4"], ""]),
    ("timezone", "the IANA name", ["Mars/Base", "../../etc/passwd", "America"]),
    ("lag_warn_seconds", "a number of seconds above 0", [0, "1e3"]),
    ("lag_error_seconds", "a number of seconds above 0", [-1]),
    ("max_ahead_seconds", "a number of seconds above 0", [0]),
    ("follow_seconds", "a number of seconds, 0 or more, got", [-1, "long"]),
    ("history", "all, or a non-empty list of database.table, got", ["some", []]),
    ("history[0]", "database.table, in which * means", [["orders"], [".orders"]]),
    ("history[1]", "each table once, got 'a.b'", [["a.b", "a.b"]]),
    ("owners", "a non-empty list of owners, got", [[], "team:a"]),
    ("owners[0]", "team:name or an e-mail address", [["ada"], ["team:"], ["team:a b"], ["a@b"]]),
    ("owners[1]", "team:name or an e-mail", [["team:a", {"b": 1}]]),
    ("owners[1]", "each owner once, got 'team:a'", [["team:a", "team:a"]]),
    ("claim_check.location", "the path of a folder", ["", " ", "a\0b", ["x"]]),
    ("checks", "a mapping of limits to seconds, got ['held']", [["held"]]),
    ("checks.quiet_warn_seconds", "a number of seconds above 0 or never, got 'off'", ["off"]),
    ("checks.held_error_seconds", "a number of seconds above 0, got 'never'", ["never"]),
    ("tables", "a mapping with any of `include` and `exclude`", [["a.b"]]),
    ("tables.include", "all, or a non-empty list of dat", [[]]),
    ("tables.exclude[0]", "database.table, in which", [["a"]]),
    ("claim_check", "a mapping with `location`, got 'x'", ["x"]),
    ("schedules", "a mapping with any of maintenance, redecode", ["off"]),
    ("schedules.verify", "a cron text (minute", ["@daily", ["off"], "", "0 0 30 2 *"]),
    ("retention", "a mapping with any of `raw_messages`", ["90 days"]),
    ("retention.cuts", "a time like `90 days`", ["90", "0 days"]),
    ("writer", "a mapping with `lease`, got '60 seconds'", ["60 seconds"]),
    ("source", "a mapping with either `kafka` or `capture`, got []", [{}]),
    ("source.kafka.options", "a mapping of client options", [[1]]),
    ("writer.lease", "a time from 5 seconds to 1 hour", ["off", "4 seconds", "61 minutes"]),
    ("source.kafka.bootstrap_servers", "host:port", ["h", "h:0", "h:65536", "h:²", ","]),
    # As in a sink URI, and an address without its brackets.
    ("source.kafka.bootstrap_servers", "host:port", ["kafka://h:1", "::1:9092"]),
    (
        "source.kafka.start",
        "earliest, latest, or a time with its zone",
        [*("now", "2026-11-20", "2026-11-20T00:00:00", "1969-12-31T23:59:59Z", ""), ["latest"]],
    ),
    ("source.kafka.topics", "a non-empty list of names, got ", [[], "shop"]),
    ("source.kafka.topics[1]", "a topic name", [["a", "a b"], ["a", ".."]]),
    (
        "source.kafka.topics[2]",
        "each topic once, got",
        [["a", "b", "a"], ["a", "*_{schema}", "*_{schema}"]],
    ),
    (
        "source.kafka.topics[0]",
        "characters of topic names",
        [["a b*"], ["{schema"], ["{column: }"]],
    ),
    ("source.kafka.topics[0]", "a pattern that names some topics", [["**{schema}"]]),
    ("source.kafka.topics[0]", "at most 249 literal", [["a" * 250 + "*"]]),
]
"""Keys, what is expected of each, and values that are something else."""


@pytest.mark.parametrize(
    ("key", "expected", "value"),
    [(key, expected, value) for key, expected, values in NO_FIT for value in values],
)
def test_a_value_that_does_not_fit_is_told_by_its_key(key: str, expected: str, value: Any) -> None:
    group, _, name = key.partition("[")[0].rpartition(".")
    if group == "source.kafka":
        wrong = kafka(**{name: value})
    else:
        wrong = entry(**{group: {name: value}} if group else {name: value})
    assert mistake(wrong).startswith(f"changefeeds[0].{key}: expected {expected}")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            kafka(topics=["*"]),
            "source.kafka.topics[0]: expected a pattern that names some topics, got '*', which is "
            "all that the brokers have: add what the names begin or end with, or list them",
        ),
        (
            kafka(topics=["{scheme}_{table}"]),
            "source.kafka.topics[0]: expected characters of topic names (A-Z a-z 0-9 . _ -) with "
            "{schema}, {table}, {column:name} or *, got '{scheme}_{table}'",
        ),
        (
            kafka(topics=[{"schema": ""}]),
            "source.kafka.topics[0]: expected a topic name (1 to 249 of A-Z a-z 0-9 . _ -) "
            '(a pattern is quoted: "{schema}_{table}"), got',
        ),
        (kafka(bootstrap_servers=None), "source.kafka.bootstrap_servers: missing; expected host"),
        (kafka(options={"x": ""}), "source.kafka.options.x: expected a value or {env: NAME}, got"),
        (kafka(options={"group.id": "g"}), "source.kafka.options.group.id: not to be set here"),
        (
            kafka(options={"ssl.truststore.location": "hunter2"}),
            "source.kafka.options.ssl.truststore.location: only Java's client has this option",
        ),
        (kafka(topic=["a"]), "source.kafka.topic: unknown key (did you mean 'topics'?)"),
        (entry(name=None), "name: missing; expected 1 to 64 of a-z"),
        (
            entry(format="craft", compression="lz4"),
            "compression: expected none, as craft has no compression, got 'lz4'",
        ),
        (
            entry(format="craft", claim_check={"location": "x"}),
            "claim_check: not to be set: craft has no claim checks",
        ),
        (entry(claim_check={}), "claim_check.location: missing; expected the path of a folder"),
        (
            entry(claim_check={"location": "http://h/x"}),
            "claim_check.location: expected the path of a folder, or a URI of file, s3, gs, gcs, "
            "abfs, abfss, hdfs, viewfs, got 'http://h/x'",
        ),
        (
            entry(claim_check={"location": "x", "raw_value": "yes"}),
            "claim_check.raw_value: expected true or false, got 'yes'",
        ),
        (
            entry(format="open-protocol", claim_check={"location": "x", "raw_value": True}),
            "claim_check.raw_value: expected false, as open-protocol has no raw values, got 'true'",
        ),
        (
            entry(claim_check={"location": "x", "raw_values": True}),
            "claim_check.raw_values: unknown key (did you mean 'raw_value'?)",
        ),
        (entry(timezone=None), "timezone: missing; expected the IANA name"),
        (
            entry(start_ts=1_732_690_000),
            "start_ts: expected a TSO, of the year 2000 or later, got '1732690000'",
        ),
        (entry(lag_warn_seconds=901), "lag_warn_seconds: expected at most lag_error_seconds"),
        (
            entry(checks={"held_warn_second": 1}),
            "checks.held_warn_second: unknown key (did you mean 'held_warn_seconds'?)",
        ),
        (
            entry(checks={"held_warn_seconds": 3601}),
            "checks.held_warn_seconds: expected at most held_error_seconds, which is 3600, got",
        ),
        (
            entry(checks={"stuck_error_seconds": 299}),
            "checks.stuck_warn_seconds: expected at most stuck_error_seconds, which is 299, got",
        ),
        (entry(tables={"only": ["a.b"]}), "tables.only: unknown key; known here: exclude, include"),
        (entry(schedules={"sync": "off"}), "schedules.sync: unknown key; known here: maintenance"),
        (
            entry(schedules={"verify": "0 25 * * *"}),
            "schedules.verify: expected a cron text (minute hour day month weekday, in UTC) or off "
            "('25' is no hour (0 to 23, with * or low-high, each with or without /step)), got "
            "'0 25 * * *'",
        ),
        (entry(retention={"raw": "1 day"}), "retention.raw: unknown key"),
        (entry(source=None), "source: missing; expected a mapping with either `kafka` or"),
        (entry(source={"kafka": KAFKA, "capture": "x"}), "source: expected a mapping with either"),
        (entry(source={"kafka": KAFKA, "partitions": {"a": 1}}), "source.partitions: expected no"),
        (entry(source={"kafka": "h:1"}), "source.kafka: expected a mapping with"),
        (entry(source={"capture": ""}), "source.capture: expected the path of a capture file"),
        (entry(source={"capture": {}}), "source.capture: expected the path of a capture file"),
        (entry(source={"capture": "a", "partitions": [1]}), "source.partitions: expected a mapp"),
        (entry(source={"capture": "a", "partitions": {"t": 0}}), "source.partitions.t: expected"),
        (entry(lag_wan_seconds=1), "lag_wan_seconds: unknown key (did you mean 'lag_warn_seco"),
    ],
)
def test_mistake_is_told_by_its_key(wrong: dict[str, Any], message: str) -> None:
    assert mistake(wrong).startswith(f"changefeeds[0].{message}")


def test_duplicate_name_names_the_other() -> None:
    assert mistake(entry(), entry(name="b"), entry()) == (
        "changefeeds[2].name: expected a name other than that of changefeeds[0], got 'shop'"
    )


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(entry(name="A", timezone="x"), 7, kafka(topics=[], options={"group.id": "a"}))
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{PATH} has 5 mistakes:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "changefeeds[0].name",
        "changefeeds[0].timezone",
        "changefeeds[1]",
        "changefeeds[2].source.kafka.options.group.id",
        "changefeeds[2].source.kafka.topics",
    ]


def test_mistakes_stand_in_the_order_of_the_reference() -> None:
    wrong = kafka(topics=[]) | {"name": "A", "compression": "x", "claim_check": 1, "retention": 1}
    wrong |= {"lag_error_seconds": 0, "owners": [], "checks": 1, "schedules": 1, "tables": 1}
    with pytest.raises(ConfigError) as caught:
        parse(wrong | {"max_ahead_seconds": 0})
    told = [line.split(":")[0].split(".")[1] for line in str(caught.value).splitlines()[1:]]
    keys = [key for key, _ in fields_of(Changefeed).values()]
    assert told == [
        key for key in keys if key in {*wrong, "max_ahead_seconds"} - {"format", "timezone"}
    ]


REMOTE = "kafka.example:9093"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
WHO = {"sasl.username": "u", "sasl.password": {"env": "PASSWORD"}}
PASSWORD = {"PASSWORD": "p"}


@pytest.mark.parametrize(
    ("servers", "options", "message"),
    [
        (REMOTE, {}, "security.protocol: missing; expected one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
        (REMOTE, None, "security.protocol: missing; expected one of"),
        ("127.0.0.1:1", WHO, "security.protocol: missing, while sasl.password is set"),
        (REMOTE, {"security.protocol": "TLS"}, "security.protocol: expected one of PLAINTEXT"),
        (
            REMOTE,
            {"security.protocol": "PLAINTEXT"} | WHO,
            "security.protocol: expected another protocol, as sasl.password is set",
        ),
        (REMOTE, SASL, None),
        (
            REMOTE,
            SASL | {"sasl.username": "u", "sasl.mechanism": "scram-sha-512"},
            "sasl.password: missing; SCRAM-SHA-512 needs it",
        ),
        (REMOTE, {"security.protocol": "SASL_SSL"} | WHO, "sasl.mechanism: missing; expected one"),
        (REMOTE, SASL | WHO | {"sasl.mechanisms": "PLAIN"}, "sasl.mechanisms: the same as sasl"),
    ],
)
def test_how_to_talk_to_the_broker_is_said_without_contradiction(
    servers: str, options: dict[str, Any] | None, message: str | None
) -> None:
    wrong = kafka(bootstrap_servers=servers, options=options)
    if message is None:
        with pytest.raises(ConfigError, match=r"(?s)sasl\.username: missing.*password: missing"):
            parse(wrong)
    else:
        said = mistake(wrong, env=PASSWORD)
        assert said.startswith(f"changefeeds[0].source.kafka.options.{message}")


@pytest.mark.parametrize(
    ("servers", "options"),
    [
        ("127.0.0.1:1", None),
        ("localhost:1", {}),
        (REMOTE, {"security.protocol": "plaintext"}),
        (REMOTE, {"security.protocol": "SSL"}),
        (REMOTE, SASL | WHO),
    ],
)
def test_what_is_enough_to_talk_to_a_broker(servers: str, options: dict[str, Any] | None) -> None:
    given = kafka(bootstrap_servers=servers, options=options)
    assert source_of(given, env=PASSWORD).topics == ("shop",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": changefeeds: missing; expected a non-empty list of changefeeds"),
        ("changefeeds: []", ": changefeeds: expected a non-empty list of changefeeds, got []"),
        ("- a", ": the file: expected a mapping with `changefeeds`, got ['a']"),
        ("changefeed: []", ": changefeed: unknown key (did you mean 'changefeeds'?)"),
        # A tag builds nothing.
        (
            "changefeeds: !!python/object/apply:os.system [exit]",
            ": changefeeds[0]: expected a changefeed",
        ),
        ("changefeeds:\n  - name: [a\n", ", line 3, column 1: not valid YAML"),
        ("changefeeds: 1\nchangefeeds: 2\n", ", line 2, column 1: not valid YAML: the key 'change"),
        ("changefeeds:\n\t- a", ", line 2, column 1: not valid YAML"),
        ("a: &x [*x]", ", line 1, column 4: not valid YAML"),
        ("a: *x", ", line 1, column 4: not valid YAML"),
        (
            "a: 1\n---\nb: 2\n",
            ", line 2, column 1: not valid YAML: expected a single document in the stream, but",
        ),
        (
            "topics:\n  - {schema}_{table}\n",
            ", line 2, column 13: not valid YAML: expected <block end>, but found '<scalar>'; "
            'patterns of topics have to be quoted, like "{schema}_{table}"',
        ),
        (b"a: \xff", ", position 3: not valid YAML"),
        ("a: \0", ", position 3: not valid YAML"),
        pytest.param("[" * 1_000, ": not valid YAML: nested too deeply", id="depth"),
    ],
)
def test_files_that_hold_no_changefeeds_say_where(text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_changefeeds(text, path=PATH, env={})
    assert str(caught.value).startswith(f"{PATH}{message}")


KEYS = "changefeeds name format timezone source kafka capture env partitions bootstrap_servers"
NODES = st.recursive(
    st.text(max_size=6) | st.sampled_from(["UTC", "simple-json", "PLAINTEXT", "h:1", "shop"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*KEYS.split(), "topics", "options", "security.protocol", "?"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(NODES)
def test_any_document_gives_changefeeds_or_config_error(document: Any) -> None:
    text = yaml.safe_dump({"changefeeds": document}, allow_unicode=True)
    try:
        feeds = parse_changefeeds(text, path=PATH, env={})
    except ConfigError:
        return
    assert feeds


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_give_changefeeds_or_config_error(content: bytes | str) -> None:
    with pytest.raises(ConfigError):
        parse_changefeeds(content, path=PATH, env={})


# --- files ---


def test_missing_file_says_how_to_name_another(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError, match=rf"{path} does not exist.*TICDC_CHANGEFEEDS"):
        load_settings({"TICDC_CHANGEFEEDS": str(path)})


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_settings({"TICDC_CHANGEFEEDS": str(tmp_path)})


def test_a_lake_is_a_folder_or_a_uri(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"TICDC_LAKE: expected a folder or a URI.*ftp://bucket"):
        load_settings(_lake(tmp_path, "ftp://bucket/lake"))
    settings = load_settings(_lake(tmp_path, "s3://bucket/lake/") | {"AWS_REGION": "here"})
    assert str(settings.lake) == "s3://bucket/lake"
    assert settings.home({}) == tmp_path / ".dagster_home"


@pytest.mark.parametrize(
    "name", ["a%20b", "feature%2fone", "a\\b", "a\x7fb", "lake[1]", "a|b", "a^b"]
)
def test_a_lake_whose_path_delta_rs_cannot_read_is_refused(tmp_path: Path, name: str) -> None:
    for lake in (str(tmp_path / name / "lake"), f"s3://bucket/{name}"):
        with pytest.raises(ConfigError, match=r"TICDC_LAKE: the lake is .*, and delta-rs cannot"):
            load_settings(_lake(tmp_path, lake) | {"AWS_REGION": "here"})
    # In a URI, line breaks and tabs have no meaning.
    for name in ("a\nb", "a\rb", "a\tb"):
        with pytest.raises(ConfigError, match="delta-rs cannot read") as refused:
            load_settings(_lake(tmp_path, str(tmp_path / name)))
        assert "\n" not in str(refused.value)
    odd = tmp_path / "a b%zz#(1)é?100%"
    assert load_settings(_lake(tmp_path, str(odd))).lake == odd


def test_paths_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    far = f"/tmp/{'a' * 300}/lake"
    with pytest.raises(ConfigError, match=r"TICDC_LAKE: the lake is /tmp/a+/lake, which cannot be"):
        load_settings(_lake(tmp_path, far))
    for variable in ("TICDC_LAKE", "TICDC_CHANGEFEEDS"):
        env = _lake(tmp_path, str(tmp_path)) | {variable: "~no-such-user/x"}
        with pytest.raises(ConfigError, match=f"{variable}: '~no-such-user/x' begins with"):
            load_settings(env)
    with pytest.raises(ConfigError, match=r"source\.capture: expected the path of a capture file"):
        parse(entry(source={"capture": "~no-such-user/x"}))


def _lake(folder: Path, uri: str, storage: str = "") -> dict[str, str]:
    path = folder / "changefeeds.yaml"
    path.write_text(_ENTRY + storage)
    return {"TICDC_LAKE": uri, "TICDC_CHANGEFEEDS": str(path)}


_ENTRY = """
changefeeds:
  - {name: feed, format: craft, timezone: UTC, source: {capture: c.jsonl}}
"""


def test_the_store_of_a_lake(tmp_path: Path) -> None:
    storage = """
storage:
  endpoint: http://127.0.0.1:9000/
  region: here
  path_style: false
  access_key: {env: KEY}
  secret_key: {env: SECRET}
"""
    env = _lake(tmp_path, "s3://bucket/lake", storage) | {"KEY": "hunter1", "SECRET": "hunter2"}
    settings = load_settings(env)
    assert lake_path(env) == settings.lake
    assert isinstance(settings.lake, RemotePath)
    assert settings.lake.store.storage == Storage(
        endpoint="http://127.0.0.1:9000",
        region="here",
        path_style=False,
        access_key="hunter1",
        secret_key="hunter2",
    )
    assert "hunter" not in repr(settings)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("secret_key: hunter2", "storage.secret_key: expected {env: NAME}"),
        ("secret_key: {env: NOWHERE}", "storage.secret_key: the environment variable 'NOWHERE'"),
        ("endpoint: hunter2", "storage.endpoint: expected a URL like"),
        ("path_style: maybe", "storage.path_style: expected true or false"),
        ("endpont: http://h", "storage.endpont: unknown key (did you mean 'endpoint'?)"),
    ],
)
def test_mistakes_of_a_store(tmp_path: Path, line: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_settings(_lake(tmp_path, "s3://bucket/lake", f"storage:\n  {line}\n"))
    assert mistake in str(error.value)


def test_a_folder_has_no_store(tmp_path: Path) -> None:
    env = _lake(tmp_path, str(tmp_path / "lake"), "storage: {region: here}\n")
    assert load_settings(env).lake == tmp_path / "lake"


def test_tables_with_history_are_chosen_by_name() -> None:
    (feed,) = parse(entry(history="all"))
    assert feed.keeps_history("any", "where")
    assert not feed.soft_delete
    (feed,) = parse(entry(history=["shop.orders", "crm.*", "*.log_*"], soft_delete=["a.b.c"]))
    assert feed.history == TableChoice(("shop.orders", "crm.*", "*.log_*"))
    kept = {
        ("shop", "orders"): True,
        ("SHOP", "Orders"): True,
        ("shop", "orders2"): False,
        ("crm", "a.b"): True,
        ("x", "log_1"): True,
        ("x", "a_log_1"): False,
        ("a", "b.c"): True,
        ("shop", "ordersX"): False,
    }
    assert {name: feed.keeps_history(*name) for name in kept} == kept
    assert not feed.history.includes("a", "b.c")
    assert not parse(entry())[0].keeps_history("shop", "orders")


# --- one wrong entry beside others ---


def test_entries_with_mistakes_may_be_left_out_and_told(tmp_path: Path) -> None:
    env = write(
        tmp_path,
        entry(name="right"),
        entry(name="wrong", format="simple-jsn", timezone="Nowhere"),
        entry(name="right", format="craft"),
        "no mapping",
        entry(name="secret", source={"kafka": {**KAFKA, "topics": []}}),
        entry(name="last"),
    )
    settings = load_settings(env, partly=True)
    assert [changefeed.name for changefeed in settings.changefeeds] == ["right", "last"]
    assert settings.changefeed("right").wire_format == "simple-json"
    assert [(item.name, item.position, len(item.mistakes)) for item in settings.wrong] == [
        ("wrong", "changefeeds[1]", 2),
        ("", "changefeeds[2]", 1),
        ("", "changefeeds[3]", 1),
        ("secret", "changefeeds[4]", 1),
    ]
    # Whoever is there to mend them is told all of them at once.
    with pytest.raises(ConfigError, match="has 5 mistakes"):
        load_settings(env)


def test_a_mistake_that_is_no_entrys_own_is_never_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "changefeeds.yaml"
    for text in ("changefeeds: []", "changefeeds: [", "other: 1\nchangefeeds:\n- name: x\n", ""):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError):
            load_settings({"TICDC_CHANGEFEEDS": str(path)}, partly=True)


# --- the reference ---


def reference(model: Any, prefix: str = "") -> Iterator[str]:
    """The rows of the reference's table of keys, as the models tell them."""
    for key, field in fields_of(model).values():
        if key == "source":
            yield from reference(SourceKeys, "source.")
        elif any(isinstance(marker, Keys) for marker in field.metadata):
            yield from reference(field.annotation, f"{prefix}{key}.")
        elif field.description:
            yield f"| `{prefix}{key}` | {field.description} |"


def test_readme_lists_the_keys_as_the_models_describe_them(root: Path) -> None:
    _, table = (
        (root / "docs" / "reference.md")
        .read_text(encoding="utf-8")
        .split("| key | what |\n|---|---|\n")
    )
    assert table.partition("\n\n")[0].splitlines() == list(reference(Changefeed))
