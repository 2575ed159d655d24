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
    old: TableSchema,
    new: TableSchema,
    *,
    statements: Iterable[DdlStatement] = (),
    shows_defaults: bool = False,
) -> tuple[str, ...]:
    """Return what differs in `new`, columns first, in their order.

    Only `statements`, the DDL between the schemas, distinguish a rename from a drop and an add. No
    text has a default's value unless `shows_defaults`: logs must not have it.
    """
    step = diff(old, new, statements=statements)
    texts: list[str] = []
    old_columns = {column.name: column for column in old.columns}
    for column_step, column in zip(step.columns, new.columns, strict=True):
        if column_step.source is None:
            texts.append(f"{column.name} added ({declared_type(column)})")
        else:
            before = old_columns[column_step.source.name]
            texts += _column_differences(before, column, shows_defaults)
    texts += (f"{name} dropped" for name in step.dropped)
    texts += _key_differences(old, new, step.renamed)
    return tuple(texts)


def declared_type(column: ColumnSchema) -> str:
    """Return a column's type as upstream declares it, without display widths."""
    return spelled_type(column, full=kind_of(column) not in (Kind.INTEGER, Kind.YEAR))


def _column_differences(
    old: ColumnSchema, new: ColumnSchema, shows_defaults: bool
) -> Iterator[str]:
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
        defaults = (old.default_text, new.default_text)
        texts = ("none" if text is None else text for text in defaults)
        change = f"default {' -> '.join(texts)}" if shows_defaults else "another default"
        yield f"{new.name}: {change}"


def _key_differences(old: TableSchema, new: TableSchema, renamed: dict[str, str]) -> Iterator[str]:
    before = tuple(renamed.get(name, name) for name in old.handle_key)
    if before != new.handle_key:
        yield f"key {', '.join(before) or 'none'} -> {', '.join(new.handle_key) or 'none'}"
    indexes, now = _indexes(old, renamed), _indexes(new, {})
    for name in now | indexes:
        was, text = indexes.get(name), now.get(name)
        if was is None:
            yield f"index {name} added {text}"
        elif text is None:
            yield f"index {name} dropped"
        elif was != text:
            yield f"index {name}: {was} -> {text}"


def _indexes(schema: TableSchema, renamed: dict[str, str]) -> dict[str, str]:
    """Return each index besides the primary key in words, under the new names of columns."""

    def text(index: IndexSchema) -> str:
        columns = ", ".join(renamed.get(name, name) for name in index.columns)
        return f"{'unique ' if index.unique else ''}({columns})"

    return {index.name: text(index) for index in schema.own_indexes if not index.primary}
