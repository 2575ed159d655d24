"""TiDB's numbers for column types and DDL statements: `wire.column_types` backwards.

In: types as in `SentColumn.mysql_type`, base or spelled, and DDL. Out: the numbers that Open
Protocol and Craft send.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.mysql_types import base_type
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.wire.column_types import TYPE_NAMES

ACTION_CODES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "CREATE": 3,
        "ERASE": 4,
        "CINDEX": 7,
        "DINDEX": 8,
        "TRUNCATE": 11,
        "RENAME": 14,
        "ALTER": 61,
    }
)
"""An action code that says no more than the word does; QUERY has none."""

# Of the two codes of varchar TiDB gives columns the lower.
_CODES: Final[Mapping[str, int]] = {
    name: code for code in sorted(TYPE_NAMES, reverse=True) for name in TYPE_NAMES[code]
}


def type_code(mysql_type: str) -> int:
    """Return the type code of `mysql_type`, base or spelled."""
    return _CODES[base_type(ColumnSchema(name="", mysql_type=mysql_type))]


def action_code(ddl: DdlEvent) -> int:
    """Return the action code of `ddl`: its own, or one that says no more than its word does."""
    return ACTION_CODES[ddl.ddl_type] if ddl.action_code is None else ddl.action_code
