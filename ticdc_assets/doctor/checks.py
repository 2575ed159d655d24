"""Every check of `ticdc-assets doctor`: the machine, the settings, the lake and each source.

In: the environment, and the settings it names. Out: `Check` values, each as soon as it is known:
cheap checks first, then those that wait for brokers, last the jars, which may be downloaded.
Nothing is committed or changed, so running the checks again is always safe. No check shows the
content of a record, or says whether the content of the lake is correct.

A check that fails says what to type. A check that is not `vital` does not prevent a sync; it warns
about later problems: little disk space, short retention of a topic, partitions without a watermark.

Modules of Arrow, Delta and Kafka take seconds to import, so each check imports what it needs.
"""

import importlib
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import yaml

from ticdc_assets.base.errors import (
    UNREADABLE,
    ConfigError,
    LakeDamagedError,
    PrerequisiteError,
)
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.base.machine import nearest_existing
from ticdc_assets.base.names import counted
from ticdc_assets.config import HOME_VARIABLE, Changefeed, Settings, Writer, lake_path
from ticdc_assets.spark.jars import Progress, lake_jars, spark_jars
from ticdc_assets.spark.preflight import (
    Check,
    check_configuration,
    check_jars,
    check_java,
    check_lake,
    check_pyspark,
    check_python,
)
from ticdc_assets.storage.paths import AnyPath, RemotePath

if TYPE_CHECKING:
    from ticdc_assets.delta.lake import Lake
    from ticdc_assets.storage.lake_paths import LakePaths

LEAST_FREE_BYTES: Final = 5_000_000_000
"""Free disk below which the check warns: a rebuild writes the change log and the mirrors again."""
_FOLDER: Final = re.compile("[a-z0-9_]+")
_SOURCES_AT_ONCE: Final = 8
"""Sources that are checked at the same time: a broker that is down costs some seconds."""


def _ignore(_: str) -> None:
    """Report to nobody."""


def run_checks(
    *, env: Mapping[str, str] | None = None, progress: Progress = _ignore
) -> Iterator[Check]:
    """Run every check and yield each result at once, cheap checks first.

    `progress` is called with a line when something is downloaded or waited for.
    """
    env = os.environ if env is None else env
    yield check_python()
    configuration, settings = check_configuration(env)
    yield configuration
    store_ok = True
    if settings is not None:
        if not isinstance(settings.lake, RemotePath):
            lake = check_lake(settings.lake)
            yield lake
            store_ok = lake.ok
            if lake.ok:
                yield check_disk(settings.lake)
        yield check_home(settings.home(env), env)
    java = check_java(env)
    yield java
    pyspark = check_pyspark()
    yield pyspark
    if settings is not None:
        if isinstance(settings.lake, RemotePath):
            store = check_store(settings.lake)
            yield store
            store_ok = store.ok
        if store_ok:
            # Records are read by libraries that come with Spark's.
            yield from _check_changefeeds(settings, can_read=pyspark.ok, progress=progress)
    yield from _check_spark(env, java, pyspark, progress=progress)
    if settings is not None and store_ok and not settings.spark.is_local:
        yield check_cluster(settings, progress=progress)


def check_machine(
    *, env: Mapping[str, str] | None = None, progress: Progress = _ignore
) -> Iterator[Check]:
    """Check what needs no settings, and make it ready: Python, Java, pyspark, jars, class archive.

    Jars are downloaded and the class archive is made if they are missing, which takes a minute.
    """
    env = os.environ if env is None else env
    yield check_python()
    java, pyspark = check_java(env), check_pyspark()
    yield from (java, pyspark)
    yield from _check_spark(env, java, pyspark, progress=progress, make=True)


def _check_changefeeds(
    settings: Settings, *, can_read: bool, progress: Progress
) -> Iterator[Check]:
    """Check the tables, the sources and the alerts of all changefeeds."""
    from ticdc_assets.delta.lake import Lake, paths_of
    from ticdc_assets.doctor.sources import check_source

    yield check_unnamed(settings)
    lake = settings.lake if can_read else None
    if can_read:
        # They import pyspark, which two threads must not do at once.
        for name in ("accepted_gaps", "damage", "positions", "sources"):
            importlib.import_module(f"ticdc_assets.log.{name}")
    with ThreadPoolExecutor(_SOURCES_AT_ONCE) as pool:
        sources = {
            changefeed.name: pool.submit(check_source, changefeed, lake=lake)
            for changefeed in settings.changefeeds
        }
        for changefeed in settings.changefeeds:
            progress(f"checking the tables and the source of {changefeed.name}")
            paths = paths_of(settings.lake, changefeed.name)
            yield from check_tables(paths)
            yield from check_lease(paths, changefeed.writer)
            yield from check_rows(Lake(changefeed=changefeed, paths=paths))
            yield from sources[changefeed.name].result()
            yield from check_alerts(changefeed)


