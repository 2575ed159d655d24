"""A real S3 for tests: versitygw over a folder of this machine, which `make versitygw` builds once.

The gateway listens on a free port of 127.0.0.1, for as long as the tests run; each lake is a bucket
of its own. Where there is no gateway, the tests skip and say how it is built.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from ticdc_assets.base.ports import HOST, free_port
from ticdc_assets.storage.paths import RemotePath, remote_path
from ticdc_assets.storage.stores import Storage

VERSION: Final = "v1.8.0"
_ACCESS_KEY, _SECRET_KEY = "the-key-of-tests", "no-log-may-show-this"

SECRETS: Final = {"LAKE_ACCESS_KEY": _ACCESS_KEY, "LAKE_SECRET_KEY": _SECRET_KEY}
"""The variables that the changefeeds file names."""


@dataclass(frozen=True)
class S3Lake:
    """A lake in a bucket of its own.

    Attributes:
        endpoint: URL of the gateway.
        bucket: name of the bucket.
        folder: where the gateway keeps its objects as files.
    """

    endpoint: str
    bucket: str
    folder: Path

    @property
    def path(self) -> RemotePath:
        storage = Storage(endpoint=self.endpoint, access_key=_ACCESS_KEY, secret_key=_SECRET_KEY)
        return remote_path(f"s3://{self.bucket}/lake", storage, {})

    @property
    def block(self) -> dict[str, Any]:
        """What stands in the changefeeds file."""
        return {
            "endpoint": self.endpoint,
            "access_key": {"env": "LAKE_ACCESS_KEY"},
            "secret_key": {"env": "LAKE_SECRET_KEY"},
        }

    @property
    def secrets(self) -> dict[str, str]:
        """What programs find in their environment."""
        return SECRETS


@dataclass(frozen=True)
class Gateway:
    """A gateway that runs.

    Attributes:
        url: where it listens.
        pid: its process.
    """

    url: str
    pid: int


def find_gateway() -> Path | None:
    """Return the gateway's program, None if there is none."""
    found = _BUILT if _BUILT.is_file() else shutil.which("versitygw")
    return None if found is None else Path(found)


_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_BUILT: Final = _CACHE / "ticdc_assets_tools" / "versitygw" / VERSION / "versitygw"


def gateway_program() -> Path:
    """Return the gateway, or skip and say how it is built."""
    found = find_gateway()
    if found is None:
        pytest.skip(f"no versitygw at {_BUILT} or on PATH; `make versitygw` builds it, with Go")
    return found


@contextmanager
def running_gateway(folder: Path) -> Iterator[Gateway]:
    """Run a gateway over a folder."""
    program, port = gateway_program(), free_port()
    (folder / "objects").mkdir()
    command = [str(program), "--port", f"{HOST}:{port}", "posix", str(folder / "objects")]
    keys = {"ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": _SECRET_KEY}
    with (
        (folder / "gateway.log").open("w") as log,
        subprocess.Popen(command, env=dict(os.environ) | keys, stdout=log, stderr=log) as gateway,
    ):
        try:
            _wait(f"http://{HOST}:{port}", gateway, folder / "gateway.log")
            yield Gateway(f"http://{HOST}:{port}", gateway.pid)
        finally:
            gateway.terminate()


def _wait(url: str, gateway: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(300):
        if gateway.poll() is not None:
            pytest.fail(f"versitygw ended: {log.read_text()}")
        try:
            with urlopen(url, timeout=5):
                return
        except HTTPError:
            return  # it answers
        except URLError:
            time.sleep(0.1)
    pytest.fail(f"versitygw does not answer: {log.read_text()}")
