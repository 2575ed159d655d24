"""The hot path of the Simple protocol in JSON.

In: record batches with a column `value`. Out: the rows of row changes and watermarks, equal to
those of `json_reference.decode`, to the last byte. The reference reads all others: DDL and
bootstraps, which are few, and everything that is refused. The result depends on the records alone.

How it stays equal: both readers use the same table of fields (`message.FIELDS`), and texts
are the strict JSON that `go_json` reads (`tape.token_loops`).
"""

from typing import Final

import numpy as np
import pyarrow as pa

from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.fields import Field, Kind
from ticdc_assets.wire.rows import SourcedRows, row_columns
from ticdc_assets.wire.simple.message import (
    CHECKSUM,
    FIELDS,
    OPS,
    VERSION,
    MessageType,
)
from ticdc_assets.wire.tape.image_loops import Images
from ticdc_assets.wire.tape.reading import (
    ImageLists,
    Rules,
    chosen_of,
    distinct_lists,
    tape_of,
    values_of,
    workspace,
)
from ticdc_assets.wire.tape.texts import object_texts
from ticdc_assets.wire.tape.token_loops import NONE

_TYPES: Final = (*OPS, MessageType.WATERMARK)
_WATERMARK: Final = _TYPES.index(MessageType.WATERMARK)
_VERSION: Final = Field("version", Kind.INTEGER)
_RULES: Final = Rules.of(*((_VERSION, *FIELDS[kind]) for kind in _TYPES), besides=("type",))
_CHECKSUM: Final = Rules.of(CHECKSUM)


def decode_exact(batch: pa.RecordBatch) -> SourcedRows:
    """Return the rows of those records of `batch` that are row changes and watermarks."""
    tape, members = tape_of(values_of(batch), _RULES, workspace("value"))
    types = tape.words(members[0], _TYPES)
    checked = tape.checked(members, types, _RULES)
    good = checked.good & (checked.values["version"] == VERSION)
    checksums = tape.checked_inside(checked, "checksum", np.zeros_like(types), _CHECKSUM)
    good &= checksums.good | (checked.values["checksum"] < 0)

    lists = ImageLists(tape)
    images: dict[str, Images] = {}
    for name in ("old", "data"):
        objects = np.where(good, checked.values[name], NONE)
        images[name] = listed = lists.members(objects, np.zeros(len(good), np.int32))
        good &= listed.good & distinct_lists(lists, listed)
    ways = np.full(len(lists.columns), Spelling.ZONED, np.uint8)
    (before_texts, _), (after_texts, _) = lists.written(list(images.values()), ways)
    for listed in images.values():
        good &= listed.good

    chosen = np.flatnonzero(good)
    rows = types[chosen] != _WATERMARK
    columns = row_columns(
        rows,
        op=types[chosen],
        commit_ts=checked.numbers("commitTs", chosen),
        build_ts_ms=checked.numbers("buildTs", chosen),
        database=tape.strings(checked.of("database", chosen)),
        table=tape.strings(checked.of("table", chosen)),
        table_id=checked.numbers("tableID", chosen),
        schema_version=checked.numbers("schemaVersion", chosen),
        before=chosen_of(before_texts, chosen),
        after=chosen_of(after_texts, chosen),
        handle_key_only=tape.is_true(checked.of("handleKeyOnly", chosen)),
        claim_check_location=tape.filled_strings(checked.of("claimCheckLocation", chosen)),
        checksum=object_texts(
            checked.of("checksum", chosen) >= 0,
            {
                field.name: pa.array(tape.is_true(column) if field.kind is Kind.BOOLEAN else column)
                for field in CHECKSUM
                for column in [checksums.of(field.name, chosen)]
            },
        ),
    )
    return SourcedRows.of(batch, chosen, columns)
