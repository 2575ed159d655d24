"""A file is created where none is, in each kind of lake: one writer wins, and it knows."""

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ticdc_assets.base.ports import HOST
from ticdc_assets.delta.delta_files import broken
from ticdc_assets.delta.opening import open_table
from ticdc_assets.repair import maintenance
from ticdc_assets.storage.creating import UnclearPutError, create
from ticdc_assets.storage.paths import AnyPath, RemotePath, delta_options, names_in, remote_path
from ticdc_assets.storage.stores import Storage
from ticdc_assets_tests.fresh import printed
from ticdc_assets_tests.s3 import SECRETS, S3Lake
from ticdc_assets_tests.storage.faults import (
    CONFLICT,
    LATE_500,
    LOST_ANSWER,
    LOST_REQUEST,
    FaultyProxy,
    serving,
)

pytestmark = pytest.mark.timeout(300)

ROWS = pa.table({"a": pa.array([1], pa.int64())})


@pytest.fixture(
    params=[
        "folder",
        pytest.param("s3", marks=pytest.mark.s3),
        pytest.param("hdfs", marks=pytest.mark.hdfs),
    ]
)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPath:
    """Give an empty lake of each kind that runs here."""
    if request.param == "folder":
        return tmp_path / "lake"
    return request.getfixturevalue(f"{request.param}_lake").path


def commit(table: AnyPath, version: int) -> AnyPath:
    return table / "_delta_log" / f"{version:020}.json"


def unique(size: int = 0) -> bytes:
    return uuid.uuid4().hex.encode() + bytes(size)


# One writer wins --------------------------------------------------------------------------------


def test_a_file_is_there_whole_and_stays_as_it_is(lake: AnyPath) -> None:
    path, data = commit(lake / "table", 0), unique(3_000_000)
    create(path, data)
    assert path.read_bytes() == data
    with pytest.raises(FileExistsError) as error:
        create(path, unique())
    assert str(path) in str(error.value)
    assert path.read_bytes() == data
    # The same bytes are the same writer's, whose answer was lost.
    create(path, data)
    create(path.with_name("empty"), b"")
    assert path.with_name("empty").read_bytes() == b""
    assert sorted(names_in(path.parent)) == [path.name, "empty"]


@pytest.mark.thorough
def test_of_many_threads_one_creates_a_file_and_no_reader_sees_half(lake: AnyPath) -> None:
    paths = [commit(lake / "table", number) for number in range(5)]
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for path in paths:
                try:
                    seen.add(path.read_bytes())
                except FileNotFoundError:
                    continue

    def write(path: AnyPath) -> bytes | None:
        data = unique(1_000_000)
        try:
            create(path, data)
        except FileExistsError:
            return None
        return data

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            for path in paths:
                won = [data for data in pool.map(write, [path] * 8) if data is not None]
                assert won == [path.read_bytes()]
    finally:
        done.set()
        reader.join()
    assert {len(data) for data in seen} == {1_000_032}
    assert sorted(names_in(paths[0].parent)) == [path.name for path in paths]


@pytest.mark.thorough
def test_commits_of_delta_rs_and_created_ones_never_replace_each_other(lake: AnyPath) -> None:
    table, times = lake / "table", 10
    options = delta_options(lake)
    write_deltalake(str(table), ROWS, storage_options=options)

    def append(number: int) -> None:
        rows = pa.table({"a": pa.array([number], pa.int64())})
        write_deltalake(str(table), rows, mode="append", storage_options=options)

    def note(number: int) -> None:
        action = {"txn": {"appId": f"note-{number}", "version": number}}
        line = json.dumps({"commitInfo": {"id": uuid.uuid4().hex}}) + "\n" + json.dumps(action)
        for version in range(1, 3 * times):
            try:
                create(commit(table, version), line.encode())
            except FileExistsError:
                continue
            return
        raise AssertionError("no version was free")

    with ThreadPoolExecutor(4) as pool:
        started = [pool.submit(job, number) for number in range(times) for job in (append, note)]
        for job in started:
            job.result()
    found = DeltaTable(str(table), storage_options=options)
    assert found.version() == 2 * times
    assert sorted(found.to_pyarrow_table()["a"].to_pylist()) == sorted([1, *range(times)])
    assert [found.transaction_version(f"note-{number}") for number in range(times)] == [
        *range(times)
    ]


