"""Commits with ids, by which this package recognises its own commits.

Every commit of this package (`committing`) has an id in its JSON object (`COMMIT_ID`). A commit
without an id is *foreign*. It matters unless its actions leave rows and schema as they are, as
those of OPTIMIZE and VACUUM do.
"""

from dataclasses import dataclass
from typing import Any

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.delta_protocol import COMMIT_ID, object_of
from ticdc_assets.delta.log_reading import commit_actions, versions_after, versions_of
from ticdc_assets.storage.paths import AnyPath


class CommitError(TicdcError):
    """A commit could not be made, or is not the requested one; the newest cut is unchanged."""

    retriable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """One commit as the table's log has it: the version that it made, and what its writer calls it.

    Attributes:
        commit_id: its id; None if it is foreign.
        changes_rows: whether the commit may change data or the schema.
    """

    version: int
    operation: str
    commit_id: str | None
    changes_rows: bool


def newest_version(table: AnyPath) -> int:
    """Return the newest version in a table's log; -1 if there is none."""
    return max(versions_of(table), default=-1)


def foreign_changes(table: AnyPath, version: int) -> list[LoggedCommit]:
    """Return the foreign commits after `version` that may have changed rows, oldest first."""
    commits = (read_commit(table, number) for number in versions_after(table, version))
    return [item for item in commits if item.changes_rows and item.commit_id is None]


def same_rows_at(table: AnyPath, version: int) -> int | None:
    """Return the newest version if it has the rows of `version`; None if its rows may differ.

    Compactions and vacuums by any program leave rows unchanged.
    """
    newest = None
    for newest in versions_after(table, version - 1):
        if newest > version and read_commit(table, newest).changes_rows:
            return None
    return newest


def read_commit(table: AnyPath, version: int) -> LoggedCommit:
    """Read the log entry of a version; it raises the errors of `reading`."""
    info: dict[str, Any] = {}
    changes = False
    with reading(table):
        actions = commit_actions(table, version)
    for action in actions:
        info = action.get("commitInfo", info)
        for kind in ("add", "remove"):
            if kind in action:
                changes |= action[kind].get("dataChange", True)
        changes |= "metaData" in action or "protocol" in action
    return LoggedCommit(
        version=version,
        operation=str(info.get("operation")),
        commit_id=object_of(info).get(COMMIT_ID),
        changes_rows=changes,
    )
