"""The changefeeds file: what is read, and that every mistake is told by its key."""

import pickle
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.config import (
    WIRE_FORMATS,
    CaptureSource,
    Changefeed,
    ClaimCheck,
    KafkaSource,
    Retention,
    TableChoice,
    is_loopback,
    load_settings,
    parse_changefeeds,
)
from ticdc_assets.errors import ConfigError, NotFoundError
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
    (tmp_path / "changefeeds.yaml").write_text(yaml.safe_dump({"changefeeds": [entry()]}))
    settings = load_settings({})
    assert settings.path == tmp_path / "changefeeds.yaml"
    assert settings.lake == tmp_path / ".lake"
    assert load_settings({"TICDC_LAKE": "elsewhere"}).lake == tmp_path / "elsewhere"


def test_changefeed_by_name() -> None:
    feeds = parse(entry(), entry(name="orders"))
    assert [feed.name for feed in feeds] == ["shop", "orders"]


def test_unknown_changefeed_lists_the_names(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"changefeeds": [entry(), entry(name="orders")]}))
    settings = load_settings({"TICDC_CHANGEFEEDS": str(path)})
    with pytest.raises(NotFoundError, match=r"'order'.*did you mean 'orders'.*shop, orders"):
        settings.changefeed("order")


def test_capture_is_relative_to_the_file() -> None:
    source = parse(entry(source={"capture": "in/m.jsonl.gz", "partitions": {"shop": 3}}))[0].source
    assert source == CaptureSource(path=PATH.parent / "in/m.jsonl.gz", partitions={"shop": 3})
    absolute = parse(entry(source={"capture": "/data/m.jsonl"}))[0].source
    assert absolute == CaptureSource(path=Path("/data/m.jsonl"))


def test_capture_as_a_mapping() -> None:
    spelled = {"capture": {"path": "m.jsonl", "partitions": {"shop": 3}}}
    flat = {"capture": "m.jsonl", "partitions": {"shop": 3}}
    assert parse(entry(source=spelled)) == parse(entry(source=flat))


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
        text = yaml.safe_dump({"changefeeds": [entry(retention=retention)]})
        return parse_changefeeds(text, path=PATH, env={})[0].retention

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


@pytest.mark.parametrize("wire_format", WIRE_FORMATS)
def test_messages_are_plain_by_default(wire_format: str) -> None:
    plain = entry(format=wire_format)
    (feed,) = parse(plain)
    assert (feed.compression, feed.claim_check) == (Compression.NONE, None)
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


# --- secrets ---


def test_credentials_in_the_location_of_claim_checks_are_not_shown() -> None:
    location = "s3://hunter2:hunter3@bucket/large?token=hunter4"
    literal, referred = parse(
        entry(claim_check={"location": location}),
        entry(name="other", claim_check={"location": {"env": "LOCATION"}}),
        env={"LOCATION": location},
    )
    assert literal.claim_check is not None
    assert literal.claim_check == referred.claim_check
    assert literal.claim_check.location == location
    assert literal.claim_check.shown == "s3://bucket/large"
    assert "hunter" not in repr((literal, referred))
    for wrong in ("ftp://hunter2:hunter3@host/x", "ftp://[hunter2@x/y"):
        for spelled in (wrong, {"env": "LOCATION"}):
            message = mistake(entry(claim_check={"location": spelled}), env={"LOCATION": wrong})
            assert message.startswith("changefeeds[0].claim_check.location: expected the path")
            assert "hunter" not in message


def test_env_values_are_resolved_and_not_shown() -> None:
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": {"env": "USER_NAME"},
        "sasl.password": "literal-hunter2",
        "ssl.key.password": {"env": "KEY_PASSWORD"},
    }
    env = {"USER_NAME": "env-alice", "KEY_PASSWORD": "env-hunter3"}
    feeds = parse(kafka(options=options), env=env)
    source = feeds[0].source
    assert isinstance(source, KafkaSource)
    assert source.options["sasl.username"].value == "env-alice"
    assert source.options["sasl.password"].value == "literal-hunter2"
    for shown in (repr(feeds), str(source.options["ssl.key.password"]), f"{source.options}"):
        assert not re.search("hunter|alice", shown)
    assert "{env: USER_NAME}" in repr(feeds)
    assert pickle.loads(pickle.dumps(feeds)) == feeds


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