# A folder ---------------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from pathlib import Path
from ticdc_assets.storage import creating
owner = Path if sys.argv[2] == "open" else os
setattr(owner, sys.argv[2], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
creating.create(Path(sys.argv[1]), b"{}")
"""


def kill_at(call: str, path: Path) -> None:
    """Let a process create a file, and kill it at a call."""
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path), call], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("call", ["open", "link", "rename"])
def test_a_first_commit_that_was_killed_leaves_no_log(call: str, tmp_path: Path) -> None:
    table = tmp_path / "shop" / "quarantine"
    table.mkdir(parents=True)
    (table / "part-0.parquet").write_text("x")
    kill_at(call, commit(table, 0))
    assert open_table(table) is None
    assert not (table / "_delta_log").exists()
    create(commit(table, 0), b"{}")
    assert names_in(table / "_delta_log") == [commit(table, 0).name]


@pytest.mark.parametrize("code", [errno.ENOTEMPTY, errno.EEXIST])
def test_a_writer_that_comes_second_puts_another_file_into_the_folder(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems say in two ways that a folder with files is there."""
    path = commit(tmp_path / "table", 0)

    def other_first(self: Path, target: Path) -> None:
        target.mkdir()
        path.with_name("other").touch()
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "rename", other_first)
    create(path, b"{}")
    assert path.read_bytes() == b"{}"
    assert sorted(names_in(path.parent)) == [path.name, "other"]


def test_what_a_killed_writer_leaves_is_no_commit_and_is_removed(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(str(table), ROWS)
    path = commit(table, 1)
    kill_at("link", path)
    (staged,) = [name for name in names_in(path.parent) if name != commit(table, 0).name]
    assert re.fullmatch(rf"\.{path.name}-[0-9a-f]{{32}}", staged)
    assert DeltaTable(str(table)).version() == 0
    assert broken(table, footers=True) is None
    write_deltalake(str(table), ROWS, mode="append")
    assert broken(table, footers=True) is None
    # Another writer may still be about to name a young one.
    assert maintenance._clean_log(table, 1) == 0
    old = time.time() - maintenance.STAGED_KEPT.total_seconds() - 60
    others = [f"{2:020}.json#1", f".{2:020}.json.tmp.1", f".{2:020}.json.{uuid.uuid4()}.tmp"]
    for name in (*others, f".{path.name}.crc"):
        (path.parent / name).touch()
    for name in (*others, staged, f".{path.name}.crc"):
        os.utime(path.parent / name, (old, old))
    assert maintenance._clean_log(table, 1) == 4
    kept = [commit(table, 0).name, path.name, f".{path.name}.crc"]
    assert sorted(names_in(path.parent)) == sorted(kept)
    assert timedelta(hours=12) < maintenance.STAGED_KEPT


def test_a_file_system_without_hard_links_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match=r"no hard links .* move the lake .*/a'") as error:
        create(tmp_path / "a", b"a")
    assert not isinstance(error.value, UnclearPutError)
    assert names_in(tmp_path) == []


def test_a_disk_that_takes_half_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            create(tmp_path / "a", bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names_in(tmp_path) == []


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("folder", "link"):
        with pytest.raises(FileExistsError):
            create(tmp_path / name, b"a")
    assert sorted(names_in(tmp_path)) == ["folder", "link"]
    with pytest.raises(NotADirectoryError):
        create(Path("/dev/null/a"), b"a")


def test_a_folder_needs_neither_obstore_nor_arrow(tmp_path: Path) -> None:
    text = """
        import sys
        from pathlib import Path
        from ticdc_assets.storage.creating import create
        create(Path(sys.argv[1]), b"a")
        print(*sorted({"obstore", "pyarrow", "hdfs_native"} & set(sys.modules)))
    """
    assert printed(text, tmp_path / "a") == "\n"


# Answers that get lost --------------------------------------------------------------------------


@pytest.fixture
def faulty(s3_lake: S3Lake) -> Iterator[tuple[RemotePath, FaultyProxy]]:
    """Give a lake on S3 whose requests and answers get lost."""
    with serving(FaultyProxy(s3_lake.endpoint)) as proxy:
        yield S3Lake(proxy.url, s3_lake.bucket, s3_lake.folder).path, proxy


@pytest.mark.s3
@pytest.mark.parametrize(
    ("put", "get"),
    [
        ([LOST_REQUEST], []),
        ([LOST_ANSWER], []),
        ([LATE_500], []),
        ([CONFLICT, CONFLICT], []),
        ([LOST_ANSWER], [LOST_ANSWER]),
        ([LOST_ANSWER, LOST_ANSWER], [LOST_REQUEST]),
    ],
)
def test_a_lost_answer_is_neither_another_writer_nor_a_failure(
    put: list[str], get: list[str], faulty: tuple[RemotePath, FaultyProxy]
) -> None:
    lake, proxy = faulty
    path, data = lake / "a", unique()
    proxy.faults = {"PUT": [*put], "GET": [*get]}
    create(path, data)
    assert path.read_bytes() == data
    assert proxy.seen.count("PUT") > 1
    assert proxy.faults == {"PUT": [], "GET": []}
    # Another writer is told from a lost answer.
    proxy.faults = {"PUT": put[:1]}
    with pytest.raises(FileExistsError):
        create(path, unique())
    assert path.read_bytes() == data


@pytest.mark.s3
@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"PUT": [CONFLICT] * 9}, "was not written, or will appear later"),
        ({"PUT": [LOST_ANSWER], "GET": [LOST_ANSWER] * 99}, "may have been written"),
    ],
)
def test_what_nobody_knows_is_said_and_may_be_done_again(
    faults: dict[str, list[str | None]], said: str, faulty: tuple[RemotePath, FaultyProxy]
) -> None:
    lake, proxy = faulty
    path, data = lake / "a", unique()
    proxy.faults = faults
    with pytest.raises(UnclearPutError, match=said) as error:
        create(path, data)
    assert str(path) in str(error.value)
    assert not any(secret in str(error.value) for secret in SECRETS.values())
    proxy.faults = {}
    create(path, data)
    assert path.read_bytes() == data


