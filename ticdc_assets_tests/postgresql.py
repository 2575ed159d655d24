"""A PostgreSQL of the tests' own: on 127.0.0.1, with a port and a folder of its own.

PostgreSQL refuses to run as root, so there it runs as the user that Debian's package makes. It is a
child of this process and is stopped by its id; its folder is removed.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions

from ticdc_assets.base.ports import HOST, free_port

DEBIAN = Path("/usr/lib/postgresql")
USERS = ("postgres", "nobody")
START_SECONDS = 60.0


@dataclass(frozen=True)
class Postgresql:
    """A server that runs."""

    port: int
    user: str
    password: str
    database: str = "postgres"

    @property
    def env(self) -> dict[str, str]:
        """The variables of the commented block in dagster.yaml."""
        return {
            "DAGSTER_POSTGRES_HOST": HOST,
            "DAGSTER_POSTGRES_PORT": str(self.port),
            "DAGSTER_POSTGRES_DB": self.database,
            "DAGSTER_POSTGRES_USER": self.user,
            "DAGSTER_POSTGRES_PASSWORD": self.password,
        }

    def connect(self) -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host=HOST,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=self.database,
            connect_timeout=5,
        )

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f'SELECT count(*) FROM "{table}"')
            (row,) = cursor.fetchall()
        return int(row[0])


def find_postgresql() -> Path | None:
    """Return the folder of `postgres` and `initdb`, None if they are not here."""
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(DEBIAN.glob("*/bin"), reverse=True)
    wanted = ("postgres", "initdb")
    return next(
        (folder for folder in folders if all((folder / name).exists() for name in wanted)), None
    )


@contextlib.contextmanager
def run_postgresql(programs: Path) -> Iterator[Postgresql]:
    """Start a server with an empty database; stop it at the end."""
    server = Postgresql(port=free_port(), user="dagster", password="a word/with:odd@signs")
    # Not below pytest's folder: that is closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="ticdc-assets-postgresql-"))
    other = _other_user(folder)
    try:
        secret = folder / "password"
        secret.write_text(server.password, encoding="utf-8")
        secret.chmod(0o644)
        made = subprocess.run(
            [
                str(programs / "initdb"),
                *("-D", str(folder / "data"), "-U", server.user, "--pwfile", str(secret)),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_SECONDS,
            check=False,
            **other,
        )
        assert made.returncode == 0, made.stdout.decode()
        log = folder / "log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                [
                    str(programs / "postgres"),
                    *("-D", str(folder / "data"), "-h", HOST, "-p", str(server.port)),
                    *("-k", str(folder), "-c", "fsync=off"),
                ],
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **other,
            )
        try:
            _wait_until_it_answers(server, child, log)
            yield server
        finally:
            child.send_signal(signal.SIGINT)  # a fast shutdown: connections are closed
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(20)
    finally:
        shutil.rmtree(folder)


def _other_user(folder: Path) -> Mapping[str, Any]:
    """Return what makes a child run as another user where this one is root."""
    if os.geteuid() != 0:
        return {}
    for name in USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise AssertionError(f"none of the users {', '.join(USERS)} is here")


def _wait_until_it_answers(server: Postgresql, child: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            server.connect().close()
        except psycopg2.OperationalError as error:
            assert child.poll() is None, log.read_text(encoding="utf-8", errors="replace")
            if time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL did not answer: {error}") from error
            time.sleep(0.1)
        else:
            return
