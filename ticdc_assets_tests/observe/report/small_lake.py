"""A lake as a few syncs leave it, written without Spark: only the tables that steer the pipeline.

Its names are those that a page is likely to get wrong.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from ticdc_assets.config import Changefeed
from ticdc_assets.delta.appending import write_table
from ticdc_assets.log import change_statistics, landing
from ticdc_assets.log.cuts import Cut, MirrorCut, publish
from ticdc_assets.log.quarantine import FAULT_SCHEMA
from ticdc_assets.log.schema_tables import write_history
from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema, schema_to_json
from ticdc_assets.model.tso import from_datetime
from ticdc_assets.registry.history import (
    Coordinates,
    RegisteredDdl,
    SchemaConflict,
    SchemaHistory,
    SchemaSource,
    SchemaVersion,
)
from ticdc_assets.storage.lake_paths import FIRST_GENERATION, LakePaths
from ticdc_assets_tests.statuses import ago, at, changefeed, cut, held, mirror, write_tables

ODD_NAMES = (
    "<script>window.hit=1</script>",
    '"><img src=x onerror="window.hit=1">',
    "</script><script>window.hit=1</script>",
    "طلبات",
    "right\u202eleft",
    "😀 'quoted' & `ticked`",
    "%{x} ${y} {{z}} $a^2$",
    "a\nb\0c",
)
"""Names of tables; the first is one of databases too."""


def schema_of(database: str, table: str, version: int, *columns: ColumnSchema) -> TableSchema:
    """Return a schema with `id` as its key."""
    identity = ColumnSchema(name="id", mysql_type="int", nullable=False)
    key = IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=("id",))
    names = {"database": database, "table": table, "table_id": 100, "version": version}
    return TableSchema(**names, columns=(identity, *columns), indexes=(key,))


def mirror_of(database: str, table: str, **other: Any) -> MirrorCut:
    """Return a mirror in a cut."""
    values: dict[str, Any] = {
        "version": 1,
        "rows": 10,
        "schema": json.dumps(schema_to_json(schema_of(database, table, 1))),
        "digest": "x",
        "mode": "change",
        "changes": 3,
    }
    return mirror(table, database=database, **values | other)


def cut_of(number: int, published_at: datetime, lag_seconds: float, **other: Any) -> Cut:
    """Return a cut that was published so far behind."""
    values: dict[str, Any] = {
        "number": number,
        "published_at": published_at,
        "tso": from_datetime(published_at - timedelta(seconds=lag_seconds)),
        "batch": number,
        "mirrors": (),
    }
    return cut(**values | other)


def write_landings(paths: LakePaths, landings: Sequence[tuple[datetime, int, int]]) -> None:
    """Write landings of (when, records, records left in the source)."""
    landed = 0
    for number, (landed_at, records, left) in enumerate(landings, 1):
        landed += records
        idle = dict.fromkeys(("partition", "earliest", "end", "landed"), 0)
        partition = idle | {"topic": "shop", "end": landed + left, "landed": landed}
        row = {
            "number": number,
            "landed_at": landed_at,
            "batch": number,
            "generation": FIRST_GENERATION,
            "records": records,
            "partitions": [partition, idle | {"topic": "idle", "settled": True}],
        }
        table = pa.Table.from_pylist([row], schema=landing._LANDINGS_SCHEMA)
        write_table(paths.landings, table, overwrite=False, metadata={"number": number})


def write_groups(
    paths: LakePaths,
    watermark: datetime,
    tables: Sequence[tuple[str, str]],
    *,
    newest: datetime | None = None,
) -> None:
    """Write change groups: a watermark and a row change of each table, at it if not at `newest`."""
    tso = from_datetime(watermark)
    newest_ts = tso if newest is None else from_datetime(newest)
    common = {
        "topic": "shop",
        "partition": 0,
        "handle_key_only": False,
        "es_only": False,
        "rows": 5,
        "min_ts": tso,
        "max_ts": tso,
        "steps_back": 0,
        "checksums": 0,
        "first_landed_at": ago(60),
        "last_landed_at": ago(10),
        "last_batch": 3,
    }
    of_rows = common | {"kind": "row", "max_ts": newest_ts, "schema_version": 1}
    rows: list[dict[str, Any]] = [{**common, "kind": "watermark"}]
    rows += [
        {**of_rows, "database": database, "table": table, "table_id": number}
        for number, (database, table) in enumerate(tables)
    ]
    groups = pa.Table.from_pylist(rows, schema=change_statistics.GROUPS_SCHEMA)
    write_table(paths.change_groups, groups, overwrite=True, metadata={"batch": 3})


def write_quarantine(paths: LakePaths, rows: Sequence[dict[str, Any]]) -> None:
    """Write quarantine; what a row does not say is as below."""
    common = {
        "stage": "decode",
        "topic": "shop",
        "partition": 0,
        "index": 0,
        "reason": "invalid_json",
        "position": "byte 1",
        "expected": "strict JSON",
        "got": "a secret of a record",
        "batch": 1,
    }
    table = pa.Table.from_pylist([common | row for row in rows], schema=FAULT_SCHEMA)
    write_deltalake(str(paths.quarantine), table, mode="append")


def write_schemas(paths: LakePaths, database: str, table: str) -> None:
    """Write two versions of a table, the DDL between them, one unclear DDL and a conflict."""
    place = Coordinates(topic="shop", partition=0, offset=1, index=0)
    name = (database, table)
    first = schema_of(*name, from_datetime(ago(300)), ColumnSchema(name="a", mysql_type="int"))
    sql = f"ALTER TABLE `{table}` RENAME COLUMN a TO b,\n\tADD COLUMN `<b>c</b>` varchar(10)"
    odd = ColumnSchema(name="<b>c</b>", mysql_type="varchar", length=10)
    wide = ColumnSchema(name="b", mysql_type="bigint")
    second = schema_of(*name, from_datetime(ago(200)), wide, odd)

    def version(schema: TableSchema, text: str | None) -> SchemaVersion:
        return SchemaVersion(
            schema=schema,
            source=SchemaSource.BOOTSTRAP if text is None else SchemaSource.DDL,
            sql=text,
            commit_ts=None if text is None else schema.version,
            coordinates=place,
        )

    def ddl(text: str, seconds: float, *notes: str) -> RegisteredDdl:
        return RegisteredDdl(
            event=DdlEvent(
                commit_ts=from_datetime(ago(seconds)),
                build_ts_ms=None,
                ddl_type="ALTER",
                sql=text,
                database=database,
                table=table,
                schema=second,
                pre_schema=first,
            ),
            coordinates=place,
            copies=frozenset({("shop", 0)}),
            notes=notes,
        )

    history = SchemaHistory()
    history.restore(
        versions=[version(first, None), version(second, sql)],
        ddls=[ddl(sql, 200), ddl("ALTER TABLE x WHIRL <i>it</i>", 100)],
        conflicts=[SchemaConflict(registered=version(second, sql), claimed=version(first, sql))],
    )
    write_history(paths, history, history, 1)


def write_versions(paths: LakePaths, tables: Mapping[tuple[str, str], Sequence[datetime]]) -> None:
    """Write the schema registry: for each table its versions, a column more each time."""
    versions = [
        SchemaVersion(
            schema=schema_of(
                *table,
                from_datetime(moment),
                *(ColumnSchema(name=f"c{n}", mysql_type="int") for n in range(number)),
            ),
            source=SchemaSource.DDL,
            sql=None,
            commit_ts=from_datetime(moment),
            coordinates=Coordinates(topic="shop", partition=0, offset=1, index=0),
        )
        for table, moments in tables.items()
        for number, moment in enumerate(moments)
    ]
    history = SchemaHistory()
    history.restore(versions=versions, ddls=(), conflicts=())
    write_history(paths, history, history, 1)


def published(paths: LakePaths, *tables: tuple[str, str]) -> None:
    """Publish a first cut with mirrors of tables, 5 s ago, after a landing of their rows."""
    write_tables(paths)
    write_landings(paths, [(ago(5), 1, 0)])
    write_groups(paths, ago(5), tables)
    publish(paths, cut_of(1, ago(5), 1, mirrors=tuple(mirror_of(*table) for table in tables)))


def small_lake(folder: Path) -> tuple[Changefeed, LakePaths]:
    """Write a lake that has some of everything, and return its changefeed."""
    paths = LakePaths(root=folder / "lake", changefeed="shop")
    tables = [("shop", "orders"), (ODD_NAMES[0], "odd"), *(("odd", item) for item in ODD_NAMES)]
    write_tables(paths)
    write_landings(paths, [(ago(400), 100, 50), (ago(200), 50, 0), (ago(20), 30, 7)])
    write_groups(paths, ago(15), tables)
    mirrors = tuple(
        mirror_of(
            database,
            table,
            mirror_id=str(number),
            caveats=["<u>marked</u>"] * (number == 1),
            held=2 * (number == 0),
        )
        for number, (database, table) in enumerate(tables)
    )
    waiting = (
        held(49, ODD_NAMES[1], database="late", min_ts=at(50)),
        held(49, "orders", database="shop", min_ts=at(50), mirror_id="0", rows=2),
    )
    publish(paths, cut_of(1, ago(390), 30, mirrors=mirrors[:1]))
    publish(paths, cut_of(2, ago(190), 5, mirrors=mirrors))
    publish(paths, cut_of(3, ago(10), 8, mirrors=mirrors, held=waiting, quarantined=1))
    write_quarantine(
        paths,
        [
            {"offset": 11, "quarantined_at": ago(300), "redriven_at": ago(100)},
            {"offset": 12, "quarantined_at": ago(30), "position": "<b>$.x</b>"},
            {
                "offset": 13,
                "quarantined_at": ago(20),
                "stage": "apply",
                "reason": "value_out_of_range",
                "database": ODD_NAMES[0],
                "table": ODD_NAMES[2],
                "commit_ts": from_datetime(ago(25)),
            },
        ],
    )
    write_schemas(paths, "odd", ODD_NAMES[2])
    return changefeed(folder / "shop.jsonl"), paths
