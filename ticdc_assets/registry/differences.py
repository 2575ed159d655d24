"""The differences of two consecutive schemas of one table, for people.

In: the schemas, and the DDL between them if there is one. Out: one line per column that was added,
dropped, renamed or changed, and one where the key or the indexes changed. Texts only: `evolution`
says what a change does to rows; its matching of columns is used here, so both agree on renames.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.registry.ddl.statement import DdlStatement
from ticdc_assets.registry.evolution import diff
from ticdc_assets.registry.inference.row_shapes import spelled_type


class DifferenceKind(StrEnum):
    """What happened to a part of a table."""

    ADDED = "added"
    DROPPED = "dropped"
    RENAMED = "renamed"
    TYPE = "type"
    NULLABLE = "nullable"
    DEFAULT = "default"
    KEY = "key"
    INDEX = "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two schemas.

    Attributes:
        name: column or index; of a renamed column its new name; empty for the key.
        before: what was there (a type, a name, a default), empty if nothing.
        after: what is there now, empty if nothing.
    """

    kind: DifferenceKind
    name: str
    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """The difference in words, without the values of defaults."""
        match self.kind:
            case DifferenceKind.ADDED:
                return f"{self.name} added ({self.after})"
            case DifferenceKind.DROPPED:
                return f"{self.name} dropped"
            case DifferenceKind.RENAMED:
                return f"{self.before} renamed to {self.name}"
            case DifferenceKind.DEFAULT:
                return f"{self.name}: another default"
            case DifferenceKind.KEY:
                return f"key {self.before or 'none'} -> {self.after or 'none'}"
            case DifferenceKind.INDEX:
                return f"index {self.name} changed"
            case DifferenceKind.TYPE | DifferenceKind.NULLABLE:
                return f"{self.name}: {self.before} -> {self.after}"


def differences(
    old: TableSchema, new: TableSchema, *, statements: Iterable[DdlStatement] = ()
) -> tuple[Difference, ...]:
    """Return what differs in `new`, columns first, in their order.

    Only `statements`, the DDL between the schemas, distinguish a rename from a drop and an add.
    """
    step = diff(old, new, statements=statements)
    found: list[Difference] = []
    old_columns = {column.name: column for column in old.columns}
    for column_step, column in zip(step.columns, new.columns, strict=True):
        if column_step.source is None:
            found.append(
                Difference(kind=DifferenceKind.ADDED, name=column.name, after=declared_type(column))
            )
        else:
            found.extend(_column_differences(old_columns[column_step.source.name], column))
    types = {column.name: declared_type(column) for column in old.columns}
    found.extend(
        Difference(kind=DifferenceKind.DROPPED, name=name, before=types[name])
        for name in step.dropped
    )
    found.extend(_key_differences(old, new, step.renamed))
    return tuple(found)


def declared_type(column: ColumnSchema) -> str:
    """Return a column's type as upstream declares it, without display widths."""
    return spelled_type(column, full=kind_of(column) not in (Kind.INTEGER, Kind.YEAR))


def _column_differences(old: ColumnSchema, new: ColumnSchema) -> Iterator[Difference]:
    before, after = declared_type(old), declared_type(new)
    if before == after and (old.charset, old.collation) != (new.charset, new.collation):
        before, after = (
            f"{declared_type(column)} {column.charset} {column.collation}".strip()
            for column in (old, new)
        )
    nullable = ["NULL" if column.nullable else "NOT NULL" for column in (old, new)]
    defaults = [_default_text(column) for column in (old, new)]
    for kind, differs, was, now in (
        (DifferenceKind.RENAMED, old.name != new.name, old.name, new.name),
        (DifferenceKind.TYPE, before != after, before, after),
        (DifferenceKind.NULLABLE, old.nullable != new.nullable, *nullable),
        (DifferenceKind.DEFAULT, old.default != new.default, *defaults),
    ):
        if differs:
            yield Difference(kind=kind, name=new.name, before=was, after=now)


def _default_text(column: ColumnSchema) -> str:
    text = column.default_text
    return "none" if text is None else text


def _key_differences(
    old: TableSchema, new: TableSchema, renamed: dict[str, str]
) -> Iterator[Difference]:
    before = tuple(renamed.get(name, name) for name in old.handle_key)
    if before != new.handle_key:
        yield Difference(
            kind=DifferenceKind.KEY,
            name="",
            before=", ".join(before) or "none",
            after=", ".join(new.handle_key) or "none",
        )
    indexes = {
        index.name: _index_text(index, renamed) for index in old.own_indexes if not index.primary
    }
    now = {index.name: _index_text(index, {}) for index in new.own_indexes if not index.primary}
    for name in now | indexes:
        was, text = indexes.get(name, ""), now.get(name, "")
        if was != text:
            yield Difference(kind=DifferenceKind.INDEX, name=name, before=was, after=text)


def _index_text(index: IndexSchema, renamed: dict[str, str]) -> str:
    columns = ", ".join(renamed.get(name, name) for name in index.columns)
    return f"{'unique ' if index.unique else ''}({columns})"
