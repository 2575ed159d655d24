"""The store of a lake that is a URI, as settings of each library that reads or writes it.

No other module turns a URI into any of these. Credentials are in `Storage` alone, which shows none
of them; it is pickled with paths for Spark's workers. This module connects to nothing.

Not handled: several stores in one lake; object versions; requester pays; access tokens of Google
and SAS tokens of Azure, instead of which the platform's own credentials serve. An HDFS has no
settings here: all three libraries read Hadoop's own files and variables.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote, urlsplit

from ticdc_assets.base.errors import ConfigError, PrerequisiteError, shorten

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyarrow.fs import FileSystem

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Storage:
    """How to reach the store of a lake; the platform decides what is None."""

    # Of an S3: `endpoint` is the URL of one other than Amazon's, `path_style` says whether buckets
    # are in the path instead of the host's name, and `session_token` belongs to temporary keys.
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    # Of an Azure account, or of a service principal.
    account_key: str | None = None
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = None

    def __repr__(self) -> str:
        return f"Storage(endpoint={self.endpoint!r}, region={self.region!r}, …)"

    @property
    def given(self) -> frozenset[str]:
        """The names of the keys that are set."""
        return frozenset(name for name in self.__slots__ if getattr(self, name) is not None)


_OF_AZURE = frozenset({"account_key", "tenant_id", "client_id", "client_secret"})

USED: Final[Mapping[str, frozenset[str]]] = {
    "s3": frozenset(Storage.__slots__) - _OF_AZURE,
    "gs": frozenset(),
    "abfss": _OF_AZURE,
    "hdfs": frozenset(),
}
"""The schemes of lakes, each with the keys that its store can use."""

_OTHER_NAMES = {"s3a": "s3"}
_S3_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AZURE_FORM = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"

_DEFAULT_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"


@dataclass(frozen=True, slots=True, order=True)
class Store:
    """The store of a URI.

    Attributes:
        scheme: one of `USED`.
        authority: the part between scheme and path: a bucket, a container of an account, a name
            node or a name service.
    """

    scheme: str
    authority: str
    storage: Storage = field(compare=False)

    @property
    def root(self) -> str:
        """Its URI."""
        return f"{self.scheme}://{self.authority}"

    @property
    def has_folders(self) -> bool:
        """Whether it is a file system: folders exist by themselves, and renames are atomic."""
        return self.scheme == "hdfs"

    @property
    def libraries(self) -> tuple[str, ...]:
        """The modules that reach it, besides those of every lake."""
        return ("hdfs_native",) if self.scheme == "hdfs" else ()

    @property
    def _account(self) -> str:
        """The host of an Azure account."""
        return self.authority.partition("@")[2]

    # Arrow ---------------------------------------------------------------------------------------

    @property
    def files(self) -> "FileSystem":
        """Arrow's file system, one for all callers in a process."""
        return _file_system(self, self.storage)

    def require_there(self) -> None:
        """Raise OSError if there is no such bucket; each is checked until it is there."""
        _require_there(self, self.storage)

    def inside(self, key: str) -> str:
        """Return the path of a key as that file system takes it."""
        if self.scheme == "hdfs":
            return f"/{key}"
        return f"{self.authority.partition('@')[0]}/{key}".rstrip("/")

    def arrow_options(self) -> dict[str, Any]:
        """Return the arguments of the file system."""
        storage = self.storage
        match self.scheme:
            case "s3":
                endpoint = urlsplit(storage.endpoint or "")
                options: dict[str, Any] = {
                    "region": storage.region,
                    "access_key": storage.access_key,
                    "secret_key": storage.secret_key,
                    "session_token": storage.session_token,
                    "force_virtual_addressing": not self._path_style,
                    "scheme": endpoint.scheme or None,
                    "endpoint_override": endpoint.netloc or None,
                }
            case "abfss":
                options = {name: getattr(storage, name) for name in _OF_AZURE}
                options["account_name"] = self._account.partition(".")[0]
            case _:
                options = {}
        return _given(options)

    @property
    def _path_style(self) -> bool:
        """Whether buckets are in the path: an S3 other than Amazon's seldom has hosts for them."""
        stated = self.storage.path_style
        return self.storage.endpoint is not None if stated is None else stated

    @property
    def _is_plain(self) -> bool:
        return (self.storage.endpoint or "").startswith("http://")

    # delta-rs ------------------------------------------------------------------------------------

    def delta_options(self) -> dict[str, str]:
        """Return the storage options for delta-rs."""
        storage = self.storage
        options: dict[str, str | None] = {}
        if self.scheme == "s3":
            options = {
                "aws_region": storage.region,
                "aws_endpoint_url": storage.endpoint,
                "aws_allow_http": _flag(self._is_plain),
                "aws_virtual_hosted_style_request": _flag(not self._path_style),
                "aws_access_key_id": storage.access_key,
                "aws_secret_access_key": storage.secret_key,
                "aws_session_token": storage.session_token,
                # A commit is only put where none is.
                "aws_conditional_put": "etag",
            }
        elif self.scheme == "abfss":
            options = {f"azure_storage_{name}": getattr(storage, name) for name in _OF_AZURE}
            options["azure_storage_account_name"] = self._account.partition(".")[0]
        return _given(options)

    # obstore -------------------------------------------------------------------------------------

    @property
    def objects(self) -> "ObjectStore":
        """The client of obstore for a bucket or a container, one for each in a process.

        It raises OSError if obstore does not accept the settings, or in a process that was forked
        after the first use of the client: a call would never return.
        """
        if _first_process() != os.getpid():
            raise OSError(f"{self.root}: a process that was forked cannot use obstore; spawn it")
        return _objects(self, self.storage)

    # Hadoop, for Spark ---------------------------------------------------------------------------

    def spark_settings(self) -> dict[str, str]:
        """Return the settings of a Spark session that reads it, without its secrets."""
        storage = self.storage
        settings: dict[str, str | None] = {}
        if self.scheme == "s3":
            settings |= {
                # The same URI everywhere: delta-rs and logs have it.
                "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
                "spark.hadoop.fs.s3a.endpoint": storage.endpoint,
                "spark.hadoop.fs.s3a.endpoint.region": storage.region,
                "spark.hadoop.fs.s3a.path.style.access": _flag(self._path_style),
                "spark.hadoop.fs.s3a.connection.ssl.enabled": _flag(not self._is_plain),
                "spark.hadoop.fs.s3a.aws.credentials.provider": (
                    _DEFAULT_CHAIN if storage.access_key is None else None
                ),
            }
        elif self.scheme == "abfss" and storage.client_id is not None:
            prefix, tenant = "spark.hadoop.fs.azure.account", quote(storage.tenant_id or "common")
            settings |= {
                f"{prefix}.auth.type.{self._account}": "OAuth",
                f"{prefix}.oauth.provider.type.{self._account}": _OAUTH,
                f"{prefix}.oauth2.client.id.{self._account}": storage.client_id,
                f"{prefix}.oauth2.client.endpoint.{self._account}": (
                    f"https://login.microsoftonline.com/{tenant}/oauth2/token"
                ),
            }
        return _given(settings)

    def hadoop_secrets(self) -> dict[str, str]:
        """Return the secrets among Hadoop's settings, which are set when the JVM runs.

        Settings of a session are on the JVM's command line, which everybody can read.
        """
        storage = self.storage
        secrets: dict[str, str | None] = {}
        if self.scheme == "s3":
            secrets = {
                "fs.s3a.access.key": storage.access_key,
                "fs.s3a.secret.key": storage.secret_key,
                "fs.s3a.session.token": storage.session_token,
            }
        elif self.scheme == "abfss":
            client = f"fs.azure.account.oauth2.client.secret.{self._account}"
            secrets = {
                f"fs.azure.account.key.{self._account}": storage.account_key,
                client: storage.client_secret,
            }
        return _given(secrets)


