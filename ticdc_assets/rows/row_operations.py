"""Row operations in Arrow: the effects of changes on the rows of a mirror, one row per operation.

`mirror_rows` builds them from rows of the change log and of mirrors; `folding` folds them.
"""

import pyarrow as pa

from ticdc_assets.model.mysql_types import arrow_type
from ticdc_assets.model.schemas import TableSchema

RESCUED_TYPE = pa.map_(pa.string(), pa.string())
"""Arrow type of the rescued data."""

SEQUENCE_TYPE = pa.struct(
    [
        ("commit_ts", pa.int64()),
        ("rank", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("index", pa.int32()),
    ]
)
"""Arrow type of the order of a key's changes."""

SEQUENCE_FIELDS = tuple(field.name for field in SEQUENCE_TYPE)


CASTS_TYPE = pa.list_(
    pa.struct([("column", pa.string()), ("ddl_ts", pa.int64()), ("rows", pa.int32())])
)
"""Arrow type of the values that were cast as in a lenient SQL mode: column, DDL, and how many."""


def operation_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of operations: one row a put, delete or error.

    An error has a `reason`. If its row is known, it is a failed put or delete, and any later
    operation of the same key makes it void. `is_partial` is a put with the key alone. `casts` count
    if the row existed at the DDL; in a table without a key a delete subtracts its row's.
    """
    return pa.schema(
        [
            ("key", pa.string()),
            ("sequence", SEQUENCE_TYPE),
            ("is_delete", pa.bool_()),
            ("is_partial", pa.bool_()),
            ("missing", pa.list_(pa.string())),
            ("reason", pa.string()),
            ("position", pa.string()),
            ("expected", pa.string()),
            ("got", pa.string()),
            ("casts", CASTS_TYPE),
            *((f"c{number}", arrow_type(column)) for number, column in enumerate(schema.columns)),
            ("rescued", RESCUED_TYPE),
        ]
    )
