"""Renewing: a new log for a mirror or a history whose log is lost.

In: a table and its newest version in a published cut. Out: an empty table in that folder, whose
first version is the next number: cuts name versions, so a number must never mean two sets of rows.
The table begins with a checkpoint, like a table whose log was cleaned up.

The old log is moved to a name that readers and VACUUM ignore. A run killed in between leaves a
table without a log, or an empty one at a version that no cut names; the next sync makes either
again.
"""

import json
from collections.abc import Mapping
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable, Schema

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.fencing import require_lease
from ticdc_assets.delta.log_reading import LAST_CHECKPOINT, existing_state, forget
from ticdc_assets.storage.paths import (
    LOG,
    AnyPath,
    copy,
    delta_options,
    move,
    names_in,
    remove_tree,
)

_NEW = "_new_log"
_ASIDE = "_damaged_log"


def renew_if_lost(table: AnyPath, published: int, configuration: Mapping[str, str]) -> None:
    """Give a table a new log if its log is broken or ends before the newest published version."""
    with suppress(LakeDamagedError), reading(table):
        if existing_state(table, is_whole=True).version >= published:
            return
    new = table / _NEW
    remove_tree(new, quietly=True)
    new.mkdir(parents=True)
    # The table gets its schema at once; a table needs a column.
    schema = Schema.from_arrow(pa.schema([("none", pa.int64())]))
    DeltaTable.create(
        str(new), schema, configuration=dict(configuration), storage_options=delta_options(new)
    ).create_checkpoint()
    first = published + 1
    log = new / LOG
    for name in names_in(log):
        if name.startswith(zero := f"{0:020}"):
            copy(log / name, log / name.replace(zero, f"{first:020}", 1))
            (log / name).unlink()
    hint = json.loads((log / LAST_CHECKPOINT).read_text(encoding="utf-8"))
    # The checksum would belong to the number before.
    size = {name: hint[name] for name in ("size",) if name in hint}
    (log / LAST_CHECKPOINT).write_text(json.dumps({"version": first} | size), encoding="utf-8")
    require_lease(table)
    if (table / LOG).exists():
        number = sum(name.startswith(f"{_ASIDE}_") for name in names_in(table))
        move(table / LOG, table / f"{_ASIDE}_{number}")
    move(log, table / LOG)
    forget(table)
    remove_tree(new, quietly=True)
