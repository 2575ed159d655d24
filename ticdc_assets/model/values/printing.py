"""Canonical text as TiDB prints it.

In: canonical text of a column. Out: the text of SELECT, and so of messages. Only JSON differs: TiDB
puts a blank after each comma and colon. VECTOR is printed with the fewest digits and without
exponent (`VectorFloat32.String` in pingcap/tidb pkg/types), as canonical text has it.
"""

from collections.abc import Callable, Iterable

from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import shapes


def printers(columns: Iterable[ColumnSchema]) -> dict[str, Callable[[str], str]]:
    """Return how TiDB prints the canonical text of those columns whose text differs, by name."""
    return {column.name: shapes.spaced_json for column in columns if kind_of(column) is Kind.JSON}
