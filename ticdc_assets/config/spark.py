"""Spark's settings: where it runs, and any property that somebody sets.

In: `spark:` of the changefeeds file, and three variables that override it. Out: `SparkSettings`, or
every mistake with its property. Properties that results or readers depend on belong to this
package: another value is a mistake. A value given as `{env: NAME}` is secret and not shown; a
property whose name says that it is a secret must be given so.

This module starts nothing and opens no file; `spark.session` starts Spark.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import TypeAdapter, ValidationError, ValidationInfo

from ticdc_assets.config.reading import (
    File,
    OptionValue,
    mistake,
    reads,
    refuse,
    scalar,
    unexpected,
    values_of,
)
from ticdc_assets.config.sources import FROM_ENV

MASTER_VARIABLE: Final = "TICDC_SPARK_MASTER"
MEMORY_VARIABLE: Final = "TICDC_SPARK_DRIVER_MEMORY"

REMOTE_VARIABLE: Final = "SPARK_REMOTE"

MASTER: Final = "spark.master"
REMOTE: Final = "spark.remote"
"""Address of a Spark Connect server: `sc://host:port`, with options after semicolons."""
MEMORY: Final = "spark.driver.memory"
PYTHON: Final = "spark.pyspark.python"
PACKAGE: Final = "spark.ticdc.package"
"""A property of this package: how the workers of a cluster get the package."""

SHIPPED, INSTALLED = "shipped", "installed"
DEFAULT_MASTER: Final = "local[2]"

_TIME_TRAVEL_BY_AGE = (
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
)

OWN: Final[Mapping[str, str]] = {
    "spark.submit.deployMode": "client",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.stats.skipping": "true",
    # A version that a kept cut names may be old: the cuts keep its files, not their age. Delta
    # would otherwise refuse to read the version, and to restore it when a killed run is undone.
    _TIME_TRAVEL_BY_AGE: "false",
    # Names from upstream and texts of queries are data: Spark would put the value of a variable of
    # the environment in place of `${env:NAME}`.
    "spark.sql.variable.substitute": "false",
}
"""Properties of every session that only this package sets."""

OF_A_CLUSTER: Final = frozenset(
    {"spark.driver.host", "spark.driver.bindAddress", PYTHON, PACKAGE, "spark.archives"}
)
"""Properties without a meaning where Spark runs in this machine's one JVM."""

_OF_THE_COMMAND = re.compile(
    r"spark\.(master|jars|files|archives|submit)(\..*)?|spark\.driver\.(memory|extra|default)\w*"
)
"""Properties in the command line that starts Spark's JVM."""

_NAME = re.compile(r"spark\.[\w.$\[\]-]+")
_SECRET = re.compile(
    r"(password|passphrase|passwd|secret|token|(access|private|account|encryption)[._]?key)($|\.)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The user's properties of Spark, without this package's, and where they are set, in words."""

    properties: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])
    place: str = "the defaults"

    @property
    def master(self) -> str:
        """Where Spark runs."""
        given = self.properties.get(MASTER)
        return DEFAULT_MASTER if given is None else given.value

    @property
    def remote(self) -> str | None:
        """Address of the Spark Connect server, None if Spark's driver runs in this process."""
        given = self.properties.get(REMOTE)
        return None if given is None else given.value

    @property
    def is_local(self) -> bool:
        """Whether it runs in one JVM of this machine."""
        return self.remote is None and is_local(self.master)

    @property
    def values(self) -> dict[str, str]:
        """The properties' values. Some are secret: never log them."""
        return {name: option.value for name, option in self.properties.items()}

    @property
    def secrets(self) -> frozenset[str]:
        """Names of the properties whose values are not shown."""
        return frozenset(
            name for name, option in self.properties.items() if option.value != option.shown
        )


def is_local(master: str) -> bool:
    """Return whether a master is this machine's one JVM; `local-cluster` is a cluster."""
    return master == "local" or master.startswith("local[")


@reads("a mapping of Spark properties")
def _properties(value: Any, info: ValidationInfo) -> dict[str, OptionValue]:
    if not isinstance(value, dict):
        # Not shown: it may hold a secret in the wrong place.
        raise mistake("expected a mapping of Spark properties")

    def option(name: str, item: Any) -> OptionValue:
        if not _NAME.fullmatch(name):
            raise mistake("expected the whole name of a Spark property, like spark.master")
        given = scalar(item, info, "a value or {env: NAME}")
        _check(name, given)
        return given

    options, mistakes = values_of(cast(dict[str, Any], value).items(), option)
    refuse(mistakes)
    return options


def _check(name: str, given: OptionValue) -> None:
    setting = OWN.get(name)
    if setting is not None and given.value != setting:
        raise unexpected(f"nothing or {setting!r}, which mirrors depend on", given)
    if name == PACKAGE and given.value not in (SHIPPED, INSTALLED):
        raise unexpected(f"{SHIPPED} or {INSTALLED}", given)
    if name == "spark.pyspark.driver.python":
        raise mistake(f"not to be set: the driver is this program; {PYTHON} is that of workers")
    is_secret = given.value != given.shown
    if is_secret and _OF_THE_COMMAND.fullmatch(name):
        raise mistake("expected a value: Spark's JVM is started with it, where every user sees it")
    if name == REMOTE and not given.value.startswith("sc://"):
        raise unexpected("an address like sc://host:15002", given)
    if not is_secret and (_SECRET.search(name) or (name == REMOTE and ";token=" in given.value)):
        raise mistake(f"expected {FROM_ENV}, got a value")


_PROPERTIES: TypeAdapter[dict[str, OptionValue]] = TypeAdapter(
    Annotated[dict[str, OptionValue], _properties]
)


def read_spark(given: Any, path: Path, env: Mapping[str, str]) -> tuple[SparkSettings, list[str]]:
    """Return the settings of a mapping of properties in the file at `path`, and its mistakes.

    Of the variables in `env`, some override the mapping.
    """
    options: dict[str, OptionValue] = {}
    mistakes: list[str] = []
    if given is not None:
        try:
            options = _PROPERTIES.validate_python(given, context=File(path.parent, env))
        except ValidationError as error:
            mistakes = [
                f"{''.join(f'{part}: ' for part in it['loc'])}{it['msg']}" for it in error.errors()
            ]
    where = f"spark of {path}" if options else "the defaults"
    overriding = {
        name: OptionValue(value, value)
        for name, variable in _OVERRIDES.items()
        if (value := env.get(variable))
    }
    if {REMOTE, MASTER} <= {**options, **overriding}.keys():
        mistakes.append(f"{REMOTE}: not with {MASTER}: the server has its own")
    if SparkSettings(properties=options).is_local and not {MASTER, REMOTE} & overriding.keys():
        mistakes += [
            f"{name}: not with {MASTER} {DEFAULT_MASTER} or another local one, which has its own"
            for name in sorted(OF_A_CLUSTER.intersection(options))
        ]
    where += "".join(f" and {_OVERRIDES[name]}" for name in overriding)
    return SparkSettings(properties=options | overriding, place=where), mistakes


_OVERRIDES: Final = {MASTER: MASTER_VARIABLE, MEMORY: MEMORY_VARIABLE, REMOTE: REMOTE_VARIABLE}
