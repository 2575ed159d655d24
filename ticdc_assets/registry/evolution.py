"""What a schema change does to existing rows: where the values of the new columns come from.

In: two consecutive schemas of one table and, where there is one, the DDL between them. Out: a
`SchemaStep`: for each new column where its value comes from (an old column, cast if its type
changed, or the default that ADD COLUMN gives). TiCDC sends no row events for this (golden/QUIRKS.md
A7), so the mirror must change them itself.

If a DDL of the feed changed a column, a value that does not fit the new type passed the DDL in a
lenient SQL mode, whose casts are known (`lenient_cast_of`). Without such a DDL, and in columns of
the key, the value is lost.

Schemas carry no column ids and so do not show renames: they come from the DDL's text. Without a DDL
(a version that only rows and bootstraps know) columns are matched by name, and the step has no
`ddl_ts`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from ticdc_assets.base.errors import CastError
from ticdc_assets.model.mysql_types import Kind, kind_of, of_any_scale
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.model.tso import to_datetime
from ticdc_assets.model.values import (
    cast_is_identity,
    default_text,
)
from ticdc_assets.model.values.defaults import is_lossy
from ticdc_assets.registry.ddl.statement import (
    ChangeKind,
    ColumnDefinition,
    DdlStatement,
    DefaultForm,
)
from ticdc_assets.registry.inference.columns import HIDDEN_COLUMNS, sent_default

CanonicalRow: TypeAlias = dict[str, str | None]
"""Column name to canonical text. An absent column is unknown, not NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStep:
    """Where the value of one column of the new schema comes from.

    Attributes:
        column: the column in the new schema, with the D of FLOAT(M,D) where a DDL changed it.
        source: the column in the old schema, None for an added one.
        is_modified: whether a DDL says that it changed the column. A DDL of the feed was executed:
            every value of that time went into the new type, in any SQL mode.
        has_unknown_default: whether the text of a DDL gives an added column an expression as its
            default that is not the time of the statement.
    """

    column: ColumnSchema
    source: ColumnSchema | None
    is_modified: bool = False
    has_unknown_default: bool = False

    @property
    def changes_rows(self) -> bool:
        """Whether existing rows get another value, name or type in this column."""
        source, column = self.source, self.column
        if source is None or source.name != column.name:
            return True
        return not cast_is_identity(source, column)

    @property
    def is_hidden(self) -> bool:
        """Whether TiDB added the column itself, without a DDL that names it."""
        return self.source is None and self.column.name in HIDDEN_COLUMNS

    @property
    def may_cast_leniently(self) -> bool:
        """Whether a value that does not fit gets TiDB's cast of a lenient SQL mode."""
        if self.source is None or not self.is_modified:
            return False
        return not cast_is_identity(self.source, self.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStep:
    """The change from one schema version to the next.

    Attributes:
        columns: one step per column of the new schema, in its order.
        ddl_ts: commit ts of the DDL, None if no message explains the step.
    """

    from_version: int
    to_version: int
    columns: tuple[ColumnStep, ...]
    dropped: tuple[str, ...]
    ddl_ts: int | None

    @property
    def at(self) -> datetime | None:
        """Physical time of the DDL (UTC), for defaults such as CURRENT_TIMESTAMP."""
        return None if self.ddl_ts is None else to_datetime(self.ddl_ts)

    @property
    def may_cast_leniently(self) -> bool:
        """Whether some value may get TiDB's cast of a lenient SQL mode."""
        return any(item.may_cast_leniently for item in self.columns)

    @property
    def renamed(self) -> dict[str, str]:
        """Name after the step of each earlier column, by its earlier name."""
        return {item.source.name: item.column.name for item in self.columns if item.source}

    @property
    def changes_rows(self) -> bool:
        """Whether existing rows look different after this step."""
        return bool(self.dropped) or any(step.changes_rows for step in self.columns)

    @property
    def lacks_ddl(self) -> bool:
        """Whether rows look different and a DDL message should have said so, but none did."""
        return self.ddl_ts is None and (
            bool(self.dropped)
            or any(step.changes_rows and not step.is_hidden for step in self.columns)
        )


def diff(
    old: TableSchema,
    new: TableSchema,
    *,
    statements: Iterable[DdlStatement] = (),
    ddl_ts: int | None = None,
) -> SchemaStep:
    """Return the step from `old` to `new`, with the renames of `statements`."""
    statements = tuple(statements)
    modified = _modified_columns(statements)
    folded = {column.name.lower(): column for column in old.columns}
    # CHANGE COLUMN IF EXISTS renames nothing where the column is not there.
    renames = {
        name: folded[source.lower()]
        for name, source in column_renames(statements).items()
        if source.lower() in folded
    }
    renamed = {source.name for source in renames.values()}
    defined = [item for statement in statements for item in statement.defined_columns]
    oldest = {definition.name.lower(): definition for definition in reversed(defined)}
    newest = {definition.name.lower(): definition for definition in defined}
    source_names: set[str] = set()
    steps: list[ColumnStep] = []
    for column in new.columns:
        name = column.name.lower()
        source = renames.get(name) or folded.get(name)
        # The old column of this name may live on under another one.
        if source is None or (name not in renames and source.name in renamed):
            steps.append(_added(column, oldest.get(name)))
            continue
        source_names.add(source.name)
        is_modified = modified is None or name in modified
        if is_modified:
            column, source = _with_scale(column, source, newest.get(name))
        steps.append(ColumnStep(column=column, source=source, is_modified=is_modified))
    return SchemaStep(
        from_version=old.version,
        to_version=new.version,
        columns=tuple(steps),
        dropped=tuple(column.name for column in old.columns if column.name not in source_names),
        ddl_ts=ddl_ts,
    )


def _with_scale(
    column: ColumnSchema, source: ColumnSchema, definition: ColumnDefinition | None
) -> tuple[ColumnSchema, ColumnSchema]:
    """Return a modified column with the D of FLOAT(M,D) that its text says, and the old column.

    No schema is sent with D. If the old D is not known, values may have more digits than the new D.
    """
    if kind_of(column) not in (Kind.FLOAT, Kind.DOUBLE) or definition is None:
        return column, source
    if not definition.decimal or definition.length != column.length:
        return column, source
    return replace(column, decimal=definition.decimal), of_any_scale(source)


def _added(column: ColumnSchema, definition: ColumnDefinition | None) -> ColumnStep:
    """Return the step of an added column, with what its text says of its default beyond a schema.

    A schema may lack bytes, and has an expression as if it were a text.
    """
    if definition is None:
        return ColumnStep(column=column, source=None)
    default = definition.default
    if is_lossy(column):
        bare = replace(column, default=None)
        # The zone does not matter for bytes.
        column = replace(bare, default=sent_default(default, bare, "UTC"))
    is_expression = default is not None and default.form is DefaultForm.EXPRESSION
    is_unknown = is_expression and kind_of(column) not in _MOMENTS
    return ColumnStep(column=column, source=None, has_unknown_default=is_unknown)


_MOMENTS = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})
"""Kinds whose default may be the time of the statement; other expressions are no value of them."""