def _given(options: Mapping[str, _T | None]) -> dict[str, _T]:
    return {name: value for name, value in options.items() if value is not None}


def store_of(uri: str, storage: Storage, env: Mapping[str, str]) -> tuple[Store, str]:
    """Return the store of a lake's URI, and the key of the lake in it; see `paths.remote_path`."""
    parsed = urlsplit(uri)
    scheme = _OTHER_NAMES.get(parsed.scheme, parsed.scheme)
    if scheme not in USED:
        schemes = ", ".join(f"{name}://" for name in USED)
        raise ConfigError(f"expected a folder or a URI of {schemes}, got {shorten(uri)}")
    # What may be credentials is refused without showing it.
    container, _, account = parsed.netloc.partition("@")
    if scheme == "abfss":
        if not container or not account or ":" in parsed.netloc:
            raise ConfigError(f"a lake at abfss://: expected {_AZURE_FORM}")
    elif account or (":" in container and scheme != "hdfs"):
        raise ConfigError(
            f"a lake at {scheme}://: expected no @ or : before the path; credentials are given by "
            "the block storage"
        )
    elif not container:
        wanted = "a host or a name service" if scheme == "hdfs" else "a bucket"
        raise ConfigError(f"a lake at {scheme}://: expected {wanted} after it")
    parts = [part for part in parsed.path.split("/") if part]
    if parsed.query or parsed.fragment or {".", ".."} & set(parts):
        raise ConfigError(f"a lake at {scheme}://: expected only a bucket and a prefix")
    unused = sorted(storage.given - USED[scheme])
    if unused:
        raise ConfigError(f"storage.{unused[0]}: a lake at {scheme}:// does not use it")
    if (storage.access_key is None) != (storage.secret_key is None):
        raise ConfigError("storage: access_key and secret_key belong together")
    if scheme == "s3" and storage.region is None:
        # Without a region each library would guess another one.
        region = next((env[name] for name in _S3_REGIONS if env.get(name)), None)
        if region is None and storage.endpoint is None:
            raise ConfigError("storage.region: missing, and AWS_REGION is not set; set one of them")
        storage = replace(storage, region=region or "us-east-1")
    return Store(scheme, parsed.netloc, storage), "/".join(parts)


