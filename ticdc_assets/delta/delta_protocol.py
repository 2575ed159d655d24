"""The parts of the Delta protocol that this package writes: log entries, schemas, deletion vectors.

In: the state of a version of a table (`LogState`, which `log_reading` reads), and the state of the
next one. Out: the actions of one commit, as text; and deletion vectors, as bytes. A commit's
actions are the difference between the two states, so the commit that brings new rows also takes
back a commit of a killed run or of another program.

All functions are pure except `write_vectors`, whose file has no effect until a commit names it.

Source: Delta's PROTOCOL.md; each part names its sections.
"""

import base64
import json
import struct
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import Schema
from pyroaring import BitMap64

from ticdc_assets.storage.paths import AnyPath

Action: TypeAlias = dict[str, Any]
"""An action of a commit, without its name."""

Positions: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows in a data file, from 0."""


class FeatureError(ValueError):
    """A table has a feature that this package does not write; the text is a clause that says so."""


# Deletion vectors: "Deletion Vectors", "Deletion Vector Format" ----------------------------------

_PORTABLE = 1_681_511_377
"""The magic number before a bitmap in Roaring's portable form, 64 bits."""

_FILE_VERSION = b"\x01"
"""The first byte of a file of vectors."""

_Z85 = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
"""The characters of Z85, and those of Python's base85 in the same order."""
_FROM_Z85 = str.maketrans(*_Z85)
_TO_Z85 = str.maketrans(*reversed(_Z85))


