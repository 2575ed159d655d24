"""What a message means: row changes, DDL, bootstraps and watermarks.

Events carry *physical* values only: what the bytes said, with names, in one spelling for all
formats (`PhysicalValue`). They know no schema and no serialisation; each format in `wire` adapts to
them, never the reverse. Coordinates (topic, partition, offset, index) are not part of an event:
they belong to the record it came from.

The Simple protocol's rows cite a schema version that other messages define. The rows of the other
formats cite none, but describe each column: their `shape`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ticdc_assets.model.schemas import RowShape, TableSchema

SNAPSHOT_DDL = "SNAPSHOT"
"""Type of the DDL event that says: from here on the table's rows are those of an export.

Its commit ts is the export's TSO, its text the table's CREATE TABLE there.
"""


class Op(StrEnum):
    """What a row change did."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SNAPSHOT = "snapshot"
    """The row was in an export of its table; no message says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonedTimestamp:
    """A TIMESTAMP as the Simple protocol sends it: local text and the zone it is in."""

    location: str
    value: str


PhysicalValue: TypeAlias = str | ZonedTimestamp | None
"""One column value as sent, spelled as the Simple protocol in JSON spells it, whatever the format.

Integers, YEAR and BIT are decimal text; ENUM is its 1-based index and SET its bit mask, as decimal
text; FLOAT and DOUBLE are Go's shortest 'f' format without exponent; DECIMAL, DATE, DATETIME, TIME,
JSON and VECTOR are TiDB's text; text is text, and bytes of a binary column are base64. TIMESTAMP is
a `ZonedTimestamp` where its zone is sent (Simple), else text in the changefeed's time zone. NULL is
None.
"""

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
        commit_ts: TSO of the upstream commit; see `es_only`.
        build_ts_ms: epoch ms when TiCDC encoded the message, None where it is not sent; never
            orders anything.
        database: database of the table at `commit_ts`.
        table: name of the table at `commit_ts`.
        table_id: table id as sent: for a partitioned table the physical partition's. None where
            none is sent.
        schema_version: version of the schema the images were encoded with; None where rows cite
            none; they have a `shape` then.
        before: image before the change (update, delete), else None.
        after: image after the change (insert, update), else None.
        handle_key_only: True if the images were cut to the handle key (large messages).
        claim_check_location: where the whole message was put, if it was.
        checksum: row checksums, if sent.
        shape: what the message says of the columns; None where it says nothing (Simple). An encoder
            of any format but Simple JSON needs it.
        row_id: TiDB's internal integer row id, if sent (Open Protocol); 0 is not sent.
        es_only: True if the message has no commit ts, so that `commit_ts` is its `es` (epoch ms)
            shifted to a TSO.
    """

    op: Op
    commit_ts: int
    build_ts_ms: int | None
    database: str
    table: str
    table_id: int | None
    schema_version: int | None
    before: Image | None
    after: Image | None
    handle_key_only: bool = False
    claim_check_location: str | None = None
    checksum: Checksum | None = None
    shape: RowShape | None = None
    row_id: int = 0
    es_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlEvent:
    """A schema change: its text, and the schemas around it where the format sends them.

    `database` and `table` name the table after the change; both are "" where the message names none
    (CREATE DATABASE and the like: only the SQL has it). `ddl_type` is the Simple protocol's word
    for every format. `action_code` is TiDB's number for the statement, where it is sent.
    """

    ddl_type: str
    commit_ts: int
    build_ts_ms: int | None
    sql: str
    database: str
    table: str
    schema: TableSchema | None
    pre_schema: TableSchema | None
    action_code: int | None = None
    es_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """A table's full schema, repeated periodically; it has no commit ts.

    `schema` is None where the format has no place for one: Canal-JSON and Open Protocol send a
    bootstrap as a DDL without text, table and commit ts, which says nothing.
    """

    build_ts_ms: int | None
    schema: TableSchema | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The promise that no new row at or below and no new DDL below `watermark_ts` follows here."""

    watermark_ts: int
    build_ts_ms: int | None


Event: TypeAlias = RowChange | DdlEvent | Bootstrap | Watermark