# --- what is refused ---


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (kafka(topics=[]), "source.kafka.topics: expected a non-empty list of names, got []"),
        (kafka(topics="shop"), "source.kafka.topics: expected a non-empty list of names, got 'sh"),
        (kafka(topics=["a", "a b"]), "source.kafka.topics[1]: expected a topic name"),
        (kafka(topics=["a", ".."]), "source.kafka.topics[1]: expected a topic name"),
        (kafka(topics=["a", "b", "a"]), "source.kafka.topics[2]: expected each topic once, got"),
        (kafka(bootstrap_servers=None), "source.kafka.bootstrap_servers: missing; expected host"),
        (kafka(bootstrap_servers="h"), "source.kafka.bootstrap_servers: expected host:port"),
        (kafka(bootstrap_servers="h:0"), "source.kafka.bootstrap_servers: expected host:port"),
        (kafka(bootstrap_servers="h:65536"), "source.kafka.bootstrap_servers: expected host:port"),
        (kafka(bootstrap_servers="h:²"), "source.kafka.bootstrap_servers: expected host:port"),
        (kafka(bootstrap_servers=","), "source.kafka.bootstrap_servers: expected host:port"),
        (kafka(options=[1]), "source.kafka.options: expected a mapping of client options"),
        (kafka(options={"x": ""}), "source.kafka.options.x: expected a value or {env: NAME}, got"),
        (kafka(options={"group.id": "g"}), "source.kafka.options.group.id: not to be set here"),
        (kafka(topic=["a"]), "source.kafka.topic: unknown key (did you mean 'topics'?)"),
        (entry(name="Shop"), "name: expected 1 to 64 of a-z, 0-9 and _, not starting with _"),
        (entry(name="../x"), "name: expected 1 to 64 of a-z"),
        (entry(name="_x"), "name: expected 1 to 64 of a-z"),
        (entry(name=None), "name: missing; expected 1 to 64 of a-z"),
        (entry(name=["a"]), "name: expected 1 to 64 of a-z"),
        (entry(format="avro"), "format: expected one of simple-json"),
        (entry(format=["simple-json"]), "format: expected one of simple-json"),
        (entry(format="simple"), "format: expected one of simple-json, simple-avro, open-protocol"),
        (entry(compression="gzip"), "compression: expected one of none, lz4, snappy, got 'gzip'"),
        (entry(compression=["lz4"]), "compression: expected one of none, lz4, snappy, got ['lz4']"),
        (entry(compression=""), "compression: expected one of none, lz4, snappy, got ''"),
        (
            entry(format="craft", compression="lz4"),
            "compression: expected none, as craft has no compression, got 'lz4'",
        ),
        (
            entry(format="craft", claim_check={"location": "x"}),
            "claim_check: not to be set: craft has no claim checks",
        ),
        (entry(claim_check="x"), "claim_check: expected a mapping with `location`, got 'x'"),
        (entry(claim_check={}), "claim_check.location: missing; expected the path of a folder"),
        (
            entry(claim_check={"location": ""}),
            "claim_check.location: expected the path of a folder",
        ),
        (
            entry(claim_check={"location": " "}),
            "claim_check.location: expected the path of a folde",
        ),
        (
            entry(claim_check={"location": "a\0b"}),
            "claim_check.location: expected the path of a fol",
        ),
        (
            entry(claim_check={"location": ["x"]}),
            "claim_check.location: expected the path of a fol",
        ),
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
        (entry(timezone="Mars/Base"), "timezone: expected the IANA name"),
        (entry(timezone="../../etc/passwd"), "timezone: expected the IANA name"),
        (entry(timezone="America"), "timezone: expected the IANA name"),
        (entry(lag_warn_seconds=0), "lag_warn_seconds: expected a number of seconds above 0"),
        (entry(lag_warn_seconds="1e3"), "lag_warn_seconds: expected a number of seconds above 0"),
        (entry(lag_error_seconds=-1), "lag_error_seconds: expected a number of seconds above 0"),
        (entry(lag_warn_seconds=901), "lag_warn_seconds: expected at most lag_error_seconds"),
        (entry(retention="90 days"), "retention: expected a mapping with any of `raw_messages`"),
        (entry(retention={"cuts": "90"}), "retention.cuts: expected a time like `90 days`"),
        (entry(retention={"cuts": "0 days"}), "retention.cuts: expected a time like `90 days`"),
        (entry(retention={"raw": "1 day"}), "retention.raw: unknown key"),
        (entry(source=None), "source: missing; expected a mapping with either `kafka` or"),
        (entry(source={}), "source: expected a mapping with either `kafka` or `capture`, got []"),
        (entry(source={"kafka": KAFKA, "capture": "x"}), "source: expected a mapping with either"),
        (entry(source={"kafka": KAFKA, "partitions": {"a": 1}}), "source.partitions: expected no"),
        (entry(source={"kafka": "h:1"}), "source.kafka: expected a mapping with"),
        (entry(source={"capture": ""}), "source.capture: expected the path of a capture file"),
        (entry(source={"capture": {}}), "source.capture.path: missing; expected the path"),
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


