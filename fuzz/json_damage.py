"""Damage to JSON that mostly leaves it JSON: what gets past the parser to the fields behind it.

In: a generator of random numbers and the bytes of one JSON text. Out: other bytes: members gone,
twice, renamed, of another type or size; texts with odd characters. A text that is no JSON is given
back as it is. Where values stand is found once for each text and kept, since seeds are damaged
again and again.

Not handled: damage without regard to structure (`damage`).
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

ODD = (
    *b"null true false 0 -0 -1 1 2 3 255 256 65536 2147483648 4294967296".split(),
    *b"9007199254740993 9223372036854775807 9223372036854775808 -9223372036854775808".split(),
    *b"-9223372036854775809 18446744073709551615 18446744073709551616".split(),
    *b"123456789012345678901234567890 1.5 1.0 1e3 1E400 -1e-400 0.1e1".split(),
    *b"01 +1 .5 1. NaN Infinity -Infinity".split(),
    *b'"" "0" "-1" "1.5" "9223372036854775808" "18446744073709551616"'.split(),
    *b'"-9223372036854775809" "NaN" "null" "true" "x"'.split(),
    *rb'"\u0000" "\ud800" "\udc00\ud800" "\ud83d\ude80" "\x41" "\u12" "a\u00ffb"'.split(),
    *(b'"\xff"', b'"\xed\xa0\x80"', b'"\xe2\x80\xa8"', b'"\n"'),
    *b'"==" "AA=" "AB==" "/w" "-838:59:59" "INSERT" "DDL" "TIDB_WATERMARK"'.split(),
    *(b'"0000-00-00 00:00:00"', b'"2038-01-19 03:14:08.999999"', b'"bigint unsigned"'),
    *b'"varbinary(9)" "geometry" "../../x" [] {} [[]] [null] [1,2] ["x"] {"":0}'.split(),
    *b'{"a":{"a":{}}} {"id":"1"} [{"id":"1"}] [{"id":null},{"id":"2"}]'.split(),
    *b'{"value":"1","location":"Local"} {"t":3,"v":1} {"t":15,"f":1,"v":"x"}'.split(),
    *(b"[" * depth + b"]" * depth for depth in (50, 99, 120)),
    b"[" * 500,
    b'{"a":' * 120 + b"1" + b"}" * 120,
    b"9" * 400,
    b"0." + b"9" * 400,
    b'"' + b"x" * 500 + b'"',
)
"""Values that some field does not expect."""

IN_TEXT = (
    *rb"\u0000 \ud800 \uDFFF \ud83d\ude80 \" \\ \/ \n \x \u00e9 \u0041 \u003c".split(),
    *(b"\xe2\x80\xa9", b"\xff", b"\xc3\x28", b"\x7f", b"\x1f", b" "),
    *b"<>& ' - . = 0 %s".split(),
)
"""Pieces inside a text."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+|[\[\]{},:]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Node:
    """Where one value stands, its member's name if it has one, and how many values are around."""

    start: int
    end: int
    name: tuple[int, int] | None
    depth: int


@dataclass(frozen=True, slots=True)
class Text:
    """A text under damage, and one to take pieces of; often it is the same."""

    content: bytes
    other: bytes


Edit: TypeAlias = Callable[[random.Random, Text, Node], bytes]
"""Returns what takes the place of a value and its name."""


@lru_cache(maxsize=4096)
def nodes_of(text: bytes) -> tuple[Node, ...]:
    """Return where the values of `text` stand; nothing where it is no JSON."""
    nodes: list[Node] = []
    open_nodes: list[tuple[int, tuple[int, int] | None]] = []
    last: tuple[int, int] | None = None
    name: tuple[int, int] | None = None
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in b"[{":
            open_nodes.append((match.start(), name))
            name = None
        elif token in b"]}":
            if not open_nodes:
                return ()
            start, own = open_nodes.pop()
            nodes.append(Node(start, match.end(), own, len(open_nodes)))
            name = None
        elif token == b":":
            if last is None:
                return ()
            if nodes and (nodes[-1].start, nodes[-1].end) == last:
                nodes.pop()
            name = last
        elif token != b",":
            last = match.span()
            nodes.append(Node(*last, name, len(open_nodes)))
            name = None
    return () if open_nodes else tuple(nodes)


@lru_cache(maxsize=4096)
def levels_of(text: bytes) -> tuple[tuple[Node, ...], ...]:
    """Return the values of `text` by depth."""
    levels: dict[int, list[Node]] = {}
    for node in nodes_of(text):
        levels.setdefault(node.depth, []).append(node)
    return tuple(tuple(levels[depth]) for depth in sorted(levels))


