"""The identity of a row in a mirror and in a history: its typed key and rescued text.

In: a table's schema. Out: the columns that identify a row. A key value that its typed column cannot
hold is NULL there, and its exact text is in the rescued data. So two rows are the same if their
typed keys are equal, and the rescued texts of the key columns that may have one. Pure.
"""

from ticdc_assets.model.mysql_types import kind_of
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.rows.mirror_rows import EXACT_KINDS


def key_columns(schema: TableSchema) -> list[ColumnSchema]:
    """Return the columns of a table's key, in its order; none without a key."""
    columns = {column.name: column for column in schema.columns}
    return [columns[name] for name in schema.handle_key]


def may_be_rescued(column: ColumnSchema) -> bool:
    """Return whether values of a column may be in the rescued data."""
    return kind_of(column) not in EXACT_KINDS