_RENAMING = frozenset({ChangeKind.RENAME_COLUMN, ChangeKind.CHANGE_COLUMN})


def column_renames(statements: Iterable[DdlStatement]) -> dict[str, str]:
    """Return new name (lower case) -> old name for the columns that `statements` rename."""
    pairs = (
        (change.name, change.new_name)
        for statement in statements
        for change in statement.changes
        if change.kind in _RENAMING and change.name is not None and change.new_name is not None
    )
    return {new.lower(): old for old, new in pairs if old.lower() != new.lower()}


def _modified_columns(statements: Iterable[DdlStatement]) -> set[str] | None:
    """Return the names (lower case) of the columns whose type `statements` change; None for all."""
    modified: set[str] = set()
    for statement in statements:
        if statement.unparsed is not None:
            return None
        for change in statement.changes:
            if change.kind is ChangeKind.CONVERT_CHARSET:
                return None
            if change.kind in (ChangeKind.MODIFY_COLUMN, ChangeKind.CHANGE_COLUMN):
                modified.add((change.new_name or change.name or "").lower())
    return modified


def key_names(steps: Sequence[SchemaStep], key: Collection[str]) -> list[frozenset[str]]:
    """Return the names that the columns of the final `key` have after each of `steps`."""
    names = frozenset(key)
    by_step: list[frozenset[str]] = []
    for step in reversed(steps):
        by_step.append(names)
        if names:
            names = frozenset(source for source, name in step.renamed.items() if name in names)
    return by_step[::-1]


def added_value(item: ColumnStep, timezone: str, at: datetime | None) -> tuple[str | None, bool]:
    """Return the value of an added column in existing rows, and whether it is known, else NULL."""
    try:
        value = default_text(item.column, timezone, at=at)
    except CastError:
        return None, False
    return (None, False) if item.has_unknown_default else (value, True)


def unknown_defaults(step: SchemaStep) -> list[str]:
    """Return the added columns whose default cannot be known from their message."""
    return [
        item.column.name
        for item in step.columns
        if item.source is None and not added_value(item, "UTC", step.at)[1]
    ]


Casts: TypeAlias = tuple[tuple[str, int], ...]
"""Column and commit ts of the DDL of each value that was cast as in a lenient SQL mode."""

Origin: TypeAlias = tuple[str | None, str | None]
"""The earlier column whose values a column has as they are; or None, and the value of all rows."""
