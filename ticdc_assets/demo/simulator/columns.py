"""Columns of the stand-in upstream: from a type's SQL to a `ColumnSchema`, and back.

In: a column as SQL writes it (`"decimal(12,2)"`). Out: the `ColumnSchema` TiCDC would send for
it (lengths, character sets, defaults as they travel), its SQL back, its default in canonical text,
and the text a row has after MODIFY COLUMN. SQL is written as TiDB's parser writes it (`Restore` in
pingcap/tidb pkg/parser/ast/ddl.go): the new TiCDC sends such texts. `as_typed` returns them as
people type them.

Types, defaults and casts are those of `registry` and `model.values`, which have the messages and
results of a real TiDB for their tests.

Not handled: generated columns, and expressions as defaults but CURRENT_TIMESTAMP.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from ticdc_assets.base.errors import CastError
from ticdc_assets.model.mysql_types import CLOCK_LENGTHS, Kind, integer_range, kind_of
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema
from ticdc_assets.model.values import cast_of, default_text, lenient_cast_of
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.inference.columns import (
    BINARY_TWINS,
    CURRENT_TIMESTAMP,
    DATABASE_DEFAULTS,
    INTEGER_LENGTHS,
    LABELLED_TYPES,
    column_schema,
)
from ticdc_assets.registry.inference.row_shapes import spelled_type

_CHARSET: Final = "_UTF8MB4"
_SQL_PART: Final = re.compile(
    rf"(?P<kept>(?:{_CHARSET})?'(?:[^']|'')*'|`(?:[^`]|``)*`|/\*.*?\*/)"
    rf"|(?:(?!{_CHARSET}')[^'`/])+|/",
    re.DOTALL,
)

TEXT_TYPES: Final = frozenset(BINARY_TWINS)
BINARY_TYPES: Final = frozenset(BINARY_TWINS.values())
INTEGER_TYPES: Final = frozenset(INTEGER_LENGTHS)
_UNSIZED: Final = INTEGER_TYPES | {"float", "double", "year"}
"""Types whose size nobody types, but for TINYINT(1)."""
_EXACT: Final = Context(prec=100)


def column(
    name: str, sql_type: str, *, nullable: bool = True, default: str | int | None = None
) -> ColumnSchema:
    """Return the schema of a column of an SQL type in lower case, e.g. `"bigint unsigned"`.

    Args:
        name: column name.
        sql_type: `"enum('a','it''s')"`, `"varchar(20) charset latin1"`, ...
        nullable: False for NOT NULL.
        default: default as it travels: text, an integer for BIT, UTC for TIMESTAMP.

    Raises:
        ValueError: the type is not one of TiDB's.
    """
    statement = parse_ddl(f"CREATE TABLE t (c {sql_type})")
    if statement.unparsed is None and len(statement.columns) == 1:
        (definition,) = statement.columns
        schema = column_schema(definition, defaults=DATABASE_DEFAULTS, timezone="UTC")
        if kind_of(schema) is not Kind.UNKNOWN:
            # TiCDC sends no scale of FLOAT(10,3).
            scale = 0 if schema.mysql_type in ("float", "double") else schema.decimal
            return replace(schema, name=name, decimal=scale, nullable=nullable, default=default)
    raise ValueError(f"not a column type: {sql_type!r}")


def quoted(name: str) -> str:
    """Return `name` as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Return `text` as an SQL string without its character set, as TiDB's parser writes it."""
    return "'" + text.replace("'", "''") + "'"


def charset_literal(text: str) -> str:
    """Return `text` as an SQL string with its character set: there backslashes are doubled."""
    return _CHARSET + text_literal(text.replace("\\", "\\\\"))


def _recased(sql: str, change: Callable[[str], str]) -> str:
    """Return a statement with its words changed, but not its names, texts and comments."""
    return _SQL_PART.sub(lambda part: part[0] if part["kept"] else change(part[0]), sql)


def as_shown(sql: str) -> str:
    """Return a statement that is written here as SHOW CREATE TABLE prints it."""
    return _SQL_PART.sub(
        lambda part: (
            part[0].removeprefix(_CHARSET).replace("\\\\", "\\")
            if part[0].startswith(_CHARSET)
            else part[0]
        ),
        _recased(sql, str.lower),
    )


def as_typed(sql: str) -> str:
    """Return a statement that is written here as a person types it, who escapes backslashes."""
    return _SQL_PART.sub(
        lambda part: part[0].replace("\\", "\\\\") if part[0][0] == "'" else part[0],
        as_shown(sql),
    )


def type_sql(schema: ColumnSchema) -> str:
    """Return the SQL type of a column as a person types it, e.g. `decimal(12,2)`."""
    base = schema.mysql_type
    sized = base not in _UNSIZED or (base == "tinyint" and schema.length == 1)
    text = spelled_type(schema, full=sized)
    if schema.charset not in ("binary", "utf8mb4"):
        text += f" character set {schema.charset}"
    return text


