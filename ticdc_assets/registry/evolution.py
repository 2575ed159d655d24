"""What a schema change does to rows that are there already.

In: two consecutive schemas of one table and, where there is one, the DDL between them.
Out: a `SchemaStep`: for each new column where its value comes from (an old column, cast if its
type changed, or the default that ADD COLUMN gives). TiCDC sends no row events for this
(golden/QUIRKS.md A7), so the mirror must do it by itself.

Renames cannot be told from schemas alone, which carry no column ids: they come from the DDL's
text. Without a DDL (a version that only rows and bootstraps know) columns are matched by name and
the step says so (`inferred`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from ticdc_assets.errors import CastError
from ticdc_assets.registry.ddl import ChangeKind, DdlStatement
from ticdc_assets.schemas import ColumnSchema, TableSchema
from ticdc_assets.values import cast_is_identity, cast_of, default_text

CanonicalRow: TypeAlias = dict[str, str | None]
"""Column name to canonical text. An absent column is unknown, not NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStep:
    """Where the value of one column of the new schema comes from.

    Attributes:
        column: the column in the new schema.
        source: the column in the old schema, None for an added one.
    """

    column: ColumnSchema
    source: ColumnSchema | None

    @property
    def changes_rows(self) -> bool:
        """Whether rows that are there get another value, name or type in this column."""
        if self.source is None:
            return True
        return self.source.name != self.column.name or not cast_is_identity(
            self.source, self.column
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStep:
    """The change from one schema version to the next.

    Attributes:
        from_version: schema version before.
        to_version: schema version after.
        columns: one step per column of the new schema, in its order.
        dropped: names of the columns that are gone.
        at: physical time of the DDL (UTC), for such defaults as CURRENT_TIMESTAMP.
        inferred: True if no DDL message explains the step.
    """

    from_version: int
    to_version: int
    columns: tuple[ColumnStep, ...]
    dropped: tuple[str, ...]
    at: datetime | None
    inferred: bool

    @property
    def changes_rows(self) -> bool:
        """Whether the rows that are there look different after this step."""
        return bool(self.dropped) or any(step.changes_rows for step in self.columns)


def diff(
    old: TableSchema,
    new: TableSchema,
    *,
    statements: Iterable[DdlStatement] = (),
    at: datetime | None = None,
    inferred: bool = False,
) -> SchemaStep:
    """Return the step from `old` to `new`, with the renames that `statements` tell."""
    renames = column_renames(statements)
    by_name = {column.name: column for column in old.columns}
    folded = {column.name.lower(): column for column in old.columns}
    kept: set[str] = set()
    steps: list[ColumnStep] = []
    taken_by_rename = {source.lower() for source in renames.values()}
    for column in new.columns:
        renamed_from = renames.get(column.name.lower())
        source: ColumnSchema | None
        if renamed_from is not None:
            source = by_name.get(renamed_from) or folded.get(renamed_from.lower())
        elif column.name.lower() in taken_by_rename:
            source = None  # the old column of this name lives on under another one
        else:
            source = by_name.get(column.name) or folded.get(column.name.lower())
        if source is not None:
            kept.add(source.name)
        steps.append(ColumnStep(column=column, source=source))
    return SchemaStep(
        from_version=old.version,
        to_version=new.version,
        columns=tuple(steps),
        dropped=tuple(column.name for column in old.columns if column.name not in kept),
        at=at,
        inferred=inferred,
    )


_RENAMING = frozenset({ChangeKind.RENAME_COLUMN, ChangeKind.CHANGE_COLUMN})


def column_renames(statements: Iterable[DdlStatement]) -> dict[str, str]:
    """Return new name (lower case) -> old name for the columns that `statements` rename."""
    renames: dict[str, str] = {}
    for statement in statements:
        for change in statement.changes:
            if change.kind not in _RENAMING or change.name is None or change.new_name is None:
                continue
            if change.name.lower() != change.new_name.lower():
                renames[change.new_name.lower()] = change.name
    return renames


def added_value(column: ColumnSchema, timezone: str, at: datetime | None) -> str | None:
    """Return what ADD COLUMN gives to the rows that are there; NULL if that cannot be known."""
    try:
        return default_text(column, timezone, at=at)
    except CastError:
        return None


def unknown_defaults(step: SchemaStep) -> list[str]:
    """Return the added columns whose default cannot be known from what the message says."""
    unknown: list[str] = []
    for column_step in step.columns:
        if column_step.source is None:
            try:
                default_text(column_step.column, "UTC", at=step.at)
            except CastError:
                unknown.append(column_step.column.name)
    return unknown


LostValue: TypeAlias = tuple[str, str | None, CastError]
"""Column, value in the old schema, and why the new column cannot hold it."""


def row_transform(
    step: SchemaStep, timezone: str
) -> Callable[[CanonicalRow, list[LostValue]], CanonicalRow]:
    """Compile `step` into a function from a row of the old schema to one of the new.

    The function appends to its second argument what the new columns cannot hold, and leaves these
    columns out. A column that is absent in the row stays absent.
    """
    plain: list[tuple[str, str]] = []
    cast: list[tuple[str, str, Callable[[str | None], str | None]]] = []
    added: list[tuple[str, str | None]] = []
    for column_step in step.columns:
        column, source = column_step.column, column_step.source
        if source is None:
            added.append((column.name, added_value(column, timezone, step.at)))
        elif cast_is_identity(source, column):
            plain.append((column.name, source.name))
        else:
            cast.append((column.name, source.name, cast_of(source, column, timezone)))

    def transform(row: CanonicalRow, lost: list[LostValue]) -> CanonicalRow:
        result: CanonicalRow = {name: row[source] for name, source in plain if source in row}
        for name, source, convert in cast:
            if source not in row:
                continue
            try:
                result[name] = convert(row[source])
            except CastError as error:
                lost.append((name, row[source], error))
        for name, default in added:
            result[name] = default
        return result

    return transform
