"""A builder of Delta tables with deletion vectors, in plain Python, for tests of readers.

In: batches of rows to insert or replace, and keys to delete. Out: a table with one commit a batch.
A batch writes its rows into one new file, and marks the rows that it replaces or deletes in the
deletion vectors of the older files. It rewrites no file.

Source: "Deletion Vectors", "Column Mapping" and "Type Widening" in Delta's PROTOCOL.md.
"""

import base64
import json
import struct
import time
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from ticdc_assets.storage.creating import create

KEY: Final = "id"
"""The column of keys."""

_ROWS_OF_A_GROUP: Final = 100

_PORTABLE: Final = 1_681_511_377
_TO_Z85: Final = str.maketrans(
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
_DELTA_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
}


@dataclass(frozen=True)
class Batch:
    """What one commit changes.

    Attributes:
        rows: rows to insert, or to replace by their key. Their schema is the table's from here on:
            it may add columns, and have wider types than before.
        deleted: keys of rows to delete.
    """

    rows: pa.Table
    deleted: Sequence[int] = ()


@dataclass
class _File:
    """A data file of the newest version.

    Attributes:
        name: its name.
        size: its bytes.
        keys: the keys of its rows, in order.
        stats: its statistics.
        gone: the numbers of its rows that are deleted.
        vector: the deletion vector as the log describes it.
    """

    name: str
    size: int
    keys: list[int]
    stats: dict[str, Any]
    gone: BitMap64 = field(default_factory=BitMap64)
    vector: dict[str, Any] | None = None


def make_table(table: Path, batches: Sequence[Batch], *, mapped: bool = False) -> None:
    """Make a Delta table with deletion vectors.

    Args:
        table: its folder.
        batches: one for each version, from 0 on.
        mapped: whether its columns have other names in the files (column mapping by name).
    """
    _Builder(table, batches, mapped=mapped).build()


