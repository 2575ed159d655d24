"""Check what a cluster's workers can do before anything depends on it.

In: a session and a folder of the lake. Out: each executor's `Answer`, or one error that names the
worker and the problem. A worker must run this package's exact files and the driver's Python, have
the libraries that they need, see what this process writes into the lake, and write there what this
process sees. Workers of a local session are not checked.

The check runs once for each session, folder and set of executors, before steps go to them
(`require_cluster`), and once a day before a landing (`require_before_landing`), as a small sync
needs no Spark.

Why running it again is safe: it writes to a separate folder, which is removed; a killed run's
folder is removed like those of readers (`scratch`). Not handled: a broken executor that joins
during a step. The check before the commit notices files that it wrote elsewhere (`committing`).
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
from threading import Lock
from typing import TYPE_CHECKING, Any

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.base.own_files import documented, own_digest
from ticdc_assets.base.progress import tell
from ticdc_assets.base.user_cache import UnsafeFolderError, user_folder
from ticdc_assets.config import load_spark_settings
from ticdc_assets.config.spark import is_local
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS = 300.0
"""How long to wait for executors; a cluster may have to start machines first."""

_ROUNDS = 5
_PAUSE_SECONDS = 0.1
_TRUSTED_SECONDS = 86_400.0

_LOCK = Lock()
_SEEN: dict[tuple[str, str, frozenset[str]], tuple["Answer", ...]] = {}
"""The executors' answers, by application, folder and executors."""


class ClusterError(TicdcError):
    """The workers of Spark's cluster cannot do the requested work; nothing was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an executor reports.

    Attributes:
        host: its machine.
        python: version of its Python.
        package: version of this package's files there; "" if they cannot be imported.
        lacks: other libraries that cannot be imported, each with the reason.
        sees: whether it sees what this process wrote into the lake.
        wrote: the name of the file that it wrote there; "" if it could not.
    """

    host: str
    python: str
    package: str
    lacks: tuple[str, ...]
    sees: bool
    wrote: str


def require_cluster(spark: "SparkSession", folder: AnyPath) -> tuple[Answer, ...]:
    """Check that every executor can work on a folder of the lake; a local session needs no check.

    The folder's neighbours are equally reachable.

    Raises:
        ClusterError: an executor cannot, or none has answered.
    """
    if is_local(master_of(spark)) and not is_connected():
        return ()
    base = folder.parent
    with _LOCK:
        answers = _SEEN.get(_key(spark, base))
        if answers is None:
            tell("checking Spark's executors")
            answers = _checked_answers(spark, base)
            if len(answers) >= len(executors_of(spark)) - 1:
                _SEEN[_key(spark, base)] = answers
        return answers


def require_before_landing(spark: "SparkSession", folder: AnyPath) -> None:
    """Check a configured cluster, unless it passed within a day; only then the session starts.

    Raises:
        ClusterError: it does not work.
    """
    settings = load_spark_settings()
    if settings.is_local:
        return
    lines = [f"{name}={option.shown}" for name, option in sorted(settings.properties.items())]
    text = "\n".join([str(folder.parent), own_digest(), *lines])
    try:
        # This file records when this configuration worked with this lake and package.
        mark = user_folder("cluster") / hashlib.sha256(text.encode()).hexdigest()[:16]
    except UnsafeFolderError:
        mark = None
    with contextlib.suppress(OSError):
        if mark is not None and time.time() - mark.stat().st_mtime < _TRUSTED_SECONDS:
            return
    require_cluster(spark, folder)
    with contextlib.suppress(OSError):
        if mark is not None:
            mark.touch()


# Calls to executors -----------------------------------------------------------------------------


def _key(spark: "SparkSession", base: AnyPath) -> tuple[str, str, frozenset[str]]:
    return application_of(spark), str(base), executors_of(spark)


def _checked_answers(spark: "SparkSession", base: AnyPath) -> tuple[Answer, ...]:
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


def _answers(spark: "SparkSession", place: AnyPath) -> tuple[Answer, ...]:
    """Return what each executor answers; one that is busy all the while does not answer."""
    answers: dict[str, Answer] = {}
    for number in range(_ROUNDS):
        # So many tasks, each with a pause, that no executor finishes them all before another
        # begins.
        tasks = 2 * max(workers_of(spark), len(executors_of(spark)))
        step = _answering(place, _PAUSE_SECONDS * 2**number)
        for name, values in _collected(spark, step, tasks):
            answers.setdefault(name, Answer(**values))
        if len(answers) >= len(executors_of(spark)) - 1:
            break
    return tuple(answers.values())


