"""The total order in which changes of one table take effect.

Commit ts first; within one commit ts of a table deletes before puts (the halves of a split update
may sit in two partitions, and nothing orders these); then topic, partition, offset and index, so
that the order is total and a replay gives the same one. The lake's folding uses the same fields.

Without commit ts (Canal-JSON without the TiDB extension) a millisecond stands for it, in which one
row may change several times: there only the place in the topic orders, deletes and puts alike.
"""

DELETE_RANK = 0
PUT_RANK = 1
REMOVED_RANK = 2
"""Of the end that partition DDL makes of a row, which stands right behind its put."""


def rank_of(*, is_delete: bool, es_only: bool) -> int:
    """Return the rank of a change among those of its commit ts."""
    return DELETE_RANK if is_delete or es_only else PUT_RANK