class _Builder:
    def __init__(self, table: Path, batches: Sequence[Batch], *, mapped: bool) -> None:
        self._table = table
        self._batches = batches
        self._mapped = mapped
        self._physical: dict[str, str] = {}
        self._files: list[_File] = []
        self._widened: dict[str, list[dict[str, str]]] = {}
        self._id = str(uuid.uuid4())

    def build(self) -> None:
        self._table.mkdir(parents=True)
        schema: pa.Schema | None = None
        for version, batch in enumerate(self._batches):
            actions: list[dict[str, Any]] = []
            if batch.rows.schema != schema:
                is_new = self._note_schema(schema, batch.rows.schema)
                schema = batch.rows.schema
                actions += [{"protocol": self._protocol()}] if is_new else []
                actions.append({"metaData": self._metadata(schema)})
            actions += self._deletions({*batch.deleted, *batch.rows[KEY].to_pylist()})
            if batch.rows.num_rows:
                actions.append(self._new_file(batch.rows))
            said = {"id": str(uuid.uuid4()), "timestamp": _now_ms(), "operation": "WRITE"}
            lines = "\n".join(json.dumps(item) for item in [{"commitInfo": said}, *actions])
            create(self._table / "_delta_log" / f"{version:020}.json", lines.encode())

    # Protocol and metadata -----------------------------------------------------------------------

    def _note_schema(self, before: pa.Schema | None, after: pa.Schema) -> bool:
        """Note the columns that are new or wider; return whether the protocol has to say more."""
        known = bool(self._widened)
        for new in after:
            if new.name not in self._physical:
                self._physical[new.name] = f"col-{uuid.uuid4()}" if self._mapped else new.name
            elif before is not None and (old := before.field(new.name).type) != new.type:
                change = {"fromType": _DELTA_TYPES[old], "toType": _DELTA_TYPES[new.type]}
                self._widened.setdefault(new.name, []).append(change)
        return before is None or (bool(self._widened) and not known)

    def _protocol(self) -> dict[str, Any]:
        features = ["deletionVectors"]
        features += ["columnMapping"] if self._mapped else []
        features += ["typeWidening"] if self._widened else []
        return {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }

    def _metadata(self, schema: pa.Schema) -> dict[str, Any]:
        configuration = {"delta.enableDeletionVectors": "true"}
        if self._mapped:
            configuration["delta.columnMapping.mode"] = "name"
            configuration["delta.columnMapping.maxColumnId"] = str(len(schema))
        if self._widened:
            configuration["delta.enableTypeWidening"] = "true"
        columns = [self._column(number, item) for number, item in enumerate(schema, 1)]
        return {
            "id": self._id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": columns}),
            "partitionColumns": [],
            "configuration": configuration,
            "createdTime": _now_ms(),
        }

    def _column(self, number: int, column: pa.Field) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        if self._mapped:
            metadata["delta.columnMapping.id"] = number
            metadata["delta.columnMapping.physicalName"] = self._physical[column.name]
        if column.name in self._widened:
            metadata["delta.typeChanges"] = self._widened[column.name]
        return {
            "name": column.name,
            "type": _DELTA_TYPES[column.type],
            "nullable": True,
            "metadata": metadata,
        }

    # Files ---------------------------------------------------------------------------------------

    def _new_file(self, rows: pa.Table) -> dict[str, Any]:
        path = self._table / f"part-{uuid.uuid4()}.parquet"
        fields = [
            pa.field(self._physical[item.name], item.type, metadata=self._field_id(number))
            for number, item in enumerate(rows.schema, 1)
        ]
        # Several groups: a reader that skips some has to count their rows all the same.
        stored = pa.table(rows.columns, schema=pa.schema(fields))
        pq.write_table(stored, path, row_group_size=_ROWS_OF_A_GROUP)
        keys: list[int] = rows[KEY].to_pylist()
        key = self._physical[KEY]
        stats = {
            "numRecords": len(keys),
            "minValues": {key: min(keys)},
            "maxValues": {key: max(keys)},
            "nullCount": {key: 0},
            "tightBounds": True,
        }
        file = _File(path.name, path.stat().st_size, keys, stats)
        self._files.append(file)
        return _add(file)

    def _field_id(self, number: int) -> dict[bytes, bytes] | None:
        return {b"PARQUET:field_id": str(number).encode()} if self._mapped else None

    def _deletions(self, keys: set[int]) -> list[dict[str, Any]]:
        """Mark rows in the vectors of their files, all in one file of vectors."""
        actions: list[dict[str, Any]] = []
        named, data = uuid.uuid4(), b"\x01"
        for file in self._files:
            gone = {number for number, key in enumerate(file.keys) if key in keys} - {*file.gone}
            if not gone:
                continue
            actions.append({"remove": _remove(file)})
            file.gone |= BitMap64(gone)
            bitmap = struct.pack("<I", _PORTABLE) + file.gone.serialize()
            file.stats["tightBounds"] = False
            file.vector = {
                "storageType": "u",
                "pathOrInlineDv": base64.b85encode(named.bytes).decode().translate(_TO_Z85),
                "offset": len(data),
                "sizeInBytes": len(bitmap),
                "cardinality": len(file.gone),
            }
            data += struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
            if len(file.gone) < len(file.keys):
                actions.append(_add(file))
        self._files = [file for file in self._files if len(file.gone) < len(file.keys)]
        if len(data) > 1:
            (self._table / f"deletion_vector_{named}.bin").write_bytes(data)
        return actions


def _add(file: _File) -> dict[str, Any]:
    action = {
        "path": file.name,
        "partitionValues": {},
        "size": file.size,
        "modificationTime": _now_ms(),
        "dataChange": True,
        "stats": json.dumps(file.stats),
    }
    return {"add": action if file.vector is None else action | {"deletionVector": file.vector}}


def _remove(file: _File) -> dict[str, Any]:
    action = {
        "path": file.name,
        "deletionTimestamp": _now_ms(),
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": file.size,
    }
    return action if file.vector is None else action | {"deletionVector": file.vector}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
