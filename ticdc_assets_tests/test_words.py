"""Documents and code are in plain words: the words that readers found strange are not in them.

A word counts where it is a whole word of a sentence: of a document, a docstring, a comment or a
message. Code, quotes of programs and links do not count.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

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

ROOMS = [
    "base",
    "changelog",
    "config",
    "model",
    "registry",
    "rows",
    "storage",
    "wire",
]
"""The rooms whose docstrings, comments and messages are in plain words."""

LAG = re.compile(
    r"(?:far|seconds|is|are) behind|behind (?:a|the) (?:proxy|firewall)", re.IGNORECASE
)


def sentences(text: str) -> str:
    """Return a document without code, targets of links, and quotes."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]+`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r'"[^"\n]*"', "", text)


def strange(text: str) -> list[str]:
    """Return the strange words of a document, each with its surroundings and what to write."""
    plain = LAG.sub("", sentences(text))
    return [
        f"{match[0]!r}: write {words}"
        for pattern, words in INSTEAD.items()
        for match in re.finditer(
            rf".{{0,40}}(?<![\w-])(?:{pattern})(?![\w-]).{{0,30}}", plain, re.IGNORECASE
        )
    ]


def documents(root: Path) -> list[Path]:
    pages = [*root.glob("docs/**/*.md"), root / "README.md", root / "CHANGELOG.md"]
    return sorted([*pages, root / "CONTRIBUTING.md"])


def test_documents_are_in_plain_words(root: Path) -> None:
    found = {
        str(path.relative_to(root)): strange(path.read_text("utf-8")) for path in documents(root)
    }
    assert len(found) > 50
    assert {path: words for path, words in found.items() if words} == {}


def texts(source: str) -> str:
    """Return the comments of a module, and its strings of several words, docstrings among them."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [each.string for each in tokens if each.type == tokenize.COMMENT]
    strings = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    ]
    return "\n\n".join(comments + strings)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_in_plain_words(room: str, root: Path) -> None:
    strange_words = {
        str(path.relative_to(root)): strange(texts(path.read_text("utf-8")))
        for path in (root / "ticdc_assets" / room).rglob("*.py")
    }
    assert strange_words
    assert {path: words for path, words in strange_words.items() if words} == {}


def test_texts_of_a_module_are_its_comments_and_strings() -> None:
    source = """
told = stands = {"told": 1}  # a comment
def behind():
    'A docstring.'
    return f"a message of {told}" + "another one"
"""
    assert texts(source).split("\n\n") == [
        "# a comment",
        "A docstring.",
        "another one",
        "a message of ",
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Nothing tells it.", 1),
        ("The table stands beside the log.", 2),
        ("A mirror is seconds behind its table, and how far behind it is.", 0),
        ("The lock is behind the lease.", 0),
        ("A commit behind the cut.", 1),
        ('A stand-in, `tells`, [a page](tells.md) and "stands".', 0),
    ],
)
def test_strange_words_are_found(text: str, count: int) -> None:
    assert len(strange(text)) == count
