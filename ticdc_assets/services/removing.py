"""Remove rows from a large table, for retention.

In: a table, and which of its rows go: by a condition on them, or by their coordinates. Out: one
commit, or the number of rows in a dry run. Rows of which the condition is unknown stay.

Why running it again is safe: what is gone is not found again, and then there is no commit.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyroaring import BitMap64

from ticdc_assets.engine.committing import undisturbed
from ticdc_assets.engine.control import commit_metadata, dataset_of, opened
from ticdc_assets.engine.delta_files import file_at, log_state
from ticdc_assets.engine.files import row_groups
from ticdc_assets.engine.rewriting import Rewriter, Staying
from ticdc_assets.engine.session import Session
from ticdc_assets.storage.paths import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Removing:
    """Removes rows of a table.

    Args:
        spark: the session, which does not start if the work is small.
        table: folder of the table.
        transactions: transaction identifiers that the commit carries, with their versions.
        dry_run: whether only to count.
    """

    spark: Session
    table: AnyPath
    transactions: Sequence[tuple[str, int]] = ()
    dry_run: bool = False

    def remove(self, may_go: ds.Expression, stay: Staying, columns: Sequence[str]) -> int:
        """Remove rows; return how many.

        Args:
            may_go: a condition on all rows that go; files without such rows are not read.
            stay: gives the rows that stay.
            columns: the columns by which it decides.

        Raises:
            ConflictError: other programs committed meanwhile, several times.
        """
        table = self.table
        found = dataset_of(opened(table), table)
        if self.dry_run:
            rows = found.to_table(columns=list(columns), filter=may_go)
            return rows.num_rows - stay(rows).num_rows
        names = {str(path) for path, _ in row_groups(found, table, may_go)}

        def remove() -> int:
            state = log_state(table)
            files = [item for item in state.files if str(file_at(table, item["path"])) in names]
            writer = Rewriter(
                spark=self.spark,
                table=table,
                metadata=commit_metadata(table),
                does=f"removing rows of {table.name}",
            )
            return writer.remove(state, files, stay, columns, transactions=self.transactions)

        return undisturbed(remove)


def surely(condition: ds.Expression) -> ds.Expression:
    """Return a condition that is false where the other one is unknown."""
    return pc.coalesce(condition, ds.scalar(False))


@dataclass(frozen=True)
class Without:
    """Gives the rows that a condition is not true of.

    Attributes:
        gone: the condition.
    """

    gone: ds.Expression

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the rows that stay."""
        return rows.filter(~surely(self.gone))


@dataclass(frozen=True)
class Others:
    """Gives the records that are none of some.

    Attributes:
        offsets: the offsets of these, by topic and partition.
        landed: the newest batch that has some of them.
    """

    offsets: Mapping[tuple[str, int], BitMap64]
    landed: int

    @classmethod
    def than(cls, records: Iterable[pa.Table], landed: int) -> "Others":
        """Return what gives the others than records, whose coordinates come in tables."""
        found: defaultdict[tuple[str, int], BitMap64] = defaultdict(BitMap64)
        for rows in records:
            for place in (
                rows.group_by(["topic", "partition"]).aggregate([("offset", "list")]).to_pylist()
            ):
                found[place["topic"], place["partition"]] |= BitMap64(place["offset_list"])
        return cls(dict(found), landed)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the rows that stay."""
        none = BitMap64()
        places = (rows[name].to_pylist() for name in ("topic", "partition", "offset", "batch"))
        stays = [
            batch > self.landed or offset not in self.offsets.get((topic, partition), none)
            for topic, partition, offset, batch in zip(*places, strict=True)
        ]
        return rows.filter(pa.array(stays, pa.bool_()))
