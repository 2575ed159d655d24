"""The columns of the table `cuts`, as Arrow has them. `cuts` has the values that they hold."""

import pyarrow as pa

_MIRROR = pa.struct(
    [
        ("mirror_id", pa.string()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("version", pa.int64()),
        ("rows", pa.int64()),
        ("hidden", pa.list_(pa.string())),
        ("schema", pa.string()),
        ("floor_ts", pa.int64()),
        ("digest", pa.string()),
        ("held", pa.int64()),
        ("quarantined", pa.int64()),
        ("marks", pa.list_(pa.string())),
        ("mode", pa.string()),
        ("changes", pa.int64()),
        ("unknown_deletes", pa.int64()),
        ("history_version", pa.int64()),
        ("history_rows", pa.int64()),
        ("history_unread", pa.int64()),
        ("history_digest", pa.string()),
        (
            "lenient_casts",
            pa.list_(
                pa.struct([("column", pa.string()), ("ddl_ts", pa.int64()), ("values", pa.int64())])
            ),
        ),
    ]
)
_HELD = pa.struct(
    [
        ("database", pa.string()),
        ("table", pa.string()),
        ("schema_version", pa.int64()),
        ("mirror_id", pa.string()),
        ("rows", pa.int64()),
        ("min_ts", pa.int64()),
        ("since", pa.timestamp("us", tz="UTC")),
    ]
)
_FAILED = pa.struct(
    [
        ("mirror_id", pa.string()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("reason", pa.string()),
        ("since", pa.timestamp("us", tz="UTC")),
        ("tso", pa.int64()),
        ("waiting", pa.int64()),
    ]
)
_ACCOUNT = pa.struct(
    [
        ("database", pa.string()),
        ("table", pa.string()),
        ("read", pa.int64()),
        ("applied", pa.int64()),
        ("waiting", pa.int64()),
        ("held", pa.int64()),
        ("quarantined", pa.int64()),
        ("excluded", pa.int64()),
        ("superseded", pa.int64()),
        ("unaccounted", pa.int64()),
        ("first_ts", pa.int64()),
        ("examples", pa.list_(pa.string())),
    ]
)
_REWIND = pa.struct(
    [
        ("number", pa.int64()),
        ("from_number", pa.int64()),
        ("from_tso", pa.int64()),
        ("by", pa.string()),
    ]
)
CUT_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("tso", pa.int64()),
        ("published_at", pa.timestamp("us", tz="UTC")),
        ("batch", pa.int64()),
        ("mirrors", pa.list_(_MIRROR)),
        ("held", pa.list_(_HELD)),
        ("quarantined", pa.int64()),
        ("replays", pa.int64()),
        ("late", pa.int64()),
        ("steps_back", pa.int64()),
        ("ignored", pa.string()),
        ("es_only", pa.bool_()),
        ("unplaced", pa.int64()),
        ("tables", pa.string()),
        ("failed", pa.list_(_FAILED)),
        ("accounts", pa.list_(_ACCOUNT)),
        ("rewind", _REWIND),
        ("layout", pa.int32()),
    ]
)
"""`cuts`: one row a published cut."""
