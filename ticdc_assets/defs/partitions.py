"""Names that Dagster knows a changefeed by: assets, jobs, pool, tags, and partitions for tables.

A table's partition is `database.table`, written so that it reads back without doubt: what could be
mistaken (a dot or percent sign in a name, spaces, quotes, control characters, what Dagster itself
reads as syntax) stands as percent-encoded UTF-8, so the only bare dot is the one between the two
names. Letters and symbols of any script stay as they are.
"""

from dataclasses import dataclass
from urllib.parse import unquote

import dagster as dg

CHANGEFEED_TAG = "ticdc/changefeed"
"""Tag of every run of a changefeed's jobs; its value is the changefeed's name."""

_PLAIN = frozenset("_-$#@~+=")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedNames:
    """What the assets and jobs of one changefeed are called."""

    changefeed: str

    def asset(self, name: str) -> dg.AssetKey:
        """Return the key of the changefeed's asset `name`."""
        return dg.AssetKey([self.changefeed, name])

    def op(self, name: str) -> str:
        """Return the name of the op that computes asset `name`; run configuration goes by it."""
        return f"{self.changefeed}__{name}"

    @property
    def pool(self) -> str:
        """The pool that keeps the changefeed's runs apart."""
        return f"ticdc_{self.changefeed}"

    @property
    def sync_job(self) -> str:
        """The job that lands, decodes, registers and applies."""
        return f"{self.changefeed}_sync"

    @property
    def redrive_job(self) -> str:
        """The job that tries quarantined records again."""
        return f"{self.changefeed}_redrive"

    @property
    def verify_job(self) -> str:
        """The job that compares the mirrors with their rebuild."""
        return f"{self.changefeed}_verify"

    @property
    def verify_schedule(self) -> str:
        """The schedule of that job."""
        return f"{self.verify_job}_schedule"

    @property
    def maintenance_job(self) -> str:
        """The job that removes what is not kept, compacts and vacuums."""
        return f"{self.changefeed}_maintenance"

    @property
    def maintenance_schedule(self) -> str:
        """The schedule of that job."""
        return f"{self.maintenance_job}_schedule"

    @property
    def sensor(self) -> str:
        """The sensor that asks for syncs."""
        return f"{self.changefeed}_sync_sensor"

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the changefeed's runs."""
        return {CHANGEFEED_TAG: self.changefeed}

    @property
    def tables(self) -> dg.DynamicPartitionsDefinition:
        """One partition a mirror."""
        return dg.DynamicPartitionsDefinition(name=f"ticdc_{self.changefeed}_tables")


def partition_of(database: str, table: str) -> str:
    """Return the partition key of a table."""
    return f"{_encoded(database)}.{_encoded(table)}"


def table_of(partition: str) -> tuple[str, str]:
    """Return the (database, table) of a partition key.

    Raises:
        ValueError: the text is no partition key that `partition_of` gives.
    """
    database, dot, table = partition.partition(".")
    names = (_decoded(database), _decoded(table))
    if not dot or partition_of(*names) != partition:
        raise ValueError(f"{partition!r} is not a partition of a table")
    return names


def _encoded(name: str) -> str:
    return "".join(
        character
        if character in _PLAIN
        or (character.isalnum() if character.isascii() else character.isprintable())
        else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        for character in name
    )


def _decoded(text: str) -> str:
    return unquote(text, encoding="utf-8", errors="surrogatepass")
