"""A real HDFS for tests: a NameNode and a DataNode of the Hadoop that Spark brings, on 127.0.0.1.

Their classes come from Maven, 40 MB once; the rest is in pyspark. Each lake is a folder of its own.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.base.ports import HOST, free_port
from ticdc_assets.spark.jars import HADOOP, JarSet, java_path, resolve, spark_home
from ticdc_assets.storage.paths import RemotePath, remote_path
from ticdc_assets.storage.stores import Storage

HDFS_JARS = JarSet(
    name="the local HDFS",
    coordinates=(f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",),
    # Spark brings these.
    excludes=(
        "junit:junit",
        "org.apache.hadoop:hadoop-client-api",
        "org.apache.hadoop:hadoop-client-runtime",
        "org.slf4j:slf4j-api",
        "org.xerial.snappy:snappy-java",
    ),
)

_FROM_SPARK = ("hadoop-client-*", "jcl-over-slf4j-*", "log4j-*", "slf4j-api-*", "*servlet-api-*")
_SERVERS = "org.apache.hadoop.hdfs.server"

_LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class HdfsLake:
    """A lake in a folder of its own.

    Attributes:
        root: URI of the name node.
        folder: name of the folder.
    """

    root: str
    folder: str

    @property
    def path(self) -> RemotePath:
        return remote_path(f"{self.root}/{self.folder}/lake", Storage(), {})

    @property
    def block(self) -> dict[str, Any]:
        """What stands in the changefeeds file."""
        return {}

    @property
    def secrets(self) -> dict[str, str]:
        """What programs find in their environment."""
        return {}


def write_settings(folder: Path, name: str, settings: Mapping[str, object]) -> None:
    """Write a file of Hadoop's settings."""
    found = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>\n"
        for key, value in settings.items()
    )
    (folder / name).write_text(f"<configuration>\n{found}</configuration>\n")


@contextmanager
def running_hdfs(folder: Path) -> Iterator[str]:
    """Run an HDFS that keeps its files in a folder; yield the URI of its name node."""
    port = free_port()
    root, any_port = f"hdfs://{HOST}:{port}", f"{HOST}:0"
    write_settings(folder, "core-site.xml", {"fs.defaultFS": root, "hadoop.tmp.dir": folder})
    settings = {
        "dfs.namenode.http-address": any_port,
        "dfs.namenode.rpc-bind-host": HOST,
        "dfs.datanode.address": any_port,
        "dfs.datanode.ipc.address": any_port,
        "dfs.datanode.http.address": any_port,
        "dfs.datanode.hostname": HOST,
        "dfs.replication": 1,
    }
    write_settings(folder, "hdfs-site.xml", settings)
    (folder / "log4j2.properties").write_text(_LOGGING)
    jars = [*resolve(HDFS_JARS)]
    for name in _FROM_SPARK:
        jars += sorted((spark_home() / "jars").glob(f"{name}.jar"))
    java = [
        *(str(java_path()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-cp", os.pathsep.join(map(str, [folder, *jars]))),
    ]
    log = folder / "hdfs.log"
    with log.open("w") as file:
        name_node = [*java, f"{_SERVERS}.namenode.NameNode"]
        subprocess.run([*name_node, "-format"], cwd=folder, stdout=file, stderr=file, check=True)
        started = [
            subprocess.Popen(words, cwd=folder, stdout=file, stderr=file)
            for words in (name_node, [*java, f"{_SERVERS}.datanode.DataNode"])
        ]
        try:
            _wait(root, port, started, log)
            yield root
        finally:
            for process in started:
                process.kill()
                process.wait(30)


def _wait(root: str, port: int, started: "list[subprocess.Popen[bytes]]", log: Path) -> None:
    deadline = time.monotonic() + 240
    while not _is_written(root, port):
        if any(process.poll() is not None for process in started) or time.monotonic() > deadline:
            pytest.fail(f"HDFS does not answer: {log.read_text(errors='replace')[-5000:]}")
        time.sleep(0.5)


def _is_written(root: str, port: int) -> bool:
    """Return whether a file can be written: the name node answers, and knows its data node."""
    from ticdc_assets.storage.hdfs import hdfs_files

    with socket.socket() as asking:
        # The client would wait for a name node that is away for minutes.
        if asking.connect_ex((HOST, port)):
            return False
    try:
        with hdfs_files(root).open_output_stream("/begun") as stream:
            stream.write(b"begun")
    except OSError:
        return False
    return True
