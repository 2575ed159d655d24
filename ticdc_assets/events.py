"""What a message means: row changes, DDL, bootstraps and watermarks.

Events carry *physical* values only: what the bytes said, with names. They know no schema and no
serialisation; each format in `wire` adapts to them, never the reverse. Coordinates (topic,
partition, offset, index) are not part of an event: they belong to the record it came from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ticdc_assets.schemas import TableSchema


class Op(StrEnum):
    """What a row change did."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonedTimestamp:
    """A TIMESTAMP as the Simple protocol sends it: local text and the zone it is in."""

    location: str
    value: str


PhysicalValue: TypeAlias = str | ZonedTimestamp | None
"""One column value as sent. Simple JSON sends text, NULL or a zoned timestamp."""

Image: TypeAlias = Mapping[str, PhysicalValue]
"""A row image: column name to value as sent. A column that was not sent is absent, not NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """Row checksums as sent (CRC32 over the columns in column-id order)."""

    version: int
    corrupted: bool
    current: int
    previous: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One row's change.

    Attributes:
        op: insert, update or delete.
        commit_ts: TSO of the upstream commit.
        build_ts_ms: epoch ms when TiCDC encoded the message; never orders anything.
        database: database of the table at `commit_ts`.
        table: name of the table at `commit_ts`.
        table_id: table id as sent: for a partitioned table the physical partition's.
        schema_version: version of the schema the images were encoded with.
        before: image before the change (update, delete), else None.
        after: image after the change (insert, update), else None.
        handle_key_only: True if the images were cut to the handle key (large messages).
        claim_check_location: where the whole message was put, if it was.
        checksum: row checksums, if sent.
    """

    op: Op
    commit_ts: int
    build_ts_ms: int
    database: str
    table: str
    table_id: int
    schema_version: int
    before: Image | None
    after: Image | None
    handle_key_only: bool = False
    claim_check_location: str | None = None
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlEvent:
    """A schema change: its text, and the schemas around it where the format sends them.

    `database` and `table` name the table after the change; both are "" where the message names
    none (CREATE DATABASE and the like: only the SQL tells).
    """

    ddl_type: str
    commit_ts: int
    build_ts_ms: int
    sql: str
    database: str
    table: str
    schema: TableSchema | None
    pre_schema: TableSchema | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """A table's full schema, repeated periodically; it has no commit ts."""

    build_ts_ms: int
    schema: TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The promise that no row at or below and no DDL below `watermark_ts` newly follows here."""

    watermark_ts: int
    build_ts_ms: int


Event: TypeAlias = RowChange | DdlEvent | Bootstrap | Watermark