def _check_spark(
    env: Mapping[str, str],
    java: Check,
    pyspark: Check,
    *,
    progress: Progress,
    make: bool = False,
) -> Iterator[Check]:
    """Check the jars, and the class archive; `make` says whether to make the archive."""
    if java.ok:
        lake = _lake(env)
        scheme = lake.store.scheme if isinstance(lake, RemotePath) else None
        jars = check_jars(spark_jars(scheme), progress=progress)
        yield jars
        if jars.ok and pyspark.ok:
            yield check_class_archive(env, progress=progress, make=make)


def _lake(env: Mapping[str, str]) -> AnyPath:
    """Return the lake, or the current folder if its setting is wrong."""
    try:
        return lake_path(env)
    except ConfigError:
        return Path()


def check_class_archive(
    env: Mapping[str, str], *, progress: Progress = _ignore, make: bool = True
) -> Check:
    """Check whether there is a class archive for Spark's JVM; `make` says whether to make one."""
    from ticdc_assets.spark.class_archive import class_archive

    needed = "a folder in the user's cache that no other user can write"
    jars = lake_jars(_lake(env))
    archive = class_archive(jars, env)
    name, finding = "class archive", "none can be made"
    if archive is None and not make:
        finding = (
            "none; `ticdc-assets doctor --machine` makes one in about a minute, and Spark then "
        )
        return Check.passed(name, f"{finding}starts some seconds sooner")
    if archive is None:
        progress("writing Spark's classes to an archive, for quick starts: about a minute, once")
        archive = class_archive(jars, env, make=True)
    if archive is None:
        fix = "Spark starts without it, some seconds later; make the cache folder writable"
        return Check.failed(name, finding, needed, fix, vital=False)
    return Check.passed(name, f"{archive.stat().st_size / 1e6:.0f} MB at {archive}")


def check_cluster(settings: Settings, *, progress: Progress) -> Check:
    """Check that every executor of the cluster that is set can work on the lake."""
    from ticdc_assets.spark.cluster import ClusterError, require_cluster
    from ticdc_assets.spark.session import get_spark

    spark, lake = settings.spark, settings.lake
    needed = "executors that run this package and share the lake"
    progress(f"checking the executors of {spark.master}")
    try:
        answers = require_cluster(get_spark(settings=spark), lake / "any")
    except (ClusterError, PrerequisiteError) as error:
        fix = f"correct it in {spark.place}; nothing is landed meanwhile"
        return Check.failed("spark cluster", str(error), needed, fix)
    pythons = ", ".join(sorted({answer.python for answer in answers}))
    packages = ", ".join(sorted({answer.package for answer in answers}))
    return Check.passed(
        "spark cluster",
        f"{counted(len(answers), 'executor')} at {spark.master} ({spark.place}) with Python "
        f"{pythons} and ticdc_assets {packages}; they and this machine see each other's files in "
        "the lake",
    )


def check_disk(lake: Path) -> Check:
    """Check that there is some disk left where the tables are."""
    free = shutil.disk_usage(nearest_existing(lake)).free
    finding = f"{free / 1e9:.1f} GB free for {lake}"
    if free >= LEAST_FREE_BYTES:
        return Check.passed("disk", finding)
    needed = f"{LEAST_FREE_BYTES / 1e9:.0f} GB of free disk"
    fix = "free some, set TICDC_LAKE to another disk, or set `retention` and run "
    fix += "`ticdc-assets maintain CHANGEFEED`"
    return Check.failed("disk", finding, needed, fix, vital=False)


def check_store(lake: RemotePath) -> Check:
    """Check that the store of a lake can be written, and keeps commits apart."""
    # It takes a while to import.
    from ticdc_assets.storage.creating import probe_store

    try:
        finding = probe_store(lake)
    except Exception as error:  # noqa: BLE001 - each library has its own
        finding = first_sentence(error)
    if finding is None:
        return Check.passed("lake", f"{lake}, which keeps both of two commits made at once")
    return Check.failed(
        "lake",
        f"{lake}: {finding}",
        "a store that can be written to, and that refuses to put a commit in another's place",
        "check TICDC_LAKE, the block `storage` of the changefeeds file, the credentials, and "
        "whether the bucket exists; a store without conditional puts "
        "(If-None-Match) cannot have a lake",
    )


def check_home(home: Path, env: Mapping[str, str]) -> Check:
    """Check the folder of the Dagster instance; one that is not there is not made."""
    named = env.get(HOME_VARIABLE)
    needed = "a folder that can be written to for the Dagster instance"

    def wrong(finding: str, fix: str) -> Check:
        return Check.failed("dagster home", finding, needed, fix)

    another = f"change its permissions or set {HOME_VARIABLE} to another folder"
    if named and not Path(os.path.expanduser(named)).is_absolute():  # noqa: PTH111
        finding = f"{HOME_VARIABLE}={named}, which Dagster's own programs do not accept as a path"
        return wrong(finding, f"write it as {home}")
    place = nearest_existing(home)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return wrong(f"{home}, which cannot be written to", another)
    if place != home:
        return Check.passed("dagster home", f"{home} (not there yet)")
    file = home / "dagster.yaml"
    storage = "SQLite"
    if file.exists():
        try:
            text = file.read_text(encoding="utf-8")
            settings: Any = yaml.safe_load(text)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no YAML"
            return wrong(f"{file}, which cannot be read ({reason})", "fix it")
        unset = sorted(name for name in _env_names(settings) if not env.get(name))
        if unset:
            return wrong(f"{file}, which needs {', '.join(unset)}", f"set {', '.join(unset)}")
        given = cast(dict[Any, Any], settings) if isinstance(settings, dict) else {}
        if "postgres" in (given.get("storage") or ()):
            storage = "PostgreSQL"
            if importlib.util.find_spec("dagster_postgres") is None:
                return wrong(
                    f"{file} with PostgreSQL, and no package dagster-postgres",
                    "install ticdc-assets with its extra `postgres`",
                )
    return Check.passed("dagster home", f"{home}, runs and events in {storage}")


