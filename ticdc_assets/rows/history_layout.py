"""The columns of a history: of its Delta table, of its versions, and of the operations on it.

In: the schema of an upstream table. Out: names and Arrow schemas. Pure: the same schema gives the
same columns.

A version's columns have numbered names here (`c0`, `c1`, ...), because a table's columns may have
any name.
"""

from dataclasses import dataclass, field, fields

import pyarrow as pa

from ticdc_assets.model.mysql_types import arrow_type
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.rows.mirror_rows import RESCUED_NAME, free_name
from ticdc_assets.rows.row_operations import RESCUED_TYPE, SEQUENCE_TYPE


@dataclass(frozen=True, kw_only=True)
class HistoryLayout:
    """The columns of a history's Delta table.

    The upstream columns come first, by their own names; then this package's, whose names get
    underscores at their end until they collide with no upstream name.

    Attributes:
        schema: the schema of the upstream table.
        valid_from: name of the column with the first cut that has the version.
        valid_to: of the column with the first cut that no longer has the version.
        op: of the column that says how the version came.
        ended_by: of the column that says how the version ended.
        rescued: of the map column with the exact text of what typed columns cannot hold.
        deleted_at: of the column with the time of deletion, in the table with deleted rows.
        newest: of a column that numbers the versions of a key, newest first.
    """

    schema: TableSchema
    valid_from: str = field(init=False, default="_ticdc_valid_from")
    valid_to: str = field(init=False, default="_ticdc_valid_to")
    op: str = field(init=False, default="_ticdc_op")
    ended_by: str = field(init=False, default="_ticdc_ended_by")
    rescued: str = field(init=False, default=RESCUED_NAME)
    deleted_at: str = field(init=False, default="_ticdc_deleted_at")
    newest: str = field(init=False, default="_ticdc_newest")

    def __post_init__(self) -> None:
        for item in fields(self):
            if not item.init:
                object.__setattr__(self, item.name, free_name(str(item.default), self.schema))

    @property
    def own(self) -> list[str]:
        """This package's columns, in order."""
        return [getattr(self, name) for name in OWN_PLACES]

    @property
    def names(self) -> list[str]:
        """All column names, in order."""
        return [*(column.name for column in self.schema.columns), *self.own]

    @property
    def arrow(self) -> pa.Schema:
        """Arrow schema of the table."""
        versions = version_schema(self.schema)
        return pa.schema(
            [
                versions.field(place).with_name(name)
                for place, name in zip(self.places, self.names, strict=True)
            ]
        )

    @property
    def places(self) -> list[str]:
        """Where in a version each of `names` is."""
        return [*column_places(self.schema), *OWN_PLACES]


OWN_PLACES = ("valid_from", "valid_to", "op", "ended_by", "rescued")
"""Where this package's columns are in a version."""


def column_places(schema: TableSchema) -> list[str]:
    """Return where in a version the table's columns are."""
    return [f"c{number}" for number in range(len(schema.columns))]


def version_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of versions.

    A row without `valid_from` is not a version, but a change that could not be read.
    """
    return pa.schema(
        [
            *typed_fields(schema),
            ("valid_from", pa.int64()),
            ("valid_to", pa.int64()),
            ("op", pa.string()),
            ("ended_by", pa.string()),
            ("rescued", RESCUED_TYPE),
        ]
    )


KEPT_TYPE = pa.list_(
    pa.struct([("ddl_ts", pa.int64()), ("column", pa.string()), ("text", pa.string())])
)
"""Arrow type of `CarriedRow.kept`."""


def history_operation_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of operations on a history."""
    return pa.schema(
        [
            ("key", pa.string()),
            ("sequence", SEQUENCE_TYPE),
            ("op", pa.string()),
            ("is_delete", pa.bool_()),
            ("is_partial", pa.bool_()),
            # For a version that has ended already.
            ("valid_to", pa.int64()),
            ("ended_by", pa.string()),
            # For a version that DDL ends if nothing does before.
            ("ends_at", pa.int64()),
            ("removed_by", pa.string()),
            ("kept", KEPT_TYPE),
            *typed_fields(schema),
            ("rescued", RESCUED_TYPE),
        ]
    )


def typed_fields(schema: TableSchema) -> list[tuple[str, pa.DataType]]:
    """Return the Arrow fields of the table's columns in a version."""
    return [
        (place, arrow_type(column))
        for place, column in zip(column_places(schema), schema.columns, strict=True)
    ]
