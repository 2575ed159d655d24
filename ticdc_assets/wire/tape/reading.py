"""JSON of any shape as columns: texts to a tape, members by a table of fields, images as text.

In: the bytes of many texts, and the members that a format reads. Out: columns, one element a text,
and which texts are as the format expects. Texts with the same meaning give the same columns,
whatever their order of members, blanks, unknown members and escapes. Texts that this module does
not take are left to the reference, which says what they are.

The loops are in `token_loops` and `image_loops`; the results depend on the texts alone.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.base.errors import WireError
from ticdc_assets.model.schemas import RowShape
from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.fields import LARGEST, Field, Kind
from ticdc_assets.wire.go_json import LEAST_BYTES_OF_TOO_MANY
from ticdc_assets.wire.rows import PIECE_BYTES, shape_text, takeable
from ticdc_assets.wire.tape import image_loops, token_loops
from ticdc_assets.wire.tape.image_loops import Images
from ticdc_assets.wire.tape.json_loops import Flags, Ints, Octets, Places, Texts
from ticdc_assets.wire.tape.texts import PADDING, room_for, texts_in, texts_of
from ticdc_assets.wire.tape.token_loops import NONE, Nodes

_STRINGS: Final = (token_loops.TEXT, token_loops.ESCAPED)

_NODES: Final[Mapping[Kind, tuple[int, ...]]] = {
    **dict.fromkeys((*LARGEST, Kind.ROW_ID), (token_loops.INTEGER,)),
    **dict.fromkeys((Kind.TEXT, Kind.NAME), _STRINGS),
    **dict.fromkeys((Kind.IMAGES, Kind.NAMES), (token_loops.ARRAY,)),
    **dict.fromkeys(
        (Kind.IMAGE, Kind.CHECKSUM, Kind.SCHEMA, Kind.TYPES, Kind.OBJECT), (token_loops.OBJECT,)
    ),
    Kind.BOOLEAN: (token_loops.FALSE, token_loops.TRUE),
}
"""The kinds of node of a kind of value."""


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The tables of the types of an object, for the loops.

    Attributes:
        fields: the names of all fields, first those that the tables lack.
        names: the same, for the loops.
        rules: `token_loops.RULE` of each type and field.
    """

    fields: tuple[str, ...]
    names: token_loops.Names
    rules: Nodes

    @classmethod
    def of(cls, *tables: Sequence[Field], besides: Sequence[str] = ()) -> "Rules":
        """Return the rules of tables, one of each type; `besides` are looked up in addition."""
        fields = tuple(
            dict.fromkeys([*besides, *(item.name for table in tables for item in table)])
        )
        rules = np.zeros((len(tables), len(fields)), token_loops.RULE)
        rules["most"] = NONE
        for number, table in enumerate(tables):
            for item in table:
                rules[number, fields.index(item.name)] = (
                    item.presence,
                    item.kind is Kind.NAME,
                    sum(1 << kind for kind in _NODES[item.kind]),
                    LARGEST.get(item.kind, NONE),
                )
        return cls(fields, _names(fields), rules)