def _env_names(settings: Any) -> Iterator[str]:
    if isinstance(settings, dict):
        mapping = cast(dict[Any, Any], settings)
        if set(mapping) == {"env"} and isinstance(mapping["env"], str):
            yield mapping["env"]
            return
        for item in mapping.values():
            yield from _env_names(item)
    elif isinstance(settings, list):
        for item in cast(list[Any], settings):
            yield from _env_names(item)


def check_unnamed(settings: Settings) -> Check:
    """Warn about changefeeds in the lake that the file does not name."""
    from ticdc_assets.storage.lake_paths import changefeeds_in

    named = {changefeed.name for changefeed in settings.changefeeds}
    # A name that the file could not have is no changefeed's.
    unnamed = [
        name
        for name in changefeeds_in(settings.lake)
        if name not in named and _FOLDER.fullmatch(name)
    ]
    name, needed = "changefeeds in the lake", "the name of every changefeed that is in the lake"
    if not unnamed:
        return Check.passed(name, "all are named")
    finding = f"{', '.join(unnamed)}, which {settings.path} does not name"
    fix = "their tables stay as they are; add one back to the file to continue it, or remove its "
    fix += f"folder from {settings.lake} if you no longer need it"
    return Check.failed(name, finding, needed, fix, vital=False)


def check_alerts(changefeed: Changefeed) -> list[Check]:
    """Check that the URL of each target of alerts can be understood; nothing is sent."""
    if not changefeed.alerts.to:
        return []
    from ticdc_assets.observe.alerting import understands

    name = f"alerts {changefeed.name}"
    wrong = [str(target) for target in changefeed.alerts.to if not understands(target)]
    if not wrong:
        return [Check.passed(name, counted(len(changefeed.alerts.to), "target"))]
    finding = f"{', '.join(wrong)} is no URL of Apprise"
    needed = "a URL such as slack://... or mailto://...: https://appriseit.com"
    fix = "set the environment variable to such a URL"
    return [Check.failed(name, finding, needed, fix, vital=False)]


def check_lease(paths: "LakePaths", writer: Writer) -> list[Check]:
    """Report who writes to a changefeed, if a lease says so; an empty list without a lease.

    A lease whose holder is no more does no harm: the next run takes it over.
    """
    from ticdc_assets.delta.lease import read_lease

    name, needed = f"lease {paths.changefeed}", "a log that can be read"
    try:
        state = read_lease(paths.lease)
    except LakeDamagedError as error:
        return [Check.failed(name, error.finding, needed, error.repair)]
    if state is None and writer.lease is None:
        return []
    finding = "nobody ever had it" if state is None else str(state)
    return [Check.passed(name, finding)]


def check_tables(paths: "LakePaths") -> list[Check]:
    """Check that every table of a changefeed is whole: its log, its files and their footers.

    Rows are not read. Each table that is broken is a check of its own, with what repairs it.
    """
    # Spark's libraries are imported with it, which takes a while.
    from ticdc_assets.log.damage import find_damage

    name = f"tables {paths.changefeed}"
    needed = "every file that the newest versions name, as it was written"
    if not paths.base.is_dir():
        return [Check.passed(name, "nothing landed yet")]
    damages = find_damage(paths)
    if not damages:
        return [Check.passed(name, "all are whole")]
    texts = ((f"{it.table}: {it.finding} (in {it.path})", it.repair) for it in damages)
    return [Check.failed(name, text, needed, repair) for text, repair in texts]


def check_rows(lake: "Lake") -> list[Check]:
    """Say what the status of a changefeed says of rows: missing, held or not accounted for.

    Nothing before the first cut, or if it cannot be read: `check_tables` says so.
    """
    from ticdc_assets.observe.status_reading import read_status
    from ticdc_assets.observe.verdicts import Check as Judged

    try:
        status = read_status(lake, datetime.now(UTC))
    except UNREADABLE:
        return []
    if status.cut is None:
        return []
    name = f"rows {lake.changefeed.name}"
    judged = (Judged.MIRRORS_COMPLETE, Judged.HELD_ROWS, Judged.CHANGES_ACCOUNTED)
    verdicts = [status.verdicts[item] for item in judged]
    return [
        Check.failed(name, verdict.sentence.removesuffix("."), vital=False)
        for verdict in verdicts
        if verdict.level
    ] or [Check.passed(name, "all are known")]