class DeletionVectorError(ValueError):
    """A deletion vector cannot be read; the text is the clause that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVector:
    """Which rows of a data file a version of a table lacks.

    Attributes:
        size: bytes of the bitmap, with the number before it.
        cardinality: how many rows are deleted.
        path: the file; None if `data` has the bitmap.
        offset: where in the file it begins, at its size.
        data: the bitmap, if it is not in a file.
    """

    size: int
    cardinality: int
    path: AnyPath | None = None
    offset: int = 0
    data: bytes = b""

    def kept(self, first: int, rows: int) -> npt.NDArray[np.bool_] | None:
        """Return which of `rows` rows from number `first` of the file on are left; None if all are.

        It raises DeletionVectorError if the vector is damaged, or its file is missing.
        """
        deleted = _read(self)
        begin, end = deleted.rank(first - 1) if first else 0, deleted.rank(first + rows - 1)
        if begin == end:
            return None
        left = np.ones(rows, np.bool_)
        left[np.fromiter(deleted[begin:end], np.int64, end - begin) - first] = False
        return left


def vector_with(before: DeletionVector | None, positions: Positions) -> DeletionVector:
    """Return the vector that also has the rows at `positions`, as bytes."""
    deleted = BitMap64(positions) if before is None else _read(before) | BitMap64(positions)
    data = struct.pack("<I", _PORTABLE) + deleted.serialize()
    return DeletionVector(size=len(data), cardinality=len(deleted), data=data)


@lru_cache(maxsize=64)
def _read(vector: DeletionVector) -> BitMap64:
    data = vector.data if vector.path is None else _in_file(vector, vector.path)
    if len(data) < vector.size:
        raise DeletionVectorError(f"{len(data)} bytes where {vector.size} were written")
    if data[:4] != struct.pack("<I", _PORTABLE):
        raise DeletionVectorError("not a bitmap in the portable form")
    try:
        bitmap = BitMap64.deserialize(data[4 : vector.size])
    except ValueError:
        raise DeletionVectorError("not a bitmap") from None
    if len(bitmap) != vector.cardinality:
        raise DeletionVectorError(f"{len(bitmap)} rows where {vector.cardinality} were deleted")
    return bitmap


def _in_file(vector: DeletionVector, path: AnyPath) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(vector.offset)
            size = file.read(4)
            data = file.read(vector.size)
            checksum = file.read(4)
    except FileNotFoundError:
        raise DeletionVectorError(f"deletion vector {path.name} is missing") from None
    if size != struct.pack(">I", vector.size):
        raise DeletionVectorError(f"no vector of {vector.size} bytes at byte {vector.offset}")
    if checksum != struct.pack(">I", zlib.crc32(data)):
        raise DeletionVectorError(
            f"the checksum at byte {vector.offset} differs from the written one"
        )
    return data


def write_vectors(table: AnyPath, vectors: Sequence[DeletionVector]) -> list[Action]:
    """Write vectors into one file of a table; return how an `add` names each of them."""
    if not vectors:
        return []
    named = uuid.uuid4()
    text = base64.b85encode(named.bytes).decode().translate(_TO_Z85)
    content = bytearray(_FILE_VERSION)
    entries: list[Action] = []
    for vector in vectors:
        entries.append(
            {
                "storageType": "u",
                "pathOrInlineDv": text,
                "offset": len(content),
                "sizeInBytes": vector.size,
                "cardinality": vector.cardinality,
            }
        )
        content += struct.pack(">I", vector.size) + vector.data
        content += struct.pack(">I", zlib.crc32(vector.data))
    (table / vector_path(text)).write_bytes(bytes(content))
    return entries


def vector_path(text: str) -> str:
    """Return the path of a file of deletion vectors, which a log names by a folder and an id."""
    # The last 20 characters are a UUID in Z85; a folder comes before them.
    named = uuid.UUID(bytes=base64.b85decode(text[-20:].translate(_FROM_Z85)))
    return f"{text[:-20]}/deletion_vector_{named}.bin".lstrip("/")


def inline_vector(text: str) -> bytes:
    """Return the bitmap of a vector that is in a commit."""
    return base64.b85decode(text.translate(_FROM_Z85))


# Versions: "Add File and Remove File", "Change Metadata", "Protocol Evolution" -------------------

FileId: TypeAlias = tuple[str, str | None]
"""A logical file: its path, and its deletion vector."""


def file_id(action: Mapping[str, Any]) -> FileId:
    """Return the logical file of an `add` or a `remove`."""
    vector = action.get("deletionVector")
    if not vector:
        return action["path"], None
    return action["path"], f"{vector['pathOrInlineDv']}@{vector.get('offset')}"


def partition_of(action: Mapping[str, Any]) -> Mapping[str, str]:
    """Return a file's values of the columns that its table is partitioned by, as Delta has them.

    A null has no value, or an empty text.
    """
    return action.get("partitionValues") or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The state of a version of a table, by its actions; the version is -1 if there is no table.

    Attributes:
        files: the action `add` of each file.
        transactions: the newest version of each transaction identifier.
        memory: the JSON object of the newest commit that carries one, as far as commits were read
            (`memory_of`).
    """

    version: int = -1
    protocol: Action = field(default_factory=lambda: dict(_FIRST_PROTOCOL))
    metadata: Action = field(default_factory=dict[str, Any])
    files: Sequence[Action] = ()
    transactions: Mapping[str, int] = field(default_factory=dict[str, int])
    memory: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def fields(self) -> list[Action]:
        """The columns of the table, as the schema has them."""
        return json.loads(self.metadata["schemaString"])["fields"] if self.metadata else []

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table, as Arrow has them."""
        return _arrow_schema(self.metadata["schemaString"])

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(self.metadata.get("partitionColumns") or [])

    @property
    def configuration(self) -> dict[str, str]:
        """The table properties."""
        return dict(self.metadata.get("configuration") or {})

    @property
    def is_mapped(self) -> bool:
        """Whether columns have different names in files than in the table."""
        return self.configuration.get(_MAPPING, "none") != "none"


@lru_cache(maxsize=256)
def _arrow_schema(text: str) -> pa.Schema:
    return pa.schema(Schema.from_json(text))


_FIRST_PROTOCOL: Action = {"minReaderVersion": 1, "minWriterVersion": 2}

_MAPPING = "delta.columnMapping.mode"
_MOST_ID = "delta.columnMapping.maxColumnId"
_ID = "delta.columnMapping.id"
_STORED = "delta.columnMapping.physicalName"
_CHANGES = "delta.typeChanges"

VECTORS = "deletionVectors"
MAPPING = "columnMapping"
WIDENING = "typeWidening"
NTZ = "timestampNtz"

_SWITCHES = {VECTORS: "delta.enableDeletionVectors", WIDENING: "delta.enableTypeWidening"}

_READER_FEATURES = frozenset({VECTORS, MAPPING, WIDENING, NTZ, "typeWidening-preview"})
_LEGACY = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: (MAPPING,),
    6: ("identityColumns",),
}
"""The writer features that a protocol version below 7 implies, with those of lower versions."""
_UNUSED = frozenset({"variantType", "variantType-preview"})
"""Features that delta-rs adds when it sets a table's properties; no mirror has such a column."""
_WRITTEN = _READER_FEATURES.union(_UNUSED, *_LEGACY.values())
"""Features that this package can write; legacy ones only where a table does not use them."""

