"""TiDB's numbers for column types: `wire.column_types` backwards.

In: types as in `SentColumn.mysql_type`, base or spelled. Out: the numbers that Open Protocol and
Craft send.
"""

from collections.abc import Mapping
from typing import Final

from ticdc_assets.model.mysql_types import base_type
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.wire.column_types import TYPE_NAMES

# Of the two codes of varchar TiDB gives columns the lower.
_CODES: Final[Mapping[str, int]] = {
    name: code for code in sorted(TYPE_NAMES, reverse=True) for name in TYPE_NAMES[code]
}


def type_code(mysql_type: str) -> int:
    """Return the type code of `mysql_type`, base or spelled."""
    return _CODES[base_type(ColumnSchema(name="", mysql_type=mysql_type))]
