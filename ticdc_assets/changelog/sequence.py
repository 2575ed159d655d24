"""The total order in which changes of one table take effect.

Commit ts first; within one commit ts of a table deletes before puts (the halves of a split update
may sit in two partitions, and nothing orders these); then topic, partition, offset and index, so
that the order is total and a replay gives the same one. The lake's folding uses the same fields.
"""

from typing import TypeAlias

SequenceKey: TypeAlias = tuple[int, int, str, int, int, int]
"""(commit_ts, rank, topic, partition, offset, index)."""

DELETE_RANK = 0
PUT_RANK = 1


def sequence_key(
    *, commit_ts: int, is_delete: bool, topic: str, partition: int, offset: int, index: int
) -> SequenceKey:
    """Return the sort key of a change."""
    return (commit_ts, DELETE_RANK if is_delete else PUT_RANK, topic, partition, offset, index)