_CONSTRAINT = "delta.constraints."
_SWITCHED_ON = ("delta.appendOnly", "delta.enableInCommitTimestamps", "delta.enableRowTracking")
_GENERATED = ("delta.generationExpression", "delta.invariants", "delta.identity.start")


_PORTABLE_FEATURES = frozenset({NTZ, "appendOnly", "invariants"})


def unportable_features(state: LogState) -> list[str]:
    """Return the features by which more than a table's files defines its rows.

    With deletion vectors or a column mapping, not every reader can read it.
    """
    readers, writers = _listed(state.protocol)
    return sorted((readers | writers) - _PORTABLE_FEATURES)


def features_of(state: LogState) -> list[str]:
    """Return the features of a table that a reader must know, and that not every reader knows."""
    readers, _ = _listed(state.protocol)
    return sorted(readers - {NTZ})


def unread_features(state: LogState) -> list[str]:
    """Return the features of a table that this package cannot read; [] if it can read the table."""
    readers, _ = _listed(state.protocol)
    return sorted(readers - _READER_FEATURES - _UNUSED) + _unread_layout(state)


def _unread_layout(state: LogState) -> list[str]:
    mapping = state.configuration.get(_MAPPING, "none")
    foreign = [] if mapping in ("none", "name") else [f"columnMapping by {mapping}"]
    return foreign + (["partition columns"] if state.partition_columns else [])


def require_written(state: LogState) -> None:
    """Raise FeatureError if a table has a feature that this package does not write."""
    readers, writers = _listed(state.protocol)
    foreign = sorted((readers | writers) - _WRITTEN)
    foreign += [
        name
        for name, value in state.configuration.items()
        if name.startswith(_CONSTRAINT) or (name in _SWITCHED_ON and value.lower() == "true")
    ]
    foreign += [key for item in state.fields for key in item["metadata"] if key in _GENERATED]
    foreign += _unread_layout(state)
    if foreign:
        raise FeatureError(
            f"another program gave it {', '.join(foreign)}, which this package does not write: "
            "drop them there, or run `ticdc-assets rebuild`"
        )


def with_features(state: LogState, *features: str) -> LogState:
    """Return the state with more features switched on."""
    configuration = state.configuration
    for name in features:
        if name in _SWITCHES:
            configuration[_SWITCHES[name]] = "true"
    metadata = {**state.metadata, "configuration": configuration}
    wanted = _protocol({*features}, {*features})
    return replace(state, protocol=_joined(state.protocol, wanted), metadata=metadata)


def _joined(one: Action, other: Action) -> Action:
    """Return the protocol of a table that needs what two protocols imply."""
    (readers, writers), (more_readers, more_writers) = _listed(one), _listed(other)
    if more_readers <= readers and more_writers <= writers:
        return one
    return _protocol(readers | more_readers, writers | more_writers)


def _listed(protocol: Action) -> tuple[set[str], set[str]]:
    """Return the reader's and the writer's features that a protocol lists or implies."""
    version = protocol["minWriterVersion"]
    listed = protocol.get("writerFeatures")
    legacy = (name for number, names in _LEGACY.items() if number <= version for name in names)
    writers = set[str](legacy if listed is None else listed)
    readers = set[str](protocol.get("readerFeatures") or ())
    if protocol["minReaderVersion"] == 2:
        readers.add(MAPPING)
    return readers, writers


