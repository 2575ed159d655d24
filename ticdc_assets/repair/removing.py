"""Remove rows from a large table, for retention.

In: a table, and the rows to remove: by a condition, or as whole files. Out: one commit, which also
sets table properties. Rows stay if the condition is unknown for them.

Why running it again is safe: removed rows are not found again, and then there is no commit.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.delta.committing import undisturbed
from ticdc_assets.delta.control import commit_metadata, dataset_of, opened
from ticdc_assets.delta.delta_files import file_at, log_state
from ticdc_assets.delta.delta_protocol import LogState
from ticdc_assets.delta.files import row_groups
from ticdc_assets.delta.rewriting import Rewriter
from ticdc_assets.spark.session import Session
from ticdc_assets.storage.paths import AnyPath

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removing:
    """Removes rows of a table.

    Args:
        spark: the session, which does not start if the work is small.
        table: folder of the table.
        properties: table properties that the commit sets.
    """

    spark: Session
    table: AnyPath
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def going(self, may_go: ds.Expression, gone: ds.Expression, columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows to remove; see `remove`."""
        found = dataset_of(opened(self.table), self.table)
        return found.to_table(columns=list(columns), filter=may_go).filter(surely(gone))

    def remove(self, may_go: ds.Expression, gone: ds.Expression, columns: Sequence[str]) -> int:
        """Remove rows; return how many.

        Args:
            may_go: a condition that all removed rows meet; files without such rows are not read.
            gone: the condition for removal.
            columns: the columns of the condition.

        Raises:
            ConflictError: other programs committed meanwhile, several times.
        """
        table = self.table
        found = dataset_of(opened(table), table)
        names = {str(path) for path, _ in row_groups(found, table, may_go)}

        def remove(writer: Rewriter, state: LogState) -> int:
            files = [item for item in state.files if str(file_at(table, item["path"])) in names]
            stay = partial(_without, gone)
            return writer.remove(state, files, stay, columns, properties=self.properties)

        return self._undisturbed(remove)

    def remove_files(self, paths: Collection[str]) -> None:
        """Remove whole files, by their names in the table's log.

        Raises:
            ConflictError: other programs committed meanwhile, several times.
        """
        self._undisturbed(
            lambda writer, state: writer.remove_files(state, paths, properties=self.properties)
        )

    def _undisturbed(self, make: Callable[[Rewriter, LogState], _Value]) -> _Value:
        def made() -> _Value:
            writer = Rewriter(
                spark=self.spark,
                table=self.table,
                metadata=commit_metadata(self.table),
                does=f"removing rows of {self.table.name}",
            )
            return make(writer, log_state(self.table))

        return undisturbed(made)


def surely(condition: ds.Expression) -> ds.Expression:
    """Return a condition that is false where the other one is unknown."""
    return pc.coalesce(condition, ds.scalar(False))


def _without(gone: ds.Expression, rows: pa.Table) -> pa.Table:
    """Return the rows that do not meet a condition."""
    return rows.filter(~surely(gone))