def column_sql(schema: ColumnSchema, timezone: str) -> str:
    """Return a column's definition in CREATE or ALTER TABLE, for a session in a time zone."""
    kind = _recased(type_sql(schema), str.upper)
    text = f"{quoted(schema.name)} {kind}"
    if not schema.nullable:
        text += " NOT NULL"
    elif schema.mysql_type == "timestamp":
        text += " NULL"
    if schema.default is not None:
        text += f" DEFAULT {default_sql(schema, timezone)}"
    return text


def default_sql(schema: ColumnSchema, timezone: str) -> str:
    """Return a column's default as an SQL literal, for a session in the zone `timezone`."""
    if schema.default is None:
        return "NULL"
    if schema.default == CURRENT_TIMESTAMP:
        return f"{CURRENT_TIMESTAMP}({schema.decimal or ''})"
    if schema.mysql_type == "bit":
        return f"b'{int(schema.default):b}'"
    if schema.mysql_type == "timestamp":
        return charset_literal(default_value(schema, timezone) or "")
    return charset_literal(str(schema.default))


def default_value(schema: ColumnSchema, timezone: str, *, at: datetime | None = None) -> str | None:
    """Return a column's default in canonical text, None for NULL or none.

    TIMESTAMPs are written in `timezone`; `at` is the value of a default that is this moment.

    Raises:
        ValueError: it is no value of the column, or `at` is needed and was not given.
    """
    try:
        return None if schema.default is None else default_text(schema, timezone, at=at)
    except CastError as error:
        raise ValueError(f"{schema.name!r} {type_sql(schema)} has no default: {error}") from None


def modified_value(
    old: ColumnSchema, new: ColumnSchema, timezone: str
) -> Callable[[str | None], str | None]:
    """Return the function from the text of a value to the text that it has after MODIFY COLUMN.

    What does not fit the new type is cast as in a lenient SQL mode. The function raises
    `ValueError` for what TiDB refuses.
    """
    strict, lenient = cast_of(old, new, timezone), lenient_cast_of(old, new)

    def modified(text: str | None) -> str | None:
        try:
            return strict(text)
        except CastError:
            pass
        try:
            return lenient(str(text))
        except CastError as error:
            change = f"{old.name!r} cannot become {type_sql(new)}"
            raise ValueError(f"{change}: {error}") from None

    return modified


def rewrites_rows(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether MODIFY COLUMN rewrites rows: the column then gets a new id, the highest."""
    if old.unsigned != new.unsigned:
        return True
    if old.mysql_type != new.mysql_type:
        widens = {old.mysql_type, new.mysql_type} <= INTEGER_TYPES and (
            integer_range(old)[1] < integer_range(new)[1]
        )
        longer = {old.mysql_type, new.mysql_type} <= TEXT_TYPES and new.length >= old.length
        return not (widens or longer)
    if old.mysql_type in LABELLED_TYPES:
        return new.elements[: len(old.elements)] != old.elements
    if old.mysql_type == "decimal" or old.mysql_type in CLOCK_LENGTHS:
        return (old.length, old.decimal) != (new.length, new.decimal)
    return new.length < old.length


def moment_text(at: datetime, digits: int) -> str:
    """Return a moment as TiDB prints it, with the given number of fractional digits."""
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{at.microsecond:06d}"[: 20 + digits] if digits else text


def text_with_digits(text: str, digits: int) -> str:
    """Return a moment or a time with so many fractional digits, the others cut off."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(digits, '0')[:digits]}" if digits else whole


def text_with_scale(number: Decimal, scale: int) -> str:
    """Return a number with so many decimals, rounded half up."""
    unit = Decimal(1).scaleb(-scale)
    rounded = number.quantize(unit, rounding=ROUND_HALF_UP, context=_EXACT)
    # MySQL has no negative zero.
    return f"{abs(rounded) if rounded.is_zero() else rounded:f}"


def binary_text(value: bytes) -> str:
    """Return bytes in canonical text."""
    return "0x" + value.hex()


def index_sql(index: IndexSchema) -> str:
    """Return an index as CREATE TABLE defines it."""
    kind = "UNIQUE" if index.unique else "INDEX"
    return f"{kind} {quoted(index.name)}({names_sql(index.columns)})"


def names_sql(columns: Iterable[str]) -> str:
    """Return names of columns as a statement lists them."""
    return ", ".join(map(quoted, columns))


def charset_sql(charset: str) -> str:
    """Return the clause of a database's character set, "" for none."""
    return f" CHARACTER SET = {charset}" if charset else ""


def path_sql(name: tuple[str, str]) -> str:
    """Return (database, table) as a statement names it."""
    return f"{quoted(name[0])}.{quoted(name[1])}"