class Workspace:
    """Arrays that are reused for each part of a batch.

    New memory for each would cost time: the machine fills it with zeros first. Callers keep none of
    these arrays.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}

    def array(self, name: str, count: int, dtype: Any) -> Any:
        """Return an array of so many elements, with any content."""
        buffer = self._arrays.get(name)
        if buffer is None or len(buffer) < count:
            buffer = self._arrays[name] = np.empty(count, dtype)
        return buffer[:count]

    def padded(self, octets: Octets, room: int = 0) -> Octets:
        """Return bytes with padding, and with room for so many more for each of them."""
        count = len(octets)
        buffer = self.array("buffer", count * (1 + room) + PADDING, np.uint8)
        buffer[:count] = octets
        buffer[count : count + PADDING] = 0
        return buffer


_WORKSPACES: Final = threading.local()


def workspace(purpose: str) -> Workspace:
    """Return this thread's workspace for a purpose."""
    return vars(_WORKSPACES).setdefault(purpose, Workspace())


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """Texts that were read, see `token_loops`.

    Attributes:
        texts: the texts.
        nodes: their nodes.
        roots: the first node of each text (int32), `NONE` for a text that was not taken.
        workspace: where the nodes are.
    """

    texts: Texts
    nodes: Nodes
    roots: Places
    workspace: Workspace

    def members(self, objects: Places, rules: Rules) -> Places:
        """Return the nodes of members of objects, `NONE` for one that is missing or null.

        An object whose members are unclear becomes `NONE` in `objects`.
        """
        members = np.empty((len(rules.fields), len(objects)), np.int32)
        token_loops.members(self.texts.octets, self.nodes, objects, rules.names, members)
        return members

    def words(self, at: Places, words: tuple[str, ...]) -> Ints:
        """Return the number of the word that each text is, `NONE` for other texts."""
        numbers = np.empty(len(at), np.int64)
        token_loops.words_of(self.texts.octets, self.nodes, at, _names(words), numbers)
        return numbers

    def kinds(self, at: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int32]:
        """Return the kinds of nodes, 0 for none."""
        return np.where(at < 0, 0, self.nodes["kind"][at])

    def strings(self, at: npt.NDArray[np.integer[Any]]) -> "pa.Array[Any]":
        """Return the content of texts, null for no node."""
        at, ends = at.astype(np.int32), np.empty(len(at), np.int64)
        there = at >= 0
        chosen = at[there]
        sizes = self.nodes["end"][chosen] - self.nodes["start"][chosen]
        written = room_for(int(sizes.sum()))
        token_loops.strings_written(self.texts, self.nodes, at, written, ends)
        return texts_in(written, ends, there)

    def filled_strings(self, at: npt.NDArray[np.integer[Any]]) -> "pa.Array[Any]":
        """Return the same, null for an empty text too."""
        filled = (at >= 0) & (self.nodes["end"][at] > self.nodes["start"][at])
        return self.strings(np.where(filled, at, NONE))

    def is_true(self, at: npt.NDArray[np.integer[Any]]) -> Flags:
        """Return whether each node is true."""
        return self.kinds(at) == token_loops.TRUE

    def bytes_at(self, node: int) -> bytes:
        """Return the bytes of a value, for a text without its quotes; those of null for no node."""
        if node < 0:
            return b"null"
        start, end, _, _ = self.nodes[node].tolist()
        return self.texts.octets[start:end].tobytes()

    def checked(self, members: Places, types: Ints, rules: Rules) -> "Checked":
        """Return which objects fit the table of their type (negative for none), and their values.

        `members` has the nodes of their members, see the method `members`.
        """
        values, good = np.empty(members.shape, np.int64), np.empty(len(types), np.bool_)
        token_loops.fields_checked(
            self.texts.octets, self.nodes, members, types, rules.rules, values, good.view(np.uint8)
        )
        return Checked(good=good, values=dict(zip(rules.fields, list(values), strict=True)))

    def checked_inside(self, checked: "Checked", name: str, types: Ints, rules: Rules) -> "Checked":
        """Return the same for the objects in a field of other objects."""
        objects = checked.values[name].astype(np.int32)
        members = self.members(objects, rules)
        return self.checked(members, np.where(objects >= 0, types, NONE), rules)


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """Values of objects by a table of fields.

    Attributes:
        good: which objects fit their tables.
        values: by name: numbers, or nodes; `NONE` where there is none or nobody reads it.
    """

    good: Flags
    values: Mapping[str, Any]

    def of(self, name: str, chosen: Ints) -> Ints:
        """Return the values of a field of some objects."""
        return self.values[name][chosen]

    def numbers(self, name: str, chosen: Ints) -> "pa.Array[Any]":
        """Return a field of numbers of some objects, null where there is none."""
        numbers = self.values[name][chosen]
        return pa.array(numbers, mask=numbers < 0)


def tape_of(texts: Texts, rules: Rules, place: Workspace) -> tuple[Tape, Places]:
    """Return the tape of texts, and the nodes of the members of their objects.

    It is valid until the next tape of its workspace. A text that is not an object, or whose members
    are unclear, has no root; nor has one so long that the reference has to count its values first.
    """
    is_long = texts.ends - texts.starts > LEAST_BYTES_OF_TOO_MANY
    if is_long.any():
        texts = texts._replace(ends=np.where(is_long, texts.starts, texts.ends))
    size = int((texts.ends - texts.starts).sum())
    nodes, roots = (
        place.array("nodes", size + 1, token_loops.NODE),
        np.empty(len(texts.starts), np.int32),
    )
    members = np.empty((len(rules.fields), len(roots)), np.int32)
    count = token_loops.tokenized(texts, rules.names, nodes, roots, members)
    return Tape(texts, nodes[: max(count, 1)], roots, place), members


def values_of(batch: pa.RecordBatch, *, room: int = 0) -> Texts:
    """Return the values of records in `workspace("value")`, one that is null or too long as empty.

    After the values there is `room` for so many bytes for each byte of them.
    """
    column = takeable(batch.column("value"))
    is_long = pc.greater(pc.binary_length(column), PIECE_BYTES)
    if pc.any(is_long).as_py():
        column = pc.if_else(is_long, pa.scalar(None, column.type), column)
    return texts_of(column, partial(workspace("value").padded, room=room))


