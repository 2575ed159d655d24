"""Workers of a cluster show what they can do before anything depends on it.

In: a session and a folder of the lake. Out: what each executor said (`Answer`), or one error that
says what is wrong with which. A worker has to run our very files and the driver's Python, to have
the libraries that these need, to see what this process writes into the lake, and to write there
what this process sees. In a local session workers are this machine's, and nothing is asked.

They are asked once for each session, folder and set of executors (`require_cluster`), before steps
go to them. A small sync needs no Spark. So that a cluster that cannot work is refused before
anything is landed, a landing asks once a day for each configuration (`require_before_landing`), and
`doctor` asks whenever it is run.

Why running it again is safe: what is written is in a folder of its own, which is removed; a killed
run's is removed as those of readers are (`scratch`).

Not handled: an executor that comes during a step, and cannot work. Files that it wrote elsewhere
are missed before the commit (`committing`).
"""

import contextlib
import hashlib
import importlib
import os
import pickle
import platform
import re
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.base.own_files import PACKAGE, documented, own_digest
from ticdc_assets.base.progress import tell
from ticdc_assets.base.user_cache import UnsafeFolderError, user_folder
from ticdc_assets.config import load_spark_settings
from ticdc_assets.config.spark import SparkSettings, is_local
from ticdc_assets.spark.driver import (
    application_of,
    executors_of,
    is_connected,
    limited,
    master_of,
    workers_of,
)
from ticdc_assets.spark.scratch import BEGUN, READING
from ticdc_assets.spark.shipping import LIBRARIES, package_version
from ticdc_assets.storage.paths import AnyPath, RemotePath, remove_tree

ANSWER_SECONDS = 300.0
"""How long executors are waited for; a cluster may have to start machines first."""

_ROUNDS = 5
_PAUSE_SECONDS = 0.1
_TRUSTED_SECONDS = 86_400.0

_LOCK = Lock()
_SEEN: dict[tuple[str, str, frozenset[str]], tuple["Answer", ...]] = {}
"""What executors answered, by application, folder and executors."""


class ClusterError(TicdcError):
    """The workers of Spark's cluster cannot do what would be asked of them; nothing was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an executor says of itself.

    Attributes:
        host: its machine.
        python: version of its Python.
        package: version of our files there, "" if they cannot be imported.
        lacks: what else cannot be imported, each with the reason.
        sees: whether it sees what this process wrote into the lake.
        wrote: the name of what it wrote there, "" if it could not.
    """

    host: str
    python: str
    package: str
    lacks: tuple[str, ...]
    sees: bool
    wrote: str


def require_cluster(spark: SparkSession, folder: AnyPath) -> tuple[Answer, ...]:
    """Let every executor show that it can work on a folder of the lake; none in a local session.

    Args:
        spark: the session.
        folder: the folder; what is beside it is in the same reach.

    Raises:
        ClusterError: an executor cannot, or none has answered.
    """
    if is_local(master_of(spark)) and not is_connected():
        return ()
    base = folder.parent
    with _LOCK:
        known = _SEEN.get(_key(spark, base))
        if known is not None:
            return known
        tell("asking Spark's executors what they can do")
        answers = _asked(spark, base)
        if len(answers) >= len(executors_of(spark)) - 1:
            _SEEN[_key(spark, base)] = answers
        return answers


def require_before_landing(spark: SparkSession, folder: AnyPath) -> None:
    """Let a cluster that is configured show that it works, unless it did so within a day.

    Args:
        spark: the session, which is asked for nothing if Spark is local or did so.
        folder: a folder of the lake that would be written to.

    Raises:
        ClusterError: it does not.
    """
    settings = load_spark_settings()
    if settings.is_local:
        return
    mark = _mark(settings, folder.parent)
    with contextlib.suppress(OSError):
        if mark is not None and time.time() - mark.stat().st_mtime < _TRUSTED_SECONDS:
            return
    require_cluster(spark, folder)
    with contextlib.suppress(OSError):
        if mark is not None:
            mark.touch()


def _mark(settings: SparkSettings, base: AnyPath) -> Path | None:
    """Return the file that says when this configuration has worked with this lake and package."""
    told = [f"{name}={option.shown}" for name, option in sorted(settings.properties.items())]
    digest = hashlib.sha256("\n".join([str(base), own_digest(), *told]).encode()).hexdigest()
    try:
        return user_folder("cluster") / digest[:16]
    except UnsafeFolderError:
        return None


# Asking -----------------------------------------------------------------------------------------


def _key(spark: SparkSession, base: AnyPath) -> tuple[str, str, frozenset[str]]:
    return application_of(spark), str(base), executors_of(spark)


def _asked(spark: SparkSession, base: AnyPath) -> tuple[Answer, ...]:
    place = base / f"{READING}{uuid.uuid4().hex}"
    try:
        place.mkdir(parents=True)
        (place / BEGUN).write_text(BEGUN, encoding="utf-8")
    except OSError as error:
        raise ClusterError(
            f"{place} cannot be written ({error.strerror}), so Spark's workers at "
            f"{master_of(spark)} cannot show that they share the lake; give this user the right to "
            "write there, or work locally (TICDC_SPARK_MASTER=local[2])"
        ) from error
    try:
        answers = _answers(spark, place)
        _check(answers, place, master=master_of(spark))
    finally:
        remove_tree(place, quietly=True)
    return answers


