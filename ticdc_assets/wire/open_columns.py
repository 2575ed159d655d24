"""The columns of a row of Open Protocol: what its images say of each, and its values.

In: the parsed value of a row. Out: for each column its `SentColumn` and its physical values, or a
`WireError`; the result depends on the value alone. `open_protocol` says what the members mean and
where TiCDC's encoders write something else.

Not handled: which images a row must have.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.events import PhysicalValue
from ticdc_assets.model.schemas import ColumnFlag, SentColumn
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.wire import go_json
from ticdc_assets.wire.column_types import TYPE_NAMES
from ticdc_assets.wire.json_fields import optional, read_boolean, read_object
from ticdc_assets.wire.open_values import (
    BYTES,
    SentValue,
    Spelling,
    physical_values,
    read_integer,
)

_T = TypeVar("_T")

MAX_FLAGS: Final = 2**16 - 1
"""TiCDC has eight flags; a few more are read for those of a newer one."""


def required_value(
    fields: Mapping[str, Any], name: str, read: Callable[[Any, str], _T], position: str
) -> _T:
    """Return the field `name` of the object at `position`; null counts as missing."""
    value = fields.get(name)
    if value is None:
        got = "null" if name in fields else "nothing"
        raise WireError("missing_field", f"{position}.{name}", "the field", got)
    return read(value, f"{position}.{name}")


def natural(value: Any, position: str, maximum: int = MAX_TSO) -> int:
    """Return the integer of a parsed JSON number from 0 to `maximum`."""
    return read_integer(value, position, minimum=0, maximum=maximum)


AFTER, BEFORE = 0, 1
"""The images of a row."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of an image as sent.

    Attributes:
        sent: its value, with its type code and its flags.
        is_handle_key: whether `h` says that it belongs to the handle key.
    """

    sent: SentValue
    is_handle_key: bool


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of a row: what the row says of it, and its values in the images that have it."""

    sent: SentColumn
    values: Mapping[int, str | None]


def _nameless(image: Any) -> list[str]:
    """Return the members of an image that are left of a column without a name."""
    if type(image) is not dict:
        return []
    members = cast(dict[str, Any], image)
    return [name for name in members if name in _OF_COLUMN and type(members[name]) is not dict]


_OF_COLUMN: Final = frozenset({"t", "h", "f", "v"})


def is_damaged(value: Mapping[str, Any]) -> bool:
    """Return whether `p` lacks columns that changed, as they have no names there."""
    return bool(_nameless(value.get("p")))


def cells_of(value: Mapping[str, Any], name: str, position: str) -> dict[str, Cell]:
    """Return the columns of an image; empty if there is no such image."""
    columns = value.get(name)
    if columns is None:
        return {}
    position = f"{position}.{name}"
    nameless = _nameless(columns) if name == "p" else ()
    return {
        column: _cell(fields, go_json.member(position, column))
        for column, fields in read_object(columns, position).items()
        if column not in nameless
    }


def _cell(value: Any, position: str) -> Cell:
    fields = read_object(value, position)
    code = required_value(fields, "t", natural, position)
    flags = optional(fields, "f", partial(natural, maximum=MAX_FLAGS), position)
    is_handle_key = optional(fields, "h", read_boolean, position)
    if code not in TYPE_NAMES:
        raise WireError("unknown_column_type", f"{position}.t", "a type code", shorten(code))
    if "v" not in fields:
        raise WireError("missing_field", f"{position}.v", "the field", "nothing")
    return Cell(SentValue(fields["v"], code, flags or 0, f"{position}.v"), bool(is_handle_key))


def columns_of(after: Mapping[str, Cell], before: Mapping[str, Cell]) -> dict[str, RowColumn]:
    """Return the columns of a row in the order of its shape, by what its images say of them.

    Raises:
        WireError: a value does not fit its column.
    """
    first = {**after, **{name: cell for name, cell in before.items() if name not in after}}
    flags = row_flags({name: (cell.sent.flags, cell.is_handle_key) for name, cell in first.items()})
    columns: dict[str, RowColumn] = {}
    for name, cell in first.items():
        cells = {
            number: image[name]
            for number, image in ((AFTER, after), (BEFORE, before))
            if name in image
        }
        values, spellings = physical_values([found.sent for found in cells.values()])
        columns[name] = RowColumn(
            SentColumn(name, base_type_of(cell.sent.code, spellings[0]), flags[name]),
            dict(zip(cells, values, strict=True)),
        )
    return columns


def base_type_of(code: int, spelled: Spelling) -> str:
    """Return the base type of a column by how its values are spelled."""
    return TYPE_NAMES[code][spelled in BYTES]


def row_flags(columns: Mapping[str, tuple[int, bool]]) -> dict[str, ColumnFlag]:
    """Return the flags of the columns of a row, by their flags as sent and their `h`.

    Where a column has `h`, `h` alone says which columns are the handle key.
    """
    by_h = any(is_handle_key for _, is_handle_key in columns.values())
    return {
        name: ColumnFlag(flags)
        if not by_h
        else ColumnFlag(flags & ~ColumnFlag.HANDLE_KEY | ColumnFlag.HANDLE_KEY * is_handle_key)
        for name, (flags, is_handle_key) in columns.items()
    }


def image_of(
    image: Mapping[str, Cell], columns: Mapping[str, RowColumn], number: int
) -> dict[str, PhysicalValue]:
    """Return the physical values of an image, `AFTER` or `BEFORE`, in the order of its columns."""
    return {name: columns[name].values[number] for name in image}
