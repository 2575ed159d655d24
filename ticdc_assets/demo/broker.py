"""A real Kafka broker on this machine, without Docker and without an installation.

In: a folder. Out: one KRaft node (broker and controller in a JVM) that keeps its topics in that
folder and listens on 127.0.0.1 only, for the demo and for tests. It is Kafka's own code, started
from jars that `jars.resolve` provides. Starting again in the same folder goes on with the same
topics and, if it is free, the same port.

The broker never outlives its owner. `stop` asks the process group, by its id, to end and then makes
it; leaving the `with` block and the end of the interpreter call it. Should the owner be killed
without a chance to, the shell above the JVM sees its standard input close and ends the JVM.

Not for production: one node, no replication, no authentication, records kept forever.
"""

import atexit
import base64
import contextlib
import os
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Self

from ticdc_assets.base.errors import PrerequisiteError, SourceUnavailableError
from ticdc_assets.base.ports import HOST, free_port, port_is_free
from ticdc_assets.config import KafkaSource, OptionValue
from ticdc_assets.source.kafka.administration import Administration
from ticdc_assets.spark.jars import BROKER_JARS, Progress, java_env, java_path, resolve, spark_home
from ticdc_assets.spark.preflight import require_java
from ticdc_assets.storage.paths import write_at_once

START_SECONDS = 90.0
STOP_SECONDS = 20.0
KILL_SECONDS = 5.0

LARGEST_MESSAGE_BYTES = 32 * 1024 * 1024
"""TiCDC's max-message-bytes is 10 MiB by default and may be raised."""

_HEAP = "320m"
_SETTINGS = "server.properties"
_LOG_SETTINGS = "log4j2.properties"
_LOG = "broker.log"
_TOPICS = "topics"
_NODE = 1

# Runs the JVM as a child. Standard input is a pipe from the owner: it closes when the owner ends,
# in whatever way, and then the JVM ends too. A signal to the group reaches both; the
# shell waits for the JVM so that its own end means that the JVM is gone.
_SUPERVISOR = """
exec 3<&0
"$@" </dev/null 3<&- &
jvm=$! code=0
trap : TERM
( trap - TERM
  while read -r _ <&3; do :; done
  kill -TERM "$jvm"
  for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 1; kill -0 "$jvm" || exit; done
  kill -KILL "$jvm" ) 2>/dev/null &
watcher=$!
exec 3<&-
while kill -0 "$jvm" 2>/dev/null; do wait "$jvm"; code=$?; done
kill -TERM "$watcher" 2>/dev/null; wait "$watcher"
exit "$code"
"""


