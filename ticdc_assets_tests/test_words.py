"""Documents and code are in plain words: the words that readers found strange are not in them.

A word counts where it is a whole word of a sentence: in pages, and in the docstrings, comments and
messages of the rooms. Code, quotes of programs and links do not count.
"""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from ticdc_assets_tests.conftest import ROOT

INSTEAD = {
    r"told|tells?": "reported, known, recorded, logged, has, says",
    r"behind": "after; behind only of lag, a proxy or a firewall",
    r"stands?": "is",
    r"is asked|asks? for": "calls, reads, needs",
    r"whoever|that which": "the person or the thing",
    r"beside": "next to, with, besides",
    r"as ever|as before|anew": "as usual, unchanged, again",
    r"of ours|our own": "this package's",
    r"(?:a|the|one) look": "check, snapshot",
    r"(?:there )?is none that": "does not, cannot",
    r"regular": "exact, canonical",
}
"""Words to lose, as patterns, and what to write."""

LAG = re.compile(
    r"(?:far|further|furthest|seconds|tables|is|are) behind"
    r"|behind (?:now|the end|a proxy|the proxy|a firewall|the firewall)"
    r"|less than … behind|… behind \(",
    re.IGNORECASE,
)

WORDS = re.compile(
    rf"(?<![\w-])(?:{'|'.join(f'({pattern})' for pattern in INSTEAD)})(?![\w-])", re.IGNORECASE
)
"""The same as one pattern: the number of the group that matched says which it is."""

ROOMS = sorted({path.parent.name for path in (ROOT / "ticdc_assets").glob("*/*.py")})
"""The rooms, whose docstrings, comments and messages are in plain words."""


def sentences(text: str) -> str:
    """Return a document without code, targets of links, and quotes."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]+`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r'"[^"\n]*"', "", text)


def strange(text: str) -> list[str]:
    """Return the strange words of a document, each with its surroundings and what to write."""
    plain = LAG.sub("", sentences(text))
    instead = list(INSTEAD.values())
    return [
        f"{plain[max(0, match.start() - 40) : match.end() + 30]!r}: "
        f"write {instead[(match.lastindex or 1) - 1]}"
        for match in WORDS.finditer(plain)
    ]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines and texts of a module's comments, and of its strings with several words."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    tree = ast.parse(path.read_text("utf-8"))
    pieces = {
        id(piece)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for piece in ast.walk(node)
        if piece is not node
    }
    for node in ast.walk(tree):
        if id(node) in pieces:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield node.lineno, text


def documents(root: Path) -> list[Path]:
    pages = [*root.glob("docs/**/*.md"), root / "README.md", root / "CHANGELOG.md"]
    return sorted([*pages, root / "CONTRIBUTING.md"])


def test_documents_are_in_plain_words(root: Path) -> None:
    found = {
        str(path.relative_to(root)): strange(path.read_text("utf-8")) for path in documents(root)
    }
    assert len(found) > 50
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_in_plain_words(root: Path, room: str) -> None:
    words = {
        f"{path.relative_to(root)}:{line}": said
        for path in sorted((root / "ticdc_assets" / room).rglob("*.py"))
        for line, text in prose(path)
        if (said := strange(text))
    }
    assert words == {}
