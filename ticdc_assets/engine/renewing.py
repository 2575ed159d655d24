"""Renewing: a new log for a mirror or a history whose log is lost.

In: the folder of a table and the newest version that a cut published of it. Out: an empty table in
that folder, whose first version is the number behind: cuts name versions, so no number may ever
mean other rows than it meant. The table begins with a checkpoint, as one does whose log was cleaned
up; its older versions cannot be read any more, and say so.

What was in the log is set aside under a name that readers and VACUUM pass over. Data files stay
until a VACUUM finds that nothing needs them.

Why running it again is safe: a run killed in between leaves a table without a log, or an empty
one at a version that no cut names; either is made again by the next sync.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema

from ticdc_assets.engine.control import open_table
from ticdc_assets.engine.delta_files import LAST_CHECKPOINT, LOG
from ticdc_assets.errors import LakeDamagedError

_NEW = "_new_log"
_ASIDE = "_damaged_log"


def renew_if_lost(table: Path, published: int, configuration: Mapping[str, str]) -> None:
    """Give a table a new log if its own is broken or does not reach what is published.

    Args:
        table: its folder.
        published: the newest version that a cut names.
        configuration: table properties of the new table.
    """
    try:
        there = open_table(table)
        if there is not None and there.version() >= published:
            return
    except LakeDamagedError:
        pass
    new = table / _NEW
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    # It is overwritten with its schema at once; a table cannot be without any column.
    schema = Schema.from_arrow(pa.schema([("none", pa.int64())]))
    DeltaTable.create(str(new), schema, configuration=dict(configuration)).create_checkpoint()
    first = published + 1
    log = new / LOG
    for path in list(log.glob(f"{0:020}.*")):
        path.rename(log / path.name.replace(f"{0:020}", f"{first:020}", 1))
    hint = json.loads((log / LAST_CHECKPOINT).read_text(encoding="utf-8"))
    # A checksum would be of the number before.
    kept = {name: hint[name] for name in ("size",) if name in hint}
    (log / LAST_CHECKPOINT).write_text(json.dumps({"version": first} | kept), encoding="utf-8")
    if (table / LOG).exists():
        number = sum(True for _ in table.glob(f"{_ASIDE}_*"))
        (table / LOG).rename(table / f"{_ASIDE}_{number}")
    log.rename(table / LOG)
    new.rmdir()
