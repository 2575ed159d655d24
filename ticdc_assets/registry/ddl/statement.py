"""What a DDL text says, as values.

In: nothing; this module holds no grammar. Out: the frozen values that `reader.parse_ddl`
returns. Names keep the case they were written in, because MySQL compares column names without case,
and only the caller knows the names to compare with. Expressions, bounds and queries stay text: they
are never evaluated and never executed.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from ticdc_assets.base.errors import PartitionError, shorten


class DdlAction(StrEnum):
    """What a statement does, by its leading words."""

    ALTER_DATABASE = "alter_database"
    ALTER_TABLE = "alter_table"
    CREATE_DATABASE = "create_database"
    CREATE_INDEX = "create_index"
    CREATE_TABLE = "create_table"
    CREATE_TABLE_LIKE = "create_table_like"
    CREATE_VIEW = "create_view"
    DROP_DATABASE = "drop_database"
    DROP_INDEX = "drop_index"
    DROP_TABLE = "drop_table"
    DROP_VIEW = "drop_view"
    FLASHBACK_TABLE = "flashback_table"
    RECOVER_TABLE = "recover_table"
    RENAME_TABLE = "rename_table"
    TRUNCATE_TABLE = "truncate_table"
    UNKNOWN = "unknown"


class DdlKind(StrEnum):
    """What a statement means for the rows and the name of one table."""

    CREATE = "create"
    DROP = "drop"
    TRUNCATE = "truncate"
    RENAME = "rename"
    """The table gets another name; ALTER TABLE may change columns as well."""
    ALTER = "alter"
    EXCHANGE = "exchange"
    """A partition and another table swap their rows."""
    RECOVER = "recover"
    DROP_DATABASE = "drop database"
    SNAPSHOT = "snapshot"
    """Not a statement: from here on the table has the rows of an export."""
    OTHER = "other"
    """It concerns no rows of a table (views, databases), or is not understood."""


class ChangeKind(StrEnum):
    """What one change of an ALTER TABLE, or a CREATE/DROP INDEX, does."""

    ADD_COLUMN = "add_column"
    DROP_COLUMN = "drop_column"
    MODIFY_COLUMN = "modify_column"
    CHANGE_COLUMN = "change_column"
    RENAME_COLUMN = "rename_column"
    SET_DEFAULT = "set_default"
    DROP_DEFAULT = "drop_default"
    DROP_PRIMARY_KEY = "drop_primary_key"
    ADD_INDEX = "add_index"
    DROP_INDEX = "drop_index"
    RENAME_INDEX = "rename_index"
    RENAME_TABLE = "rename_table"
    TABLE_CHARSET = "table_charset"
    """New columns get another character set; existing ones keep theirs."""
    CONVERT_CHARSET = "convert_charset"
    PARTITION = "partition"
    OTHER = "other"


class GeneratedKind(StrEnum):
    """Whether a generated column's value is computed on reading or kept with the row."""

    VIRTUAL = "virtual"
    STORED = "stored"


class DefaultForm(StrEnum):
    """How a DEFAULT was written; the form of a literal decides how its text becomes a value."""

    NULL = "null"
    STRING = "string"
    NUMBER = "number"
    HEX = "hex"
    BITS = "bits"
    EXPRESSION = "expression"


class PartitionMethod(StrEnum):
    """How a table's rows are spread over its partitions."""

    HASH = "hash"
    KEY = "key"
    RANGE = "range"
    RANGE_COLUMNS = "range_columns"
    LIST = "list"
    LIST_COLUMNS = "list_columns"


class PartitionAction(StrEnum):
    """What a partition change does. Those up to EXCHANGE remove or replace rows."""

    DROP = "drop"
    TRUNCATE = "truncate"
    EXCHANGE = "exchange"
    ADD = "add"
    COALESCE = "coalesce"
    REORGANIZE = "reorganize"
    PARTITION_BY = "partition_by"
    REMOVE_PARTITIONING = "remove_partitioning"