def _protocol(readers: set[str], writers: set[str]) -> Action:
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(readers),
        "writerFeatures": sorted(writers),
    }


# Schemas: "Schema Serialization Format", "Column Mapping", "Type Widening" -----------------------


def stored_name(column: Mapping[str, Any]) -> str:
    """Return a column's name in files."""
    return str(column["metadata"].get(_STORED, column["name"]))


def stored_id(column: Mapping[str, Any]) -> int | None:
    """Return a column's id in files; None if it needs none."""
    return column["metadata"].get(_ID)


def _typed(schema: pa.Schema) -> list[Action]:
    return json.loads(Schema.from_arrow(schema).to_json())["fields"]


def _text(fields: Sequence[Action]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def new_state(
    schema: pa.Schema,
    before: LogState,
    configuration: Mapping[str, str],
    partition_by: Sequence[str] = (),
) -> LogState:
    """Return the state of a table whose rows are all new.

    Properties and partition columns are for a table that does not exist yet.
    """
    fields = _typed(schema)
    metadata: Action = before.metadata or {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": list(partition_by),
        "configuration": dict(configuration),
        "createdTime": int(time.time() * 1000),
    }
    state = replace(before, metadata={**metadata, "schemaString": _text(fields)}, files=())
    if state.is_mapped:
        # No file of an earlier version is left, so names in files are free to choose.
        state = _mapped(state, fields, int(state.configuration.get(_MOST_ID, "0")))
    return _with_ntz(state, schema)


def _with_ntz(state: LogState, schema: pa.Schema) -> LogState:
    is_needed = any(pa.types.is_timestamp(item.type) and item.type.tz is None for item in schema)
    return with_features(state, NTZ) if is_needed else state


def grown(state: LogState, schema: pa.Schema) -> LogState:
    """Return the state of a table that also has the columns and nested fields of a schema.

    It is the same state if the table has them.
    """
    there = state.fields
    fields = _grown_fields(there, _typed(schema))
    if fields == there:
        return state
    return replace(state, metadata={**state.metadata, "schemaString": _text(fields)})


def _grown_fields(there: Sequence[Action], given: Sequence[Action]) -> list[Action]:
    types = {item["name"]: item["type"] for item in given}
    names = {item["name"] for item in there}
    return [
        *({**item, "type": _grown_type(item["type"], types.get(item["name"]))} for item in there),
        *(item for item in given if item["name"] not in names),
    ]


def _grown_type(there: Any, given: Any) -> Any:
    match there, given:
        case {"type": "struct"}, {"type": "struct"}:
            return {**there, "fields": _grown_fields(there["fields"], given["fields"])}
        case {"type": "array"}, {"type": "array"}:
            return {**there, "elementType": _grown_type(there["elementType"], given["elementType"])}
        case _:
            return there


def _mapped(state: LogState, fields: Sequence[Action], most: int) -> LogState:
    """Return the state with `fields`, in which each column has an id and a name in files."""
    numbered: list[Action] = []
    for item in fields:
        metadata_of_column = dict(item["metadata"])
        if _ID not in metadata_of_column:
            most += 1
            metadata_of_column[_ID] = most
        metadata_of_column.setdefault(_STORED, item["name"])
        numbered.append({**item, "metadata": metadata_of_column})
    configuration = {**state.configuration, _MAPPING: "name", _MOST_ID: str(most)}
    metadata = {**state.metadata, "schemaString": _text(numbered), "configuration": configuration}
    return with_features(replace(state, metadata=metadata), MAPPING)


def altered(state: LogState, schema: pa.Schema, origin: Mapping[str, str | None]) -> LogState:
    """Return the state of a table whose columns change while its rows do not.

    `origin` has for each column of the new schema its column before; None if it is new and NULL.
    """
    before = {item["name"]: item for item in state.fields}
    fields: list[Action] = []
    is_widened = False
    renames = any(source not in (None, name) for name, source in origin.items())
    is_mapped = state.is_mapped or renames or bool(before.keys() - set(origin.values()))
    if is_mapped:
        # The column's name until now is its name in files.
        state = _mapped(state, state.fields, int(state.configuration.get(_MOST_ID, "0")))
        before = {item["name"]: item for item in state.fields}
    for item in _typed(schema):
        source = origin[item["name"]]
        if source is None:
            if is_mapped:
                # The name may belong to a dropped column whose values are still in files.
                item = {**item, "metadata": {_STORED: f"col-{uuid.uuid4()}"}}
            fields.append(item)
            continue
        metadata_before = before[source]
        metadata = dict(metadata_before["metadata"])
        if metadata_before["type"] != item["type"]:
            is_widened = True
            change = {"toType": item["type"], "fromType": metadata_before["type"]}
            metadata[_CHANGES] = [*metadata.get(_CHANGES, ()), change]
        fields.append({**item, "metadata": metadata})
    if is_mapped:
        state = _mapped(state, fields, int(state.configuration[_MOST_ID]))
    else:
        state = replace(state, metadata={**state.metadata, "schemaString": _text(fields)})
    if is_widened:
        state = with_features(state, WIDENING)
    return _with_ntz(state, schema)


# Commits: "Delta Log Entries", "Commit Provenance Information", "Transaction Identifiers" ---------


METADATA_KEY = "userMetadata"
"""The key under which a commit carries its JSON object, as Spark's commits do."""

COMMIT_ID = "commit"
"""The key of a commit's id in its JSON object."""


def object_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object in an action `commitInfo`; {} if another program wrote its text."""
    text = info.get(METADATA_KEY)
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def memory_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same without the commit's id; {} if another program wrote the object."""
    memory = object_of(info)
    return memory if memory.pop(COMMIT_ID, None) is not None else {}


def file_changes(newest: LogState, wanted: LogState) -> tuple[list[Action], list[Action]]:
    """Return the files of a version that are not wanted, and the wanted files that it lacks.

    A file with another deletion vector is another file.
    """
    there = {file_id(item): item for item in newest.files}
    then = {file_id(item): item for item in wanted.files}
    gone = [there[key] for key in there if key not in then]
    return gone, [then[key] for key in then if key not in there]


def commit_text(
    newest: LogState,
    wanted: LogState,
    *,
    operation: str,
    metadata: Mapping[str, Any],
    transactions: Iterable[tuple[str, int]],
) -> bytes:
    """Return the log entry that takes a table from its newest version to the wanted state.

    The arguments are those of `committing.commit_state`.
    """
    now = int(time.time() * 1000)
    protocol = wanted.protocol if newest.version < 0 else _joined(newest.protocol, wanted.protocol)
    gone, new = file_changes(newest, wanted)
    info = {
        "timestamp": now,
        "operationMetrics": {"num_added_files": len(new)},
        "operation": operation,
        "engineInfo": "ticdc_assets",
        METADATA_KEY: json.dumps(metadata, sort_keys=True),
    }
    actions: list[Action] = [{"commitInfo": info}]
    if newest.version < 0 or protocol != newest.protocol:
        actions.append({"protocol": protocol})
    if wanted.metadata != newest.metadata:
        actions.append({"metaData": wanted.metadata})
    for app_id, number in transactions:
        actions.append({"txn": {"appId": app_id, "version": number, "lastUpdated": now}})
    change = {"dataChange": operation != "OPTIMIZE"}
    for item in gone:
        removed = {
            "path": item["path"],
            "deletionTimestamp": now,
            "extendedFileMetadata": True,
            "partitionValues": partition_of(item),
            "size": item["size"],
        }
        if item.get("deletionVector"):
            removed["deletionVector"] = item["deletionVector"]
        actions.append({"remove": removed | change})
    actions += ({"add": item | change} for item in new)
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()


def with_vector(action: Action, vector: Action) -> Action:
    """Return the `add` of a file that has lost some of its rows."""
    stats = {**json.loads(action.get("stats") or "{}"), "tightBounds": False}
    return {**action, "stats": json.dumps(stats), "deletionVector": vector}


def with_counts(action: Action, rows: int) -> Action:
    """Return the `add` of a file with the number of its rows, which a deletion vector requires."""
    stats = json.loads(action.get("stats") or "{}")
    return {**action, "stats": json.dumps({**stats, "numRecords": rows})}
