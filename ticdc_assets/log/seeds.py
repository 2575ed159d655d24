"""Seeds: the tables that were seeded from exports, and how to read their landed rows.

Rows of `seeds`, one per table and seed, have its TSO, its schema at the TSO, and the form of its
files. So the rows of `snapshot_rows` can be decoded again without the export.

Why writing again is safe: a seed that was not landed has no effect, and the next one takes its
number. The transaction identifiers of `snapshot_rows` and `change_log` record which seeds are
landed and decoded (application `seed`, version: the number of the seed).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import read_rows
from ticdc_assets.delta.opening import open_table
from ticdc_assets.delta.row_schema import fields_of
from ticdc_assets.model.schemas import TableSchema, schema_from_text, schema_to_text
from ticdc_assets.source.exports.dialect import CsvDialect
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

APPLICATION = "seed"
"""The application name in transaction identifiers of seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One table in one export.

    Attributes:
        seed: number of the seed; tables that were seeded together share it.
        fingerprint: identifies the content of its files.
        create_sql: its CREATE TABLE there; "" if the schema came from the registry.
        schema: its schema there, with the TSO as version.
        notes: the parts of its CREATE TABLE that are not understood.
        dialect: the dialect of its CSV files.
        timezone: zone of the session that exported it, which is the zone of TIMESTAMPs in the
            files.
    """

    seed: int
    database: str
    table: str
    tso: int
    folder: str
    fingerprint: str
    create_sql: str
    schema: TableSchema
    notes: tuple[str, ...] = ()
    dialect: CsvDialect
    timezone: str
    seeded_at: datetime

    @property
    def name(self) -> tuple[str, str]:
        """(database, table)."""
        return (self.database, self.table)


SEEDS_SCHEMA = pa.schema(fields_of(Seed, schema=pa.string(), dialect=pa.string()))
"""`seeds`: one row for each table and seed."""


def landed_seed(paths: LakePaths) -> int:
    """Return the number of the newest seed whose rows are landed; 0 if there is none."""
    return _newest(paths.snapshot_rows)


def decoded_seed(paths: LakePaths) -> int:
    """Return the number of the newest seed whose rows are in the change log; 0 for none."""
    return _newest(paths.change_log)


def _newest(path: AnyPath) -> int:
    table = open_table(path)
    return 0 if table is None else table.transactions.get(APPLICATION, 0)


def read_seeds(paths: LakePaths, seed: int | None = None) -> list[Seed]:
    """Return the seeds whose rows are landed, or the tables of one; needs no Spark."""
    newest = landed_seed(paths)
    condition = ds.field("seed") <= newest
    if seed is not None:
        condition &= ds.field("seed") == seed
    return [
        Seed(
            **{
                **row,
                "schema": schema_from_text(row["schema"]),
                "notes": tuple(row["notes"]),
                "dialect": CsvDialect(**json.loads(row["dialect"])),
            }
        )
        for row in (read_rows(paths.seeds, condition) if newest else ())
    ]


def write_seeds(paths: LakePaths, seeds: Sequence[Seed]) -> None:
    """Write the tables of the next seed, in place of a seed that was not landed."""
    rows = [
        {name: getattr(item, name) for name in SEEDS_SCHEMA.names}
        | {"schema": schema_to_text(item.schema), "dialect": json.dumps(asdict(item.dialect))}
        for item in (*read_seeds(paths), *seeds)
    ]
    table = pa.Table.from_pylist(rows, SEEDS_SCHEMA)
    write_table(paths.seeds, table, overwrite=True, metadata={"seed": seeds[0].seed})
