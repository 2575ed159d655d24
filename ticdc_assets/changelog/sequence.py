"""The total order in which changes of one table take effect.

Commit ts first; within one commit ts of a table deletes before puts (the halves of a split update
may be in two partitions, which have no order); then topic, partition, offset and index, so that the
order is total and a replay gives the same one. The lake's folding uses the same fields.

Without commit ts (Canal-JSON without the TiDB extension) a millisecond takes its place, in which
one row may change several times: there only the place in the topic orders deletes and puts.
"""

DELETE_RANK = 0
PUT_RANK = 1
REMOVED_RANK = 2
"""The rank of a row's end by partition DDL, which is right after its put."""


def rank_of(*, is_delete: bool, es_only: bool) -> int:
    """Return the rank of a change among those of its commit ts."""
    return DELETE_RANK if is_delete or es_only else PUT_RANK
