"""Values of generated columns that no file has, from their expressions in a CREATE TABLE.

In: a CREATE TABLE, the table's schema, and a row in canonical text without some of its generated
columns. Out: the canonical text of each of these, or nothing where it is not certain. Dumpling
leaves generated columns out of its files, and TiCDC sends the stored ones: this module computes a
stored column of an exported row, or it is unknown. A value is exact or refused, never guessed.

Reading refuses expressions by their types (`expressions.reader`), evaluating refuses single rows.
It is a pure function.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ticdc_assets.base.errors import CastError, PartitionError
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.registry.ddl.statement import DdlStatement, GeneratedKind
from ticdc_assets.registry.ddl.tokens import shown_sql
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.columns import stored
from ticdc_assets.registry.expressions.reader import read_expression


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedColumn:
    """A generated column of a table.

    Attributes:
        column: the column.
        expression: the text of its expression.
        evaluate: its canonical text, from the columns before it; None if it was not understood.
        problem: why it was not understood.
    """

    column: ColumnSchema
    expression: str
    evaluate: Callable[[CanonicalRow], str | None] | None
    problem: str | None


class GeneratedColumns:
    """The generated columns of one table, in the time zone of the session."""

    def __init__(self, statement: DdlStatement, schema: TableSchema, timezone: str) -> None:
        by_name = {column.name.lower(): column for column in schema.columns}
        self.columns: tuple[GeneratedColumn, ...] = tuple(
            _column(by_name[item.name.lower()], item.expression or "", schema, timezone)
            for item in statement.columns
            if item.generated is not None and item.name.lower() in by_name
        )
        self.stored = frozenset(
            item.name.lower()
            for item in statement.columns
            if item.generated is GeneratedKind.STORED
        )
        """Names of the stored ones, in lower case."""

    def named(self, name: str) -> GeneratedColumn | None:
        """Return the generated column called `name`, None if there is none."""
        return next((item for item in self.columns if item.column.name == name), None)

    def complete(self, row: CanonicalRow, lacking: Collection[str]) -> dict[str, str | None]:
        """Return the certain values of the generated columns `lacking` of a row with all others."""
        whole = dict(row)
        values: dict[str, str | None] = {}
        # A generated column may refer to those before it.
        for item in self.columns:
            name = item.column.name
            if name not in lacking or item.evaluate is None:
                continue
            try:
                whole[name] = values[name] = item.evaluate(whole)
            except (PartitionError, CastError, ArithmeticError):
                continue
        return values


def _column(
    column: ColumnSchema, expression: str, schema: TableSchema, timezone: str
) -> GeneratedColumn:
    evaluate, problem = None, None
    try:
        evaluate = stored(read_expression(expression, schema, timezone), column, timezone)
    except PartitionError as error:
        problem = error.reason
    return GeneratedColumn(
        column=column, expression=shown_sql(expression), evaluate=evaluate, problem=problem
    )