def damaged_json(generator: random.Random, text: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return `text` with one value changed, or a few; `others` are texts to take pieces of."""
    levels = levels_of(text)
    if not levels:
        return text
    other = generator.choice(others) if others and generator.random() < 0.5 else text
    # From the right to the left, so that what is still to come stays in its place.
    limit = len(text)
    # Few values are outside and many are inside; each depth has its turn.
    chosen = [
        generator.choice(generator.choice(levels)) for _ in range(generator.choice((1, 1, 1, 2, 3)))
    ]
    changed = text
    for node in sorted(chosen, key=lambda node: -node.start):
        start = node.name[0] if node.name else node.start
        if node.end > limit:
            continue
        limit = start
        edit = generator.choice(_EDITS)
        changed = changed[:start] + edit(generator, Text(text, other), node) + changed[node.end :]
    return changed


def _named(text: Text, node: Node, value: bytes) -> bytes:
    """Return `value` behind the name of `node`."""
    return value if node.name is None else text.content[node.name[0] : node.start] + value


def _value(text: Text, node: Node) -> bytes:
    return text.content[node.start : node.end]


def _replace(generator: random.Random, text: Text, node: Node) -> bytes:
    return _named(text, node, generator.choice(ODD))


def _another(generator: random.Random, text: Text, node: Node) -> bytes:
    return _named(text, node, _a_value(generator, text))


def _twice(generator: random.Random, text: Text, node: Node) -> bytes:
    own = _named(text, node, _value(text, node))
    odd = _named(text, node, generator.choice(ODD))
    pair = generator.choice(((own, odd), (odd, own), (own, own)))
    return b",".join(pair)


def _added(generator: random.Random, text: Text, node: Node) -> bytes:
    own = _named(text, node, _value(text, node))
    value = generator.choice((generator.choice(ODD), _a_value(generator, text)))
    if node.name is None:
        return own + b"," + value
    return own + b"," + _a_name(generator, text) + b":" + value


def _added_with_name(generator: random.Random, text: Text, node: Node) -> bytes:
    """Add a member as it stands elsewhere at the same depth."""
    own = _named(text, node, _value(text, node))
    levels = levels_of(text.other)
    level = levels[node.depth] if node.depth < len(levels) else ()
    named = [(each.name[0], each.end) for each in level if each.name is not None]
    if node.name is None or not named:
        return own
    start, end = generator.choice(named)
    return own + b"," + text.other[start:end]


def _renamed(generator: random.Random, text: Text, node: Node) -> bytes:
    if node.name is None:
        return _replace(generator, text, node)
    name = text.content[slice(*node.name)]
    new = generator.choice(
        (
            name.swapcase(),
            name.upper(),
            _a_name(generator, text),
            _a_name(generator, text),
            _escaped(generator, name),
            name[:1] + name[2:],
            name[:-1] + generator.choice(IN_TEXT) + name[-1:],
        )
    )
    return new + text.content[node.name[1] : node.end]


def _a_value(generator: random.Random, text: Text) -> bytes:
    nodes = nodes_of(text.other)
    if not nodes:
        return generator.choice(ODD)
    node = generator.choice(nodes)
    return text.other[node.start : node.end]


def _a_name(generator: random.Random, text: Text) -> bytes:
    nodes = nodes_of(text.other)
    names = [node.name for node in generator.choices(nodes, k=4) if node.name] if nodes else []
    if not names:
        return generator.choice((b'""', b'"new"', b'"id"', b"id"))
    return text.other[slice(*names[0])]


def _escaped(generator: random.Random, name: bytes) -> bytes:
    """Return a name with one character written as an escape, which means the same."""
    if len(name) < 3:
        return name
    place = generator.randrange(1, len(name) - 1)
    if name[place] >= 0x80 or name[place] == 0x5C:
        return name
    return name[:place] + b"\\u%04x" % name[place] + name[place + 1 :]


def _gone(_generator: random.Random, _text: Text, node: Node) -> bytes:
    # Without anything there would be one comma too many.
    return b'"":0' if node.name is not None else b"null"


def _wrapped(generator: random.Random, text: Text, node: Node) -> bytes:
    depth = generator.choice((1, 1, 2, 97, 98, 99, 100, 101, 300))
    opened, closed = generator.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"v":', b"}")))
    return _named(text, node, opened * depth + _value(text, node) + closed * depth)


def _quoted(_generator: random.Random, text: Text, node: Node) -> bytes:
    value = _value(text, node)
    if value[:1] == b'"':
        return _named(text, node, value[1:-1] or b"0")
    if value[:1] in (b"{", b"["):
        value = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return _named(text, node, b'"' + value + b'"')


def _in_text(generator: random.Random, text: Text, node: Node) -> bytes:
    value = _value(text, node)
    if value[:1] != b'"':
        return _number(generator, text, node)
    place = generator.randrange(1, len(value))
    rest = value[min(place + generator.choice((0, 0, 1, 2)), len(value) - 1) :]
    return _named(text, node, value[:place] + generator.choice(IN_TEXT) + rest)


def _number(generator: random.Random, text: Text, node: Node) -> bytes:
    value = _value(text, node)
    if value[:1] not in b"-0123456789" or not value:
        return _replace(generator, text, node)
    changed = generator.choice(
        (
            b"-" + value,
            value + b"0",
            value + b".0",
            value + b"e0",
            value + b"e1",
            value + b"E-1",
            b"0" + value,
            value + b"." + b"0" * 30,
            value * 3,
            value[:-1] + b"%d" % generator.randrange(10),
            b" " + value + b" ",
        )
    )
    return _named(text, node, changed)


def _spaced(generator: random.Random, text: Text, node: Node) -> bytes:
    value = _value(text, node)
    blank = generator.choice((b" ", b"\n", b"\t\r ", b"\x0b", b"\xc2\xa0", b"/**/"))
    if node.name is None:
        return blank + value + blank
    return text.content[slice(*node.name)] + blank + b":" + value + blank


_EDITS: Sequence[Edit] = (
    _replace,
    _replace,
    _replace,
    _another,
    _another,
    _twice,
    _twice,
    _added,
    _added_with_name,
    _renamed,
    _renamed,
    _gone,
    _wrapped,
    _quoted,
    _in_text,
    _in_text,
    _in_text,
    _number,
    _spaced,
)
