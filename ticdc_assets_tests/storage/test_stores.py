"""What Arrow, delta-rs, obstore and Hadoop are told of a lake's URI; nothing is connected to."""

import pickle
import sys

import pytest

from ticdc_assets.base.errors import ConfigError, PrerequisiteError
from ticdc_assets.spark.jars import SPARK_JARS, spark_jars
from ticdc_assets.storage.paths import remote_path
from ticdc_assets.storage.stores import Storage, Store, files_at

KEYS = {"access_key": "an-id", "secret_key": "hidden", "session_token": "hidden too"}
AZURE = "abfss://box@acc.dfs.core.windows.net/lake"


def store(uri: str, **storage: str | bool) -> Store:
    return remote_path(uri, Storage(**storage), {"AWS_REGION": "eu-west-1"}).store  # type: ignore[arg-type]


def test_an_s3_of_ones_own_is_told_to_all_three() -> None:
    found = store("s3://box/a", endpoint="http://127.0.0.1:9000", region="here", **KEYS)
    assert found.arrow_options() == {
        "access_key": "an-id",
        "secret_key": "hidden",
        "session_token": "hidden too",
        "region": "here",
        "scheme": "http",
        "endpoint_override": "127.0.0.1:9000",
        "force_virtual_addressing": False,
    }
    assert found.delta_options() == {
        "aws_access_key_id": "an-id",
        "aws_secret_access_key": "hidden",
        "aws_session_token": "hidden too",
        "aws_region": "here",
        "aws_endpoint_url": "http://127.0.0.1:9000",
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "aws_conditional_put": "etag",
    }
    assert found.spark_settings() == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "here",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    assert found.hadoop_secrets() == {
        "fs.s3a.access.key": "an-id",
        "fs.s3a.secret.key": "hidden",
        "fs.s3a.session.token": "hidden too",
    }


def test_amazons_s3_with_the_platforms_credentials() -> None:
    found = store("s3://box/a")
    assert found.arrow_options() == {"region": "eu-west-1", "force_virtual_addressing": True}
    options = found.delta_options()
    assert "aws_access_key_id" not in options
    assert options["aws_virtual_hosted_style_request"] == "true"
    provider = found.spark_settings()["spark.hadoop.fs.s3a.aws.credentials.provider"]
    assert provider.endswith("DefaultCredentialsProvider")
    assert found.hadoop_secrets() == {}


def test_an_azure_account() -> None:
    found = store(AZURE, account_key="hidden")
    assert found.arrow_options() == {"account_key": "hidden", "account_name": "acc"}
    assert found.inside("lake/x") == "box/lake/x"
    assert found.delta_options() == {
        "azure_storage_account_name": "acc",
        "azure_storage_account_key": "hidden",
    }
    assert found.hadoop_secrets() == {"fs.azure.account.key.acc.dfs.core.windows.net": "hidden"}


def test_an_azure_service_principal() -> None:
    found = store(AZURE, tenant_id="t", client_id="c", client_secret="hidden")
    shown = found.spark_settings()
    prefix, account = "spark.hadoop.fs.azure.account", "acc.dfs.core.windows.net"
    assert shown[f"{prefix}.auth.type.{account}"] == "OAuth"
    assert shown[f"{prefix}.oauth2.client.endpoint.{account}"].endswith("/t/oauth2/token")
    assert "hidden" not in str(shown)
    assert found.hadoop_secrets() == {f"fs.azure.account.oauth2.client.secret.{account}": "hidden"}


def test_google_and_hdfs() -> None:
    assert store("gs://box/a").arrow_options() == {}
    found = store("hdfs://name:8020/lake")
    assert (found.arrow_options(), found.delta_options()) == ({}, {})
    assert found.inside("lake/x") == "/lake/x"


@pytest.mark.parametrize(
    ("uri", "storage"),
    [
        ("s3://box/a", {"endpoint": "http://127.0.0.1:9000", "region": "here", **KEYS}),
        ("s3://box/a", {"endpoint": "https://127.0.0.1:9000", "path_style": False}),
        ("s3://box/a", {}),
        ("gs://box/a", {}),
        (AZURE, {"account_key": "aGlkZGVu"}),
        (AZURE, {"tenant_id": "t", "client_id": "c", "client_secret": "hidden"}),
    ],
)
def test_obstore_takes_what_delta_rs_takes(uri: str, storage: dict[str, str | bool]) -> None:
    found = store(uri, **storage)
    options = found.delta_options()
    http = options.pop("aws_allow_http", None)
    client = found.objects
    assert found.objects is client
    assert (client.client_options or {}).get("allow_http") == http
    taken: dict[str, str] = {**client.config}
    assert taken.pop("bucket", None) == (None if found.scheme == "abfss" else "box")
    assert taken.pop("container_name", None) == ("box" if found.scheme == "abfss" else None)
    # It has shorter names for the same keys.
    assert sorted(taken.values()) == sorted(options.values())
    assert "hidden" not in repr(client)


def test_obstore_says_what_it_does_not_take() -> None:
    with pytest.raises(OSError, match=r"abfss://box@acc.* Invalid Access Key") as error:
        _ = store(AZURE, account_key="hidden!").objects
    assert "hidden" not in str(error.value)


def test_hdfs_needs_a_package_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ticdc_assets.storage.hdfs", raising=False)
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(PrerequisiteError, match=r"hdfs://name:1 needs .* the extra hdfs"):
        _ = store("hdfs://name:1/lake").files
    with pytest.raises(PrerequisiteError, match=r"the extra hdfs"):
        files_at("hdfs://name:1/claims")


def test_a_folder_needs_no_jars_but_deltas() -> None:
    assert spark_jars(None) is SPARK_JARS
    assert spark_jars("hdfs") is SPARK_JARS
    assert any("hadoop-aws" in item for item in spark_jars("s3").coordinates)


@pytest.mark.parametrize(
    ("uri", "storage", "said"),
    [
        ("ftp://box/a", {}, "expected a folder or a URI of s3://"),
        ("s3:///a", {}, "expected a bucket"),
        ("hdfs:///a", {}, "expected a host or a name service"),
        ("s3://id:hidden@box/a", {}, "credentials are given by the block storage"),
        ("s3://box/a?secret=hidden", {}, "expected only a bucket and a prefix"),
        ("s3://box/../a", {}, "expected only a bucket and a prefix"),
        ("abfss://box/a", {}, "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"),
        ("s3://box/a", {"account_key": "hidden"}, "storage.account_key: a lake at s3://"),
        ("gs://box/a", {"endpoint": "http://h"}, "storage.endpoint: a lake at gs://"),
        ("s3://box/a", {"access_key": "hidden"}, "access_key and secret_key belong together"),
    ],
)
def test_what_is_no_lake(uri: str, storage: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        store(uri, **storage)
    assert said in str(error.value)
    assert "hidden" not in str(error.value)


def test_a_region_has_to_be_known_of_amazons() -> None:
    with pytest.raises(ConfigError, match=r"storage\.region: missing"):
        remote_path("s3://box", Storage(), {})


def test_no_secret_is_shown() -> None:
    path = remote_path("s3a://box/a/", Storage(region="r", **KEYS), {}) / "t"
    for text in (repr(path), str(path), repr(path.store), repr(path.store.storage)):
        assert "hidden" not in text
        assert "an-id" not in text
    assert str(path) == "s3://box/a/t"
    again = pickle.loads(pickle.dumps(path))
    assert again == path
    assert again.store.storage == path.store.storage
