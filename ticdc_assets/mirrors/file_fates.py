"""Decide what the next version of a mirror or a history does with each file.

In: the files of a version, and how many rows each of them loses. Out: which stay, which get a
deletion vector, and which are written again, alone or with others. All size limits are here. Pure.

Small files are written again together with new rows of about the same size. So a table that gets a
few rows a second has as many files as its size has digits, and no row is written again often. A
small file that loses rows joins too, once there are as many new ones: without that, a table whose
rows change everywhere would keep each file of more than `SMALL_ROWS`. Only large files are left for
a compaction.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from ticdc_assets.delta.delta_protocol import Action
from ticdc_assets.rows.finding import SearchedFile

F = TypeVar("F")

SMALL_ROWS = 10_000
"""Rows of a file up to which it is written again if it loses some: a vector costs readers more."""

SMALL_BYTES = 16 << 20
"""Bytes of a file up to which it is written again together with new rows."""

MOST_DELETED = 0.2
"""The share of a file's rows that may be marked as deleted: readers still read them."""

JOINED_BYTES = 64 << 20
"""Bytes of a file up to which a compaction writes it again together with others."""

_WORTH_WRITING = 0.05
"""The share of deleted rows from which on a compaction writes a large file again."""


class Fate(Enum):
    """What the next version does with a file."""

    KEPT = auto()
    MARKED = auto()
    COPIED = auto()
    JOINED = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRows:
    """A file of the base version.

    `action` is the `add` that names it; `left` of its rows are not deleted.
    """

    action: Action
    searched: SearchedFile
    rows: int
    left: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.action["size"]


def fate_of(file: LiveRows, lost: int, *, has_vectors: bool) -> Fate:
    """Decide what happens to a file that loses so many rows.

    - GONE: no row is left.
    - JOINED: it is small, and its other rows are written again with the new rows.
    - COPIED: its other rows are written into a separate file: the table has no vectors, or so many
      rows are gone that reading them costs more than writing the others once.
    - MARKED: it gets a vector.
    """
    left = file.left - lost
    if not left:
        return Fate.GONE
    if not lost:
        return Fate.KEPT
    if file.rows <= SMALL_ROWS and file.size <= SMALL_BYTES:
        return Fate.JOINED
    if not has_vectors or file.rows - left > MOST_DELETED * file.rows:
        return Fate.COPIED
    return Fate.MARKED


def about_as_large(files: Sequence[LiveRows], rows: int) -> list[LiveRows]:
    """Return the small files that are written again with so many rows.

    A file is chosen if it is at most twice as large as the rows that it is joined with. So sizes
    grow in steps, and a row is written again as often as its file doubles.
    """
    chosen: list[LiveRows] = []
    small = (file for file in files if file.size <= SMALL_BYTES)
    for file in sorted(small, key=lambda item: item.left):
        if file.left > 2 * rows:
            break
        chosen.append(file)
        rows += file.left
    return chosen


def packed(files: Iterable[F], size: Callable[[F], int], most: int) -> list[list[F]]:
    """Return groups of files, in their order, of at most so many bytes if none is larger."""
    groups: list[list[F]] = []
    used = 0
    for file in files:
        if not groups or used + size(file) > most:
            groups.append([])
            used = 0
        groups[-1].append(file)
        used += size(file)
    return groups


def compacted_together(files: Sequence[LiveRows], few: int) -> list[list[LiveRows]]:
    """Return the files to write again in a compaction, with small ones together.

    If there are as many small ones as `few`, those without vectors are written again too.
    """
    large = [file for file in files if file.size >= JOINED_BYTES]
    small = [file for file in files if file.size < JOINED_BYTES]
    is_many = len(small) >= few
    return [
        *([file] for file in large if file.rows - file.left > _WORTH_WRITING * file.rows),
        *(
            group
            for group in packed(small, lambda file: file.size, JOINED_BYTES)
            if (is_many and len(group) > 1) or any(file.rows > file.left for file in group)
        ),
    ]
