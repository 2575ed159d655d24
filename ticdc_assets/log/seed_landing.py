"""Landing seeds: the rows of exports, verbatim, into `snapshot_rows`.

In: the files of an export's tables. Out: one append to `snapshot_rows`: each row of a file,
verbatim, with its file, its line and the TSO of the export. If a file cannot be read to its end,
one more row has the line and the reason. Large files are split at the ends of rows, and workers
read the parts (`executing`). The append carries the number of the seed as transaction identifier,
so running it again is safe.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from ticdc_assets.base.names import counted
from ticdc_assets.base.progress import tell
from ticdc_assets.delta.appending import DISTINCT, TableLayout, append_files
from ticdc_assets.delta.control import LOG_RETENTION
from ticdc_assets.delta.files import FileLayout, WrittenFile, write_rows
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.row_schema import filled, typed
from ticdc_assets.log.seeds import APPLICATION, Seed
from ticdc_assets.source.exports.folder import ExportFile, opened_folder
from ticdc_assets.spark.cluster import require_before_landing
from ticdc_assets.spark.executing import Executor, executor
from ticdc_assets.storage.lake_paths import LakePaths

if TYPE_CHECKING:
    from ticdc_assets.source.exports.rows import FilePart

SNAPSHOT_SCHEMA = pa.schema(
    [
        *typed(int, "batch"),
        *typed(datetime, "landed_at"),
        *typed(str, "database", "table"),
        *typed(int, "tso"),
        *typed(str, "file"),
        *typed(int, "line"),
        ("index", pa.int32()),
        *typed(str, "format", "columns", "problem"),
        ("row", pa.binary()),
    ]
)
"""`snapshot_rows`: one row for each row of an export's file; `batch` is the seed's number.

`columns` has the columns that its file names, as JSON; null if it names none. `index` distinguishes
rows that begin in one line. A row with a `problem` means that its file could not be read from its
line on.
"""

_BOUNDED = ("batch", "landed_at", "database", "table", "tso", "file", "line")
_PART_BYTES = 64 << 20
_STEP_BYTES = 256 << 20
"""How much of an export a worker lands from one message of progress to the next."""

_EXPANSION = 4
"""The approximate bytes that a compressed byte of an export becomes."""


_Part: TypeAlias = "tuple[int, FilePart]"
"""The number of a table among the seeded ones, and a part of a file of it."""


@dataclass(slots=True, kw_only=True)
class _Landed:
    files: list[WrittenFile] = field(default_factory=list[WrittenFile])
    rows: int = 0
    unterminated: list[str] = field(default_factory=list[str])


def land_seed(
    lake: Lake, seeds: Sequence[Seed], files: Sequence[Sequence[ExportFile]]
) -> tuple[str, ...]:
    """Land the rows of tables that are seeded together: they share number, TSO and folder.

    The CSV files are returned whose last row has no line terminator: they may have been cut off.
    """
    first = seeds[0]
    size = sum(
        file.size * (_EXPANSION if file.compression else 1) for group in files for file in group
    )
    require_before_landing(lake.spark, lake.paths.snapshot_rows)
    runs_on = executor(lake.spark, lake.paths.snapshot_rows, "landing an export", rows=0, size=size)
    parts = _parts(runs_on, seeds, files)
    total = _Landed()
    done = 0
    # In steps, so that people see the progress.
    step = max(1, runs_on.workers) * max(1, _STEP_BYTES // _PART_BYTES)
    for begin in range(0, len(parts), step):
        some = parts[begin : begin + step]
        for landed in runs_on.run(_landing(lake.paths, seeds), some, tasks=runs_on.workers):
            total.files += landed.files
            total.rows += landed.rows
            total.unterminated += landed.unterminated
        done += len(some)
        tell(
            f"landed {counted(total.rows, 'row')} of the export, {done} of "
            f"{counted(len(parts), 'part')} of its files"
        )
    append_files(
        lake.paths.snapshot_rows,
        total.files,
        SNAPSHOT_SCHEMA,
        app_id=APPLICATION,
        version=first.seed,
        metadata={"seed": first.seed},
        layout=TableLayout(configuration={"delta.logRetentionDuration": LOG_RETENTION}),
    )
    return tuple(sorted(total.unterminated))


def _parts(
    runs_on: Executor, seeds: Sequence[Seed], files: Sequence[Sequence[ExportFile]]
) -> list[_Part]:
    """Split files into parts; workers search large files for the ends of rows."""
    # Its compiled loops take seconds, and Dagster loads this module for a schema.
    from ticdc_assets.source.exports.rows import split_file

    folder = seeds[0].folder
    dialects = [seed.dialect for seed in seeds]
    wanted = [(number, file) for number, group in enumerate(files) for file in group]

    def split(some: Iterable[tuple[int, ExportFile]]) -> Iterator[list[_Part]]:
        filesystem, root = opened_folder(folder)
        for number, file in some:
            parts = split_file(filesystem, root, file, dialects[number], most=_PART_BYTES)
            yield [(number, part) for part in parts]

    by_file = runs_on.run(split, wanted, tasks=len(wanted))
    return [part for parts in by_file for part in parts]


def _landing(
    paths: LakePaths, seeds: Sequence[Seed]
) -> Callable[[Iterable[_Part]], Iterator[_Landed]]:
    from ticdc_assets.source.exports.rows import ends_with_a_row, read_rows

    table, folder = paths.snapshot_rows, seeds[0].folder
    layout = FileLayout(schema=SNAPSHOT_SCHEMA, bounded=_BOUNDED, distinct=DISTINCT)

    def placed(rows: pa.RecordBatch, seed: Seed) -> pa.Table:
        values = {
            **{name: rows[name] for name in SNAPSHOT_SCHEMA.names if name in rows.schema.names},
            "batch": seed.seed,
            "landed_at": seed.seeded_at,
            "database": seed.database,
            "table": seed.table,
            "tso": seed.tso,
        }
        return filled(SNAPSHOT_SCHEMA, rows.num_rows, values)

    def land(parts: Iterable[_Part]) -> Iterator[_Landed]:
        filesystem, root = opened_folder(folder)
        landed = _Landed()

        def tables() -> Iterator[pa.Table]:
            for number, part in parts:
                seed = seeds[number]
                for rows in read_rows(filesystem, root, part, seed.dialect):
                    landed.rows += rows["problem"].null_count
                    yield placed(rows, seed)
                is_last = part.end is None
                if is_last and not ends_with_a_row(filesystem, root, part.file, seed.dialect):
                    landed.unterminated.append(part.file.path)

        landed.files += write_rows(table, layout, tables())
        yield landed

    return land