def _answering(place: AnyPath, pause: float) -> Any:
    """Return the function that runs in a worker.

    The function is sent by value, with all that it needs: a worker without the package must be able
    to report that.
    """
    package, begun = package_version.__module__, BEGUN
    libraries = LIBRARIES + (place.store.libraries if isinstance(place, RemotePath) else ())
    # A path in a store is of this package's class, so it is unpacked where a failure can be
    # reported.
    packed = pickle.dumps(place)

    def answer(batches: Iterable[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        time.sleep(pause)
        version, lacks = "", []
        for module in (package, *libraries):
            try:
                imported = importlib.import_module(module)
            except Exception as error:  # noqa: BLE001  # any error is reported
                lacks.append(f"{module} ({type(error).__name__}: {error})")
                continue
            if module not in libraries:
                version = imported.package_version()
        wrote = f"{socket.gethostname()}-{uuid.uuid4().hex}"
        try:
            sees = (pickle.loads(packed) / begun).read_text(encoding="utf-8") == begun
        except Exception:  # noqa: BLE001  # a missing library is reported
            sees = False
        try:
            (pickle.loads(packed) / wrote).write_text(wrote, encoding="utf-8")
        except Exception:  # noqa: BLE001
            wrote = ""
        # The worker's parent is its executor's one process that starts workers.
        name = f"{socket.gethostname()} {os.getppid()}"
        values = {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "package": version,
            "lacks": tuple(lacks),
            "sees": sees,
            "wrote": wrote,
        }
        # The sender expects one binary column, with any version of pyarrow.
        import pyarrow

        data = pyarrow.array([pickle.dumps((name, values))], pyarrow.binary())
        yield pyarrow.RecordBatch.from_arrays([data], ["data"])

    return answer


def _collected(spark: "SparkSession", step: Any, tasks: int) -> list[tuple[str, Any]]:
    """Return the results of a step, or raise the error that explains why there are none."""
    from ticdc_assets.spark.session import SPARK_ERRORS

    started = time.monotonic()
    try:
        with limited(spark, ANSWER_SECONDS):
            rows = spark.range(0, tasks, 1, tasks).mapInArrow(step, "data binary")
            return [pickle.loads(row["data"]) for row in rows.collect()]
    except SPARK_ERRORS as error:
        if time.monotonic() - started >= ANSWER_SECONDS:
            raise ClusterError(
                f"no executor of Spark at {master_of(spark)} has answered within "
                f"{ANSWER_SECONDS:g} s; look at its master's page: are there workers with free "
                "cores and memory, and can they reach this machine (spark.driver.host)?"
            ) from None
        match = _REASONS.search(str(error))
        reason = first_sentence(error) if match is None else match[0].strip().rstrip(".")
        if "No module named" in reason:
            # A library that Spark itself imports before a step.
            raise ClusterError(
                f"the executors of Spark at {master_of(spark)} cannot import a library ({reason}); "
                f"{_python_fix()}"
            ) from None
        raise ClusterError(
            f"the executors of Spark at {master_of(spark)} run no Python step: {reason}; "
            "look at spark.pyspark.python and spark.archives, which say what Python they take"
        ) from None


_REASONS = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\][^\n]*|Cannot run program [^\n]*|\w+Error: [^\n]*"
    r"|Caused by: [^\n]*"
)


def _python_fix() -> str:
    return (
        "give workers a Python that has it (spark.archives and spark.pyspark.python: see "
        f"{documented('cluster')})"
    )


# The check of answers ---------------------------------------------------------------------------


def _check(answers: Iterable[Answer], place: AnyPath, *, master: str) -> None:
    """Raise an error that says what is wrong with the answers."""
    here = platform.python_version_tuple()[:2]
    version = package_version()
    blind: set[str] = set()
    for answer in answers:
        who = f"Spark's worker on {answer.host} ({master})"
        if answer.lacks:
            raise ClusterError(f"{who} cannot import {', '.join(answer.lacks)}; {_python_fix()}")
        # The digest of the files follows the number; a shipped package has no number.
        if answer.package.partition("(")[2] != version.partition("(")[2]:
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
            f"{place.parent} with the driver: a file written by one is not visible to the other; "
            "nothing was committed: mount the same folder on all of them, with the right to "
            "write, or work locally (TICDC_SPARK_MASTER=local[2])"
        )
