"""Patterns of topic names: where a changefeed writes to, topics that are created later included.

In: the text of a pattern. Out: `TopicPattern`, which says whether a topic matches.

A pattern has literal characters of topic names and any of:

- `{schema}`, `{table}` and `{column:name}`: the placeholders of TiCDC's topic expressions, so that
  the text of a dispatch rule can be copied as it is. Each means one or more characters.
- `*`: any characters, or none. TiCDC has no such placeholder; it is for topics that were named by
  hand.

How a name becomes a topic is TiCDC's rule:
https://github.com/pingcap/ticdc/blob/88274ed88e53/downstreamadapter/sink/eventrouter/topic/expression.go
Old releases wrote names in lower case; a topic is matched either way.

Internal topics (`__consumer_offsets` and others that begin with two underscores and then a letter
or digit) match only patterns that begin with two underscores themselves. Names in other scripts
become underscores, so `___orders` may be a table's topic and matches.

Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ticdc_assets.base.errors import ConfigError, shorten

MAX_TOPIC_CHARACTERS = 249
"""The longest name of a topic. TiCDC cuts longer ones, which a pattern with text after the cut does
not match: two names fit into half of it.
"""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_INTERNAL = re.compile(r"__[A-Za-z0-9]")
_TOKEN = re.compile(
    r"(?P<schema>\{schema\})|(?P<table>\{table\})|(?P<column>\{column:[^{}]*[^{}\s][^{}]*\})"
    r"|(?P<star>\*+)|(?P<literal>[A-Za-z0-9._-]+)"
)
_EXPECTED = (
    "characters of topic names (A-Z a-z 0-9 . _ -) with {schema}, {table}, {column:name} or *"
)

_ANY = "[A-Za-z0-9._-]"


def is_topic_name(text: str) -> bool:
    """Return whether Kafka accepts a topic of this name."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


def is_topic_pattern(text: str) -> bool:
    """Return whether a text is meant as a pattern: it has a placeholder, a brace or a `*`."""
    return any(character in text for character in "{}*")


def is_named(topic: str, texts: Iterable[str]) -> bool:
    """Return whether one of the texts, each a name or a pattern, names a topic."""
    return any(
        TopicPattern(text).matches(topic) if is_topic_pattern(text) else text == topic
        for text in texts
    )


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics whose names match a pattern, as the module says.

    Raises:
        ConfigError: the text is not a pattern, or every topic matches it.
    """

    text: str

    def __post_init__(self) -> None:
        kinds = {kind for kind, _ in _tokens(self.text)}
        if not kinds - {"literal"}:
            raise ConfigError(f"expected {_EXPECTED}, got {shorten(self.text)}")
        if "star" in kinds and "literal" not in kinds:
            raise ConfigError(
                f"expected a pattern that names some topics, got {shorten(self.text)}, which is "
                "all that the brokers have: add what the names begin or end with, or list them"
            )

    def __str__(self) -> str:
        return self.text

    def matches(self, topic: str) -> bool:
        """Return whether a topic matches."""
        if not is_topic_name(topic):
            return False
        if _INTERNAL.match(topic) and not self.text.startswith("__"):
            return False
        return _expression(self.text).fullmatch(topic) is not None


@lru_cache(maxsize=256)
def _tokens(pattern: str) -> tuple[tuple[str, str], ...]:
    """Return the parts of a pattern as (kind, text).

    Raises:
        ConfigError: the text is not a pattern.
    """
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise ConfigError(f"expected {_EXPECTED}, got {shorten(pattern)}")
        tokens.append((match.lastgroup or "", match.group()))
        position = match.end()
    if sum(len(text) for kind, text in tokens if kind == "literal") > MAX_TOPIC_CHARACTERS:
        raise ConfigError(
            f"expected at most {MAX_TOPIC_CHARACTERS} literal characters, got {shorten(pattern)}"
        )
    return tuple(tokens)


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    parts = {"schema": f"{_ANY}+", "table": f"{_ANY}+", "column": f"{_ANY}+", "star": f"{_ANY}*"}
    return re.compile(
        "".join(
            re.escape(text) if kind == "literal" else parts[kind] for kind, text in _tokens(pattern)
        )
    )