@cache
def _names(names: tuple[str, ...]) -> token_loops.Names:
    """Return names for the loops."""
    encoded = [name.encode() for name in names]
    sizes = np.array([len(name) for name in encoded], np.int64)
    starts = np.cumsum(sizes) - sizes
    octets = np.frombuffer(bytearray(b"".join([*encoded, bytes(PADDING)])), np.uint8)
    slots = np.zeros(token_loops.SLOTS, np.uint8)
    token_loops.names_put(octets, starts, sizes, slots)
    return token_loops.Names(octets, starts, sizes, slots)


Take: TypeAlias = Callable[[image_loops.Columns, Images], None]
"""Finds the columns of images, see `image_loops.members_listed`."""


class ColumnList(NamedTuple):
    """The columns of an image, and the table after whose column the list begins (`ImageLists`)."""

    table: Any
    names: tuple[str, ...]
    labels: tuple[int, ...]


@dataclass(slots=True, eq=False)
class ImageLists:
    """The lists of columns that images have.

    Attributes:
        tape: the tape of the images.
        tables: the columns after which lists begin, and the table of each: a list of one is never
            that of another. `image_loops.ROOT` if images say nothing of their tables.
        room: the columns of the lists, for the loops.
    """

    tape: Tape
    tables: Mapping[int, Any] = field(default_factory=lambda: {image_loops.ROOT: None})
    room: image_loops.Columns = field(init=False)
    _described: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    _lists: dict[int, ColumnList] = field(default_factory=dict[int, ColumnList])
    _listed: int = 0

    def __post_init__(self) -> None:
        # Each member of an image is at least two nodes, and a member of one image only.
        most = len(self.tape.nodes) // 2 + 1
        columns = self.tape.workspace.array("columns", most, image_loops.COLUMN)
        columns[image_loops.ROOT] = 0
        self.room = image_loops.Columns(
            columns, np.zeros(1 << (2 * most).bit_length(), np.int32), np.ones(1, np.int64)
        )

    def begin_at(self, tables: Mapping[int, Any]) -> None:
        """Let lists begin after some of the columns up to now, none of which is one of images."""
        self.tables = {image_loops.ROOT: None, **tables}
        self._described = [(image_loops.ROOT, 0, "")] * int(self.room.used[0])

    def listed(self, objects: npt.NDArray[np.integer[Any]], take: Take) -> Images:
        """Return images with their lists of columns, which `take` finds; `NONE` is no image."""
        count = len(objects)
        self._listed += 1
        images = Images(
            objects.astype(np.int32),
            self.tape.workspace.array(
                f"cells {self._listed}", len(self.tape.nodes) // 2 + 1, image_loops.CELL
            ),
            np.empty(count + 1, np.int32),
            np.empty(count, np.int32),
            np.empty(count, np.uint8),
            np.empty(count, np.bool_),
        )
        take(self.room, images)
        return images

    def members(self, objects: npt.NDArray[np.integer[Any]], firsts: Places) -> Images:
        """Return images each of whose members is a column.

        The list of each begins after the column in `firsts`.
        """
        octets, nodes = self.tape.texts.octets, self.tape.nodes
        return self.listed(objects, partial(image_loops.members_listed, octets, nodes, firsts))

    @property
    def columns(self) -> Nodes:
        """`image_loops.COLUMN` of each column."""
        return self.room.columns[: self.room.used[0]]

    @property
    def described(self) -> list[tuple[int, int, str]]:
        """For each column its predecessor, its label, and its name."""
        count = len(self._described)
        if count != self.room.used[0]:
            octets = self.tape.texts.octets.data
            for before, start, end, label, _ in self.columns[count:].tolist():
                raw = bytes(octets[start:end])
                name = json.loads(b'"%s"' % raw) if b"\\" in raw else raw.decode()
                self._described.append((before, label, name))
        return self._described

    def list_of(self, last: int) -> ColumnList:
        """Return a list by the number of its last column."""
        column_list = self._lists.get(last)
        if column_list is None:
            described, column = self.described, last
            names: list[str] = []
            labels: list[int] = []
            while column not in self.tables:
                column, label, name = described[column]
                names.append(name)
                labels.append(label)
            column_list = self._lists[last] = ColumnList(
                self.tables[column], tuple(names[::-1]), tuple(labels[::-1])
            )
        return column_list

    def _plain(self, ways: Octets) -> Octets:
        """Return ways of columns with `image_loops.ALL_PLAIN` where all before are plain."""
        plain_ways = ways.copy()
        is_plain = ((ways > 0) & (ways <= Spelling.NUMBER)).tolist()
        described = self.described
        for column in range(1, len(plain_ways)):
            before = described[column][0]
            # A column comes after its predecessor.
            if is_plain[column] and (before in self.tables or is_plain[before]):
                plain_ways[column] |= image_loops.ALL_PLAIN
            else:
                is_plain[column] = False
        return plain_ways

    def written(
        self, listed: Sequence[Images], ways: Octets, most: int | None = None
    ) -> "list[tuple[pa.Array[Any], Nodes]]":
        """Write images as texts; those with an unexpected value are no longer good.

        Args:
            listed: the images after and those before, or one of both.
            ways: of each column the way of its values.
            most: how many bytes either may have together; as many as the texts if None.

        Returns:
            For each the texts, null for none; and the numbers that may not be in the form that they
            must have.
        """
        size = len(self.tape.texts.octets)
        ways = self._plain(ways)
        outputs: list[tuple[pa.Array[Any], Nodes]] = []
        for images in listed:
            written = room_for(size if most is None else most)
            there = images.objects >= 0
            ends = np.empty(len(there), np.int64)
            # Only numbers are unsure.
            unsure = self.tape.workspace.array("unsure", len(images.cells), image_loops.UNSURE)
            count = image_loops.images_written(
                self.tape.texts,
                self.tape.nodes,
                images,
                ways,
                written,
                self.tape.workspace.array("scratch", size + PADDING, np.uint8),
                ends,
                unsure,
            )
            outputs.append((texts_in(written, ends, there), unsure[:count].copy()))
        return outputs