@pytest.mark.s3
def test_a_store_that_does_not_allow_it_is_said(s3_lake: S3Lake) -> None:
    storage = s3_lake.path.store.storage
    told = {name: getattr(storage, name) for name in storage.given}
    another = Storage(**told | {"secret_key": "another"})
    with pytest.raises(PermissionError, match="SignatureDoesNotMatch"):
        create(remote_path(f"s3://{s3_lake.bucket}/a", another, {}), b"a")
    with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
        create(remote_path("s3://nowhere/a", storage, {}), b"a")
    token = Storage(**told | {"session_token": "no-token"})
    with pytest.raises(OSError, match="InvalidToken") as error:
        create(remote_path(f"s3://{s3_lake.bucket}/a", token, {}), b"a")
    assert not isinstance(error.value, UnclearPutError)
    assert names_in(s3_lake.path.parent) == []


@pytest.mark.s3
def test_credentials_come_from_the_environment(
    s3_lake: S3Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRETS["LAKE_ACCESS_KEY"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS["LAKE_SECRET_KEY"])
    path = remote_path(f"s3://{s3_lake.bucket}/a", Storage(endpoint=s3_lake.endpoint), {})
    create(path, b"a")
    assert (s3_lake.folder / s3_lake.bucket / "a").read_bytes() == b"a"


@pytest.mark.s3
def test_a_forked_process_is_refused_instead_of_waiting_for_ever(s3_lake: S3Lake) -> None:
    text = """
        import os, sys
        from ticdc_assets.storage.creating import create
        from ticdc_assets_tests.s3 import S3Lake
        lake = S3Lake(sys.argv[1], sys.argv[2], None).path
        create(lake / "a", b"a")
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            sys.exit()
        try:
            create(lake / "b", b"b")
        except OSError as error:
            os._exit(7 if "forked" in str(error) else 8)
    """
    assert printed(text, s3_lake.endpoint, s3_lake.bucket) == "7\n"


# Azure and Google ---------------------------------------------------------------------------------


class _Store(BaseHTTPRequestHandler):
    """Puts and gets as Azure's Blob service and Google's XML interface document them."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    conditions: list[str | None]
    condition: str
    refusal: int

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.conditions.append(self.headers.get(self.condition))
        is_there = self.objects.setdefault(self.path, body) is not body
        self._answer(self.refusal if is_there else 201, b"")

    def do_GET(self) -> None:
        body = self.objects.get(self.path)
        self._answer(404 if body is None else 200, body or b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Length": str(len(body)),
            "ETag": '"1"',
            "x-goog-generation": "1",
            "Last-Modified": self.date_time_string(),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


AZURE = "abfss://box@{name}.dfs.core.windows.net/lake"


@pytest.mark.parametrize(
    ("uri", "storage", "env", "condition", "value", "refusal"),
    [
        (AZURE, {"account_key": "aGlkZGVu"}, "AZURE", "If-None-Match", "*", 409),
        ("gs://{name}/lake", {}, "GOOGLE", "x-goog-if-generation-match", "0", 412),
    ],
    ids=["azure", "google"],
)
def test_azure_and_google_are_asked_to_put_where_none_is(
    uri: str,
    storage: dict[str, str],
    env: str,
    condition: str,
    value: str,
    refusal: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Seen(_Store):
        pass

    Seen.objects, Seen.conditions = {}, []
    Seen.condition, Seen.refusal = condition, refusal
    with serving(ThreadingHTTPServer((HOST, 0), Seen)) as server:
        url = f"http://{HOST}:{server.server_port}"
        monkeypatch.setenv(f"{env}_ALLOW_HTTP", "true")
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", url)
        monkeypatch.setenv("GOOGLE_BASE_URL", url)
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "a-token")
        # Clients are kept as long as the process, so each gets a store of its own.
        lake = remote_path(uri.format(name=f"n{uuid.uuid4().hex[:20]}"), Storage(**storage), {})
        path, data = commit(lake / "a b%20c=1", 0), unique()
        create(path, data)
        create(path, data)
        with pytest.raises(FileExistsError):
            create(path, unique())
        assert list(Seen.objects.values()) == [data]
        assert Seen.conditions == [value] * 3