class BoundKind(StrEnum):
    """How a partition's bound was written."""

    LESS_THAN = "less_than"
    IN = "in"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table's name as written; `database` is None where the text does not qualify it."""

    database: str | None
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRename:
    """One pair of a RENAME; an unqualified side is in the session's database."""

    old: TableName
    new: TableName


@dataclass(frozen=True, slots=True)
class DefaultValue:
    """A DEFAULT clause.

    `value` is a literal's value as text: the decoded characters of a STRING; the digits with their
    sign of a NUMBER, `1` and `0` of TRUE and FALSE; an even number of lower-case digits of HEX; the
    binary digits of BITS. Of an expression it is the text as written, without the parentheses
    around it.
    """

    form: DefaultForm
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """A column as a CREATE TABLE or ALTER TABLE defines it; what is not written is None or False.

    Attributes:
        mysql_type: base type in the words of the Simple protocol (`int`, `decimal`, `varbinary`),
            as written: which text is bytes, and which of four sizes TEXT(n) is, charsets decide.
        length: number in the type's parentheses: display width, characters, bytes, digits of
            DECIMAL, bits of BIT, dimensions of VECTOR; 1 for BOOL.
        decimal: scale of DECIMAL, FLOAT(m,d) and DOUBLE(m,d), or fractional seconds.
        unsigned: also from ZEROFILL or SERIAL, not of BIT and YEAR, which TiCDC marks unsigned.
        charset: by its name or by that of the collation.
        binary_collation: whether the BINARY attribute selects the charset's `_bin` collation.
        elements: labels of ENUM and SET in order.
        nullable: False for NOT NULL, SERIAL and columns of the primary key in the same text.
        auto_increment: also from SERIAL.
        primary_key: whether the column's own definition says PRIMARY KEY.
        clustered: True for CLUSTERED, False for NONCLUSTERED.
        unique: whether the column's own definition says UNIQUE or SERIAL.
        expression: of a generated column, the text between its parentheses.
    """

    name: str
    mysql_type: str
    length: int | None = None
    decimal: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    collation: str | None = None
    binary_collation: bool = False
    elements: tuple[str, ...] = ()
    nullable: bool = True
    default: DefaultValue | None = None
    auto_increment: bool = False
    primary_key: bool = False
    clustered: bool | None = None
    unique: bool = False
    generated: GeneratedKind | None = None
    expression: str | None = None


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """An index as a text defines it.

    Attributes:
        name: None where the text leaves it to the server; a primary key has none.
        parts: the parts in key order: the column of each, None for an expression.
        unique: whether the index admits a combination of values once, as the primary key does.
        clustered: True for CLUSTERED, False for NONCLUSTERED, None if the text does not say.
        condition: text of a partial index's WHERE, None for an index over all rows.
    """

    name: str | None
    parts: tuple[str | None, ...]
    unique: bool = False
    primary: bool = False
    clustered: bool | None = None
    condition: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns in key order; parts that are expressions are left out."""
        return tuple(part for part in self.parts if part is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDefinition:
    """One partition: its name, and its bound as text."""

    name: str
    bound_kind: BoundKind | None = None
    bound: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """How the rows of a table are spread: as PARTITION BY says, or with all of its partitions.

    Attributes:
        expression: text between the parentheses.
        columns: the columns, for KEY and the COLUMNS forms.
        count: number after PARTITIONS, None if not written.
        definitions: the partitions that the text lists; all of them, in their order, where
            `registry.partitions` returns it.
    """

    method: PartitionMethod
    expression: str = ""
    columns: tuple[str, ...] = ()
    count: int | None = None
    definitions: tuple[PartitionDefinition, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The partitions' names in their order."""
        return tuple(definition.name for definition in self.definitions)

    def described(self) -> object:
        """Return a JSON value that differs for different partitions."""
        return {
            "method": self.method.value,
            "expression": self.expression,
            "columns": list(self.columns),
            "partitions": [
                [definition.name, definition.bound_kind, definition.bound]
                for definition in self.definitions
            ],
        }

    def places(self, names: Collection[str]) -> list[int]:
        """Return the numbers, ascending, of the partitions of these names, in any case.

        Raises:
            PartitionError: there is no partition of a name.
        """
        place_of = {name.lower(): place for place, name in enumerate(self.names)}
        for name in names:
            if name.lower() not in place_of:
                raise PartitionError(f"no partition {shorten(name)} is known")
        return sorted({place_of[name.lower()] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A change of a table's partitions.

    Attributes:
        names: partitions it names, in order; () with `all_partitions`, if the text says ALL.
        definitions: partitions that ADD and REORGANIZE bring in.
        count: number of COALESCE and of ADD PARTITION PARTITIONS.
        other: the table an EXCHANGE swaps with.
        partitioning: the clause of PARTITION_BY.
    """

    action: PartitionAction
    names: tuple[str, ...] = ()
    all_partitions: bool = False
    definitions: tuple[PartitionDefinition, ...] = ()
    count: int | None = None
    other: TableName | None = None
    partitioning: Partitioning | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterChange:
    """One change of an ALTER TABLE.

    Attributes:
        kind: what is done; it decides which of the other fields are set.
        name: column or index it is done to, under its old name.
        new_name: new name for rename_column, change_column (equal to `name` where only the
            definition changes) and rename_index.
        after: the column that it comes after, "" for FIRST; None if neither is written.
        table: new name, for rename_table.
        charset: for table_charset and convert_charset; None if not written, or DEFAULT.
        conditional: whether IF EXISTS or IF NOT EXISTS was written, so that the change may have
            done nothing.
    """

    kind: ChangeKind
    name: str | None = None
    new_name: str | None = None
    column: ColumnDefinition | None = None
    after: str | None = None
    index: IndexDefinition | None = None
    default: DefaultValue | None = None
    partition: PartitionChange | None = None
    table: TableName | None = None
    charset: str | None = None
    collation: str | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlStatement:
    """One DDL statement.

    Attributes:
        database: the database of a database statement, else the qualifier of `table` if written.
        table: the table or view; of several the first; of a rename the old name.
        tables: all tables that the statement names as its objects; for renames the old names.
        renames: pairs of RENAME TABLE, ALTER TABLE ... RENAME and FLASHBACK ... TO.
        like: the other table of CREATE TABLE ... LIKE.
        changes: changes of ALTER TABLE, CREATE INDEX and DROP INDEX in order. MySQL and TiDB mean
            all of them against the table as it was before the statement.
        columns: columns of CREATE TABLE (ALTER's are in `changes`).
        indexes: indexes of CREATE TABLE, those inside column definitions last.
        charset: option of CREATE and ALTER DATABASE and CREATE TABLE, if written.
        collation: likewise.
        query: text of the query of CREATE TABLE ... AS SELECT.
        unparsed: the first piece that was not understood, at most 200 characters ("" for an empty
            text); None if all was understood. The other fields were understood, but may not be
            everything.
    """

    action: DdlAction
    database: str | None = None
    table: str | None = None
    tables: tuple[TableName, ...] = ()
    renames: tuple[TableRename, ...] = ()
    like: TableName | None = None
    changes: tuple[AlterChange, ...] = ()
    columns: tuple[ColumnDefinition, ...] = ()
    indexes: tuple[IndexDefinition, ...] = ()
    charset: str | None = None
    collation: str | None = None
    partitioning: Partitioning | None = None
    query: str | None = None
    unparsed: str | None = None

    @property
    def defined_columns(self) -> tuple[ColumnDefinition, ...]:
        """Every column definition in the text, of CREATE TABLE and of all changes."""
        return self.columns + tuple(
            change.column for change in self.changes if change.column is not None
        )