def _answers(spark: SparkSession, place: AnyPath) -> tuple[Answer, ...]:
    """Return what each executor answers; one that is at something else all the while does not."""
    found: dict[str, Answer] = {}
    pause = _PAUSE_SECONDS
    for _ in range(_ROUNDS):
        # So many, and each waits a while, so that no executor is done with all of them before
        # another one has begun.
        tasks = 2 * max(workers_of(spark), len(executors_of(spark)))
        for name, values in _collected(spark, _asking(place, pause), tasks):
            found.setdefault(name, Answer(**values))
        if len(found) >= len(executors_of(spark)) - 1:
            break
        pause *= 2
    return tuple(found.values())


def _asking(place: AnyPath, pause: float) -> Any:
    """Return the function that runs in a worker.

    It is sent by value, and so is what it needs: a worker that lacks the package has to be able to
    say so.
    """
    package, begun = PACKAGE, BEGUN
    libraries = LIBRARIES + (place.store.libraries if isinstance(place, RemotePath) else ())
    # A path in a store is of a class of ours, so it is unpacked where its failure can be told.
    packed = pickle.dumps(place)

    def answer(batches: Iterable[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        time.sleep(pause)
        version, lacks = "", []
        for module in (f"{package}.engine.shipping", *libraries):
            try:
                found = importlib.import_module(module)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is told
                lacks.append(f"{module} ({type(error).__name__}: {error})")
                continue
            if module not in libraries:
                version = found.package_version()
        wrote = f"{socket.gethostname()}-{uuid.uuid4().hex}"
        try:
            sees = (pickle.loads(packed) / begun).read_text(encoding="utf-8") == begun
        except Exception:  # noqa: BLE001  # what lacks is told, and nothing is seen without it
            sees = False
        try:
            (pickle.loads(packed) / wrote).write_text(wrote, encoding="utf-8")
        except Exception:  # noqa: BLE001
            wrote = ""
        # The worker's parent is its executor's one program that makes workers.
        name = f"{socket.gethostname()} {os.getppid()}"
        values = {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "package": version,
            "lacks": tuple(lacks),
            "sees": sees,
            "wrote": wrote,
        }
        # The sender asks for one binary column, by whatever pyarrow is there.
        import pyarrow

        data = pyarrow.array([pickle.dumps((name, values))], pyarrow.binary())
        yield pyarrow.RecordBatch.from_arrays([data], ["data"])

    return answer


def _collected(spark: SparkSession, step: Any, tasks: int) -> list[tuple[str, Any]]:
    """Return the results of a step, or the error that says why there are none."""
    started = time.monotonic()
    try:
        with limited(spark, ANSWER_SECONDS):
            asked = spark.range(0, tasks, 1, tasks).mapInArrow(step, "data binary")
            return [pickle.loads(row["data"]) for row in asked.collect()]
    except (Py4JError, PySparkException) as error:
        if time.monotonic() - started >= ANSWER_SECONDS:
            raise ClusterError(
                f"no executor of Spark at {master_of(spark)} has answered within "
                f"{ANSWER_SECONDS:g} s; look at its master's page: are there workers with free "
                "cores and memory, and can they reach this machine (spark.driver.host)?"
            ) from None
        reason = _reason(error)
        if "No module named" in reason:
            # One that Spark itself imports before a step.
            raise ClusterError(
                f"the executors of Spark at {master_of(spark)} cannot import a library ({reason}); "
                "give workers a Python that has it (spark.archives and spark.pyspark.python: see "
                f"{documented('cluster')})"
            ) from None
        raise ClusterError(
            f"the executors of Spark at {master_of(spark)} run no Python step: {reason}; "
            "look at spark.pyspark.python and spark.archives, which say what Python they take"
        ) from None


_REASONS = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\][^\n]*|Cannot run program [^\n]*|\w+Error: [^\n]*"
    r"|Caused by: [^\n]*"
)


def _reason(error: BaseException) -> str:
    """Return what says most in the many lines of an error of Spark."""
    found = _REASONS.search(str(error))
    return first_sentence(error) if found is None else found[0].strip().rstrip(".")


# Judging ----------------------------------------------------------------------------------------


def _check(answers: Iterable[Answer], place: AnyPath, *, master: str) -> None:
    """Raise what is wrong with answers."""
    here = platform.python_version_tuple()[:2]
    version = package_version()
    blind: set[str] = set()
    for answer in answers:
        who = f"Spark's worker on {answer.host} ({master})"
        if answer.lacks:
            raise ClusterError(
                f"{who} cannot import {', '.join(answer.lacks)}; give workers a Python that has "
                "it (spark.archives and spark.pyspark.python: see "
                f"{documented('cluster')})"
            )
        if _digest_of(answer.package) != _digest_of(version):
            raise ClusterError(
                f"{who} has ticdc_assets {answer.package}, and this program is {version}; install "
                "the same there, or leave spark.ticdc.package out, so that it is shipped"
            )
        if tuple(answer.python.split(".")[:2]) != here:
            raise ClusterError(
                f"{who} has Python {answer.python}, and this program runs in {'.'.join(here)}; "
                "give workers the same (spark.archives and spark.pyspark.python)"
            )
        if not answer.sees or not answer.wrote or not (place / answer.wrote).is_file():
            blind.add(answer.host)
    if blind:
        raise ClusterError(
            f"the workers on {', '.join(sorted(blind))} do not share the lake's folder "
            f"{place.parent} with the driver: a file written there by the one is not seen by the "
            "other; nothing was committed: mount the same folder on all of them, with the right "
            "to write, or work locally (TICDC_SPARK_MASTER=local[2])"
        )


def _digest_of(version: str) -> str:
    """Return the part of a version that tells the files: what was shipped has no number."""
    return version.partition("(")[2]