class LocalBroker:
    """A Kafka broker on this machine, used as a context manager or by `start` and `stop`.

    Args:
        directory: where its settings, log and topics are kept; made if missing.
        port: where it listens if that port is free; None for the port of the last start here.
        first_port: the same for the first start in this folder; None for any.
        progress: called with a line of text for each step of the start.

    Attributes:
        port: where it listens; before the start that of the last start here, 0 if there was none.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        first_port: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.port = self._last_port()
        self._wanted_port = port
        self._first_port = first_port
        self._progress: Progress = progress or (lambda _: None)
        self._controller_port = 0
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the broker was started and its process lives."""
        return self._supervisor is not None and self._supervisor.poll() is None

    @property
    def pid(self) -> int | None:
        """The id of the broker's process group, None while it does not run."""
        return self._supervisor.pid if self._supervisor is not None and self.running else None

    @property
    def log_path(self) -> Path:
        """The broker's log."""
        return self.directory / _LOG

    def source(self, *topics: str) -> KafkaSource:
        """Return a changefeed's source with the given topics of this broker."""
        options = {"security.protocol": OptionValue("PLAINTEXT", "PLAINTEXT")}
        return KafkaSource(bootstrap_servers=self.bootstrap_servers, topics=topics, options=options)

    def start(self) -> Self:
        """Start the broker and wait until it answers.

        Raises:
            PrerequisiteError: no supported java, no jars, or the broker did not come up.
        """
        if self.running:
            return self
        say = self._progress
        require_java()
        jars = resolve(BROKER_JARS, progress=self._progress)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._choose_ports()
        lines = [f"{key}={value}\n" for key, value in self._settings().items()]
        (self.directory / _SETTINGS).write_text("".join(lines), encoding="utf-8")
        (self.directory / _LOG_SETTINGS).write_text(_LOG4J, encoding="utf-8")
        self._format()
        # Kafka's jars first: where both bring a library, Kafka meets the version it was built with.
        class_path = os.pathsep.join([*map(str, jars), str(spark_home() / "jars" / "*")])
        # Files are named relative to the broker's folder, where both programs run.
        command = [
            str(java_path()),
            *(f"-Xmx{_HEAP}", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
            *("-cp", class_path),
        ]
        say(f"starting Kafka {BROKER_JARS.coordinates[0].rpartition(':')[2]} on port {self.port}")
        self._launch([*command, "kafka.Kafka", _SETTINGS])
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise
        say(f"Kafka answers on {self.bootstrap_servers}")
        return self

    def stop(self) -> None:
        """End the broker, by force if it takes longer than 20 s; topics stay on disk."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        atexit.unregister(self.stop)
        _signal_group(supervisor.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(STOP_SECONDS)
        # The rest of the group, if any: its id is not used again while a member lives.
        _signal_group(supervisor.pid, signal.SIGKILL)
        supervisor.wait(KILL_SECONDS)
        if supervisor.stdin is not None:
            supervisor.stdin.close()
        # A killed JVM is not a child of this process and is gone when its memory is given back.
        deadline = time.monotonic() + KILL_SECONDS
        while not port_is_free(self.port) and time.monotonic() < deadline:
            time.sleep(0.02)

    # --- context manager ---

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- starting ---

    def _choose_ports(self) -> None:
        wanted = filter(None, (self._wanted_port, self.port, self._first_port))
        self.port = next(filter(port_is_free, wanted), None) or free_port()
        self._controller_port = free_port(other_than=self.port)

    def _last_port(self) -> int:
        try:
            text = (self.directory / _SETTINGS).read_text(encoding="utf-8")
        except OSError:
            return 0
        match = re.search(rf"^listeners=BROKER://{re.escape(HOST)}:(\d+),", text, re.MULTILINE)
        return int(match[1]) if match else 0

    def _settings(self) -> dict[str, object]:
        broker = f"BROKER://{HOST}:{self.port}"
        controller = f"{HOST}:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": _NODE,
            "controller.quorum.voters": f"{_NODE}@{controller}",
            "listeners": f"{broker},CONTROLLER://{controller}",
            "advertised.listeners": broker,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "BROKER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT",
            # Relative to the folder the JVM runs in: a full path would have to be free of commas,
            # backslashes and all that is not Latin-1.
            "log.dirs": _TOPICS,
            # A topic exists because somebody made it, with the partitions they wanted.
            "auto.create.topics.enable": "false",
            "message.max.bytes": LARGEST_MESSAGE_BYTES,
            "socket.request.max.bytes": 4 * LARGEST_MESSAGE_BYTES,
            "log.retention.ms": -1,
            "log.segment.delete.delay.ms": 1000,
            # One node, and little of it.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "num.network.threads": 2,
            "num.io.threads": 2,
            "background.threads": 2,
            "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
            "log.index.size.max.bytes": 1024 * 1024,
        }

    def _format(self) -> None:
        """Make a new folder the storage of a cluster, as Kafka's storage tool does."""
        path = self.directory / _TOPICS / "meta.properties"
        if not path.exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            write_at_once(path, f"version=1\nnode.id={_NODE}\ncluster.id={cluster}\n")

    def _launch(self, command: list[str]) -> None:
        with self.log_path.open("ab") as log:
            self._supervisor = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "ticdc-assets-broker", *command],
                env=java_env(),
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A separate group: the owner decides what Ctrl-C in its terminal does.
                start_new_session=True,
            )
        atexit.register(self.stop)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise PrerequisiteError(
                    f"the local Kafka broker ended while starting: {self._last_error()} "
                    f"(all of it in {self.log_path})"
                )
            if not port_is_free(self.port):
                with contextlib.suppress(SourceUnavailableError):
                    Administration(self.source(), timeout_seconds=2.0).ping()
                    return
            time.sleep(0.1)
        raise PrerequisiteError(
            f"the local Kafka broker did not answer within {START_SECONDS:.0f} s "
            f"(its log is {self.log_path})"
        )

    def _last_error(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
        errors = [line for line in lines if "Exception" in line or "ERROR" in line]
        return (errors or lines or ["it wrote nothing"])[-1].strip()


_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