def numbered(values: npt.NDArray[np.integer[Any]]) -> tuple[list[int], Ints]:
    """Return the distinct values, and the number of each value among them."""
    encoded: Any = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


Shape: TypeAlias = Callable[[ColumnList, ColumnList, bool], RowShape | None]


@lru_cache(maxsize=1000)
def _shape_text(
    shape: Shape, after: ColumnList, before: ColumnList, is_partial: bool
) -> str | None:
    """Return the text of the shape of rows with these columns, None if no table has them."""
    if any(len(set(columns.names)) < len(columns.names) for columns in (after, before)):
        return None
    try:
        row_shape = shape(after, before, is_partial)
    except WireError:
        return None
    return None if row_shape is None else shape_text(row_shape)


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """The shapes of rows.

    Attributes:
        texts: the distinct ones.
        which: for each row the number of its shape, `NONE` if no table has such columns.
    """

    texts: "pa.Array[Any]"
    which: Ints

    @classmethod
    def of(
        cls,
        lists: ImageLists,
        after: Images,
        before: Images,
        partial: Flags,
        rows: Flags,
        shape: Shape,
    ) -> "Shapes":
        """Return the shapes of rows, by the columns of their images; `rows` have one.

        `partial` says which may lack columns. `shape` returns a shape by the columns of both images
        and whether it is partial; None, or a `WireError`, if no table can have it.
        """
        which = np.full(len(rows), NONE, np.int64)
        said = after.lasts.astype(np.int64) << 32 | before.lasts.astype(np.int64) << 1 | partial
        distinct, which[rows] = numbered(said[rows])
        texts: list[str | None] = []
        for key in distinct:
            new, old = lists.list_of(key >> 32), lists.list_of(key >> 1 & 0x7FFF_FFFF)
            texts.append(_shape_text(shape, new, old, bool(key & 1)))
        refused = np.array([text is None for text in texts] + [True], np.bool_)
        which[refused[which]] = NONE
        return cls(pa.array(texts, pa.string()), which)

    def column(self, chosen: Ints) -> "pa.Array[Any]":
        """Return the shapes of some rows, null for none."""
        which = self.which[chosen]
        return self.texts.take(pa.array(which, mask=which < 0))


def chosen_of(column: "pa.Array[Any]", chosen: Ints) -> "pa.Array[Any]":
    """Return elements of a column, in their order."""
    return column if len(chosen) == len(column) else column.take(pa.array(chosen))


def distinct_lists(lists: ImageLists, listed: Images) -> Flags:
    """Return whether each image has each name at most once."""
    lasts, which = numbered(listed.lasts)
    distinct = [
        len(set(columns.names)) == len(columns.names) for columns in map(lists.list_of, lasts)
    ]
    return np.array(distinct, np.bool_)[which]