def test_every_format_is_read() -> None:
    assert tuple(WireFormat) == WIRE_FORMATS
    for name in WIRE_FORMATS:
        assert parse(entry(format=name))[0].wire_format == name


REMOTE = "kafka.example:9093"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
WHO = {"sasl.username": "u", "sasl.password": "p"}


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
        (REMOTE, SASL | {"sasl.username": "u"}, "sasl.password: missing; SCRAM-SHA-512 needs it"),
        (REMOTE, {"security.protocol": "SASL_SSL"} | WHO, "sasl.mechanism: missing; expected one"),
        (REMOTE, SASL | WHO | {"sasl.mechanisms": "PLAIN"}, "sasl.mechanisms: the same as sasl"),
    ],
)
def test_how_to_talk_to_the_broker_is_said_without_contradiction(
    servers: str, options: dict[str, str] | None, message: str | None
) -> None:
    wrong = kafka(bootstrap_servers=servers, options=options)
    if message is None:
        with pytest.raises(ConfigError, match=r"(?s)sasl\.username: missing.*password: missing"):
            parse(wrong)
    else:
        assert mistake(wrong).startswith(f"changefeeds[0].source.kafka.options.{message}")


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
def test_what_is_enough_to_talk_to_a_broker(servers: str, options: dict[str, str] | None) -> None:
    assert source_of(kafka(bootstrap_servers=servers, options=options)).topics == ("shop",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "changefeeds: missing; expected a non-empty list of changefeeds"),
        ("changefeeds: []", "changefeeds: expected a non-empty list of changefeeds, got []"),
        ("- a", "the file: expected a mapping with `changefeeds`, got ['a']"),
        ("changefeed: []", "changefeed: unknown key (did you mean 'changefeeds'?)"),
    ],
)
def test_files_that_hold_no_changefeeds(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_changefeeds(text, path=PATH, env={})
    assert str(caught.value).startswith(f"{PATH}: {message}")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("changefeeds:\n  - name: [a\n", "line 3, column 1: not valid YAML"),
        ("changefeeds: 1\nchangefeeds: 2\n", "line 2, column 1: not valid YAML: the key 'change"),
        ("changefeeds:\n\t- a", "line 2, column 1: not valid YAML"),
        ("a: &x [*x]", "line 1, column 4: not valid YAML"),
        ("a: *x", "line 1, column 4: not valid YAML"),
        (b"a: \xff", "position 3: not valid YAML"),
        ("a: \0", "position 3: not valid YAML"),
    ],
)
def test_yaml_errors_say_where(text: str | bytes, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_changefeeds(text, path=PATH, env={})
    assert str(caught.value).startswith(f"{PATH}, {where}")


def test_tags_build_nothing() -> None:
    text = "changefeeds: !!python/object/apply:os.system [exit]"
    with pytest.raises(ConfigError, match=r"changefeeds\[0\]: expected a changefeed"):
        parse_changefeeds(text, path=PATH, env={})


def test_depth_is_no_crash() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        parse_changefeeds("[" * 1_000, path=PATH, env={})


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


def test_lake_is_a_path_of_this_machine() -> None:
    with pytest.raises(ConfigError, match=r"TICDC_LAKE: expected a path.*s3://bucket"):
        load_settings({"TICDC_LAKE": "s3://bucket/lake"})


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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("some", "history: expected all, or a non-empty list of database.table, got 'some'"),
        ([], "history: expected all, or a non-empty list of database.table, got []"),
        (["orders"], "history[0]: expected database.table, in which * stands for"),
        ([".orders"], "history[0]: expected database.table, in which * stands for"),
        (["a.b", "a.b"], "history[1]: expected each table once, got 'a.b'"),
    ],
)
def test_what_is_no_choice_of_tables_is_told(value: Any, expected: str) -> None:
    assert expected in mistake(entry(history=value))
