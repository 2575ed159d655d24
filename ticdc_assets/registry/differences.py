"""The differences of two consecutive schemas of one table, for people.

In: the schemas, and the DDL between them if there is one. Out: a text for each column that was
added, dropped, renamed or changed, and where the key or the indexes changed. `evolution` says what
a change does to rows; its matching of columns is used here, so both agree on renames.
"""

from collections.abc import Iterable, Iterator

from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.registry.ddl.statement import DdlStatement
from ticdc_assets.registry.evolution import diff
from ticdc_assets.registry.inference.row_shapes import spelled_type


def differences(
    old: TableSchema, new: TableSchema, *, statements: Iterable[DdlStatement] = ()
) -> tuple[str, ...]:
    """Return what differs in `new`, columns first, in their order; no text has a default's value.

    Only `statements`, the DDL between the schemas, distinguish a rename from a drop and an add.
    """
    step = diff(old, new, statements=statements)
    texts: list[str] = []
    old_columns = {column.name: column for column in old.columns}
    for column_step, column in zip(step.columns, new.columns, strict=True):
        if column_step.source is None:
            texts.append(f"{column.name} added ({declared_type(column)})")
        else:
            texts += _column_differences(old_columns[column_step.source.name], column)
    texts += (f"{name} dropped" for name in step.dropped)
    texts += _key_differences(old, new, step.renamed)
    return tuple(texts)


def declared_type(column: ColumnSchema) -> str:
    """Return a column's type as upstream declares it, without display widths."""
    return spelled_type(column, full=kind_of(column) not in (Kind.INTEGER, Kind.YEAR))


def _column_differences(old: ColumnSchema, new: ColumnSchema) -> Iterator[str]:
    before, after = declared_type(old), declared_type(new)
    if before == after and (old.charset, old.collation) != (new.charset, new.collation):
        before, after = (
            f"{declared_type(column)} {column.charset} {column.collation}".strip()
            for column in (old, new)
        )
    if old.name != new.name:
        yield f"{old.name} renamed to {new.name}"
    if before != after:
        yield f"{new.name}: {before} -> {after}"
    if old.nullable != new.nullable:
        sides = ("NULL" if column.nullable else "NOT NULL" for column in (old, new))
        yield f"{new.name}: {' -> '.join(sides)}"
    if old.default != new.default:
        yield f"{new.name}: another default"


def _key_differences(old: TableSchema, new: TableSchema, renamed: dict[str, str]) -> Iterator[str]:
    before = tuple(renamed.get(name, name) for name in old.handle_key)
    if before != new.handle_key:
        yield f"key {', '.join(before) or 'none'} -> {', '.join(new.handle_key) or 'none'}"
    indexes, now = _indexes(old, renamed), _indexes(new, {})
    for name in now | indexes:
        if indexes.get(name) != now.get(name):
            yield f"index {name} changed"


def _indexes(schema: TableSchema, renamed: dict[str, str]) -> dict[str, tuple[object, ...]]:
    """Return what decides each index besides the primary key, under the new names of columns."""

    def decisive(index: IndexSchema) -> tuple[object, ...]:
        return index.unique, *(renamed.get(name, name) for name in index.columns)

    return {index.name: decisive(index) for index in schema.own_indexes if not index.primary}
