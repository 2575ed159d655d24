"""The numbers of java.sql.Types that Canal-JSON gives its values.

In: a column's type in lower case and a physical value. Out: the number that `sqlType` has for it, a
function of both alone. Only the encoder needs it: of what is read just the order of `sqlType`
counts.

Source: getJavaSQLType in pingcap/tiflow pkg/sink/codec/canal at 017624f.
"""

import re
from collections.abc import Mapping
from typing import Final

from ticdc_assets.base.errors import shorten
from ticdc_assets.model.events import PhysicalValue
from ticdc_assets.model.mysql_types import base_type
from ticdc_assets.model.schemas import ColumnSchema

_VARCHAR: Final = 12
_JAVA_SQL_TYPES: Final[Mapping[str, int]] = {
    "bit": -7,
    "set": -7,
    "tinyint": -6,
    "bigint": -5,
    "null": 0,
    "char": 1,
    "decimal": 3,
    "int": 4,
    "mediumint": 4,
    "enum": 4,
    "smallint": 5,
    "float": 7,
    "double": 8,
    "date": 91,
    "newdate": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 93,
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        2004,
    ),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), 2005),
}
"""Numbers of java.sql.Types by base type; VARCHAR for all others: varchar, year, json, vector."""
_PROMOTIONS: Final[Mapping[str, tuple[int, int]]] = {
    "tinyint": (2**7 - 1, 5),
    "smallint": (2**15 - 1, 4),
    "int": (2**31 - 1, -5),
    "bigint": (2**63 - 1, 3),
}
"""The signed maximum of a type, and the number that an unsigned value above it has."""
_UNSIGNED: Final = re.compile(r"[0-9]{1,20}\Z", re.ASCII)


def java_sql_type(mysql_type: str, value: PhysicalValue) -> int:
    """Return the number of the Java type that `sqlType` says for `value` of a column.

    An unsigned integer above the signed maximum of its type has the number of a wider one.

    Raises:
        ValueError: an unsigned integer column has a value that is no decimal text.
    """
    base = base_type(ColumnSchema(name="", mysql_type=mysql_type))
    number = _JAVA_SQL_TYPES.get(base, _VARCHAR)
    promotion = _PROMOTIONS.get(base)
    if promotion is None or value is None or "unsigned" not in mysql_type.split():
        return number
    if not isinstance(value, str) or _UNSIGNED.match(value) is None:
        raise ValueError(f"{mysql_type} cannot be {shorten(value)}")
    maximum, wider = promotion
    return wider if int(value) > maximum else number