@lru_cache(maxsize=16)
def _require_there(store: Store, _: Storage) -> None:
    if store.files.get_file_info(store.inside("")).type.name == "NotFound":
        raise OSError(f"there is no {store.root}")


@lru_cache(maxsize=16)
def _file_system(store: Store, _: Storage) -> "FileSystem":
    # Stores are equal whatever their libraries, so the libraries are compared too.
    from pyarrow import fs

    options = store.arrow_options()
    match store.scheme:
        case "s3":
            # A small object is written by one request instead of three.
            return fs.S3FileSystem(**options, allow_delayed_open=True)
        case "gs":
            return fs.GcsFileSystem()
        case "abfss":
            return fs.AzureFileSystem(**options)
        case _:
            return _hdfs(store.root)


@lru_cache(maxsize=1)
def _first_process() -> int:
    """Return the process that first called this; a fork inherits the answer."""
    return os.getpid()


@lru_cache(maxsize=16)
def _objects(store: Store, _: Storage) -> "ObjectStore":
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    options = store.delta_options()
    # obstore and delta-rs are two bindings of one library, with the same keys but for this one.
    allow_http = options.pop("aws_allow_http", None)
    try:
        return from_url(
            store.root,
            config=cast("Any", options),
            client_options=None if allow_http is None else {"allow_http": allow_http == "true"},
        )
    except BaseError as error:
        raise OSError(f"{store.root}: {str(error).partition(chr(10))[0]}") from None


def _hdfs(root: str) -> "FileSystem":
    try:
        from ticdc_assets.storage.hdfs import hdfs_files
    except ImportError as error:
        raise PrerequisiteError(
            f"{root} needs the package hdfs-native ({error}); install ticdc-assets with the extra "
            "hdfs, and the group executors for the workers of a Spark cluster"
        ) from None
    return hdfs_files(root)


def files_at(uri: str) -> "tuple[FileSystem, str]":
    """Return Arrow's file system of a URI that is not a lake's, and the path in it.

    It raises PrerequisiteError if the package that reaches such a store is not installed, and
    Arrow's errors.
    """
    from pyarrow import fs

    parsed = urlsplit(uri)
    if parsed.scheme in ("hdfs", "viewfs"):
        return _hdfs(f"{parsed.scheme}://{parsed.netloc}"), parsed.path
    return fs.FileSystem.from_uri(uri)


def _flag(value: bool) -> str:
    return "true" if value else "false"
