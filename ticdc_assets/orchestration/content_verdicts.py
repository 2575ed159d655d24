"""Verdicts that need files or mirrors: damage, keys, the rebuild.

In: values. Out: verdicts. Nothing is read or stored here. These verdicts change only after writes.
"""

from collections.abc import Mapping, Sequence

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.observe.wording import LISTED, listed
from ticdc_assets.orchestration.metadata import Metadata, tso_metadata
from ticdc_assets.orchestration.table_schemas import table_metadata, table_of
from ticdc_assets.orchestration.verdicts import CheckVerdict
from ticdc_assets.repair.diffing import DiffedTable, SourceDifference
from ticdc_assets.repair.seeding import SeedBalance
from ticdc_assets.repair.verifying import KeyCounts, RepeatedKeys, Verification, VerifiedMirror

# Damage -----------------------------------------------------------------------------------------


def judge_damage(error: TicdcError | None) -> CheckVerdict:
    """Judge whether the steering tables can be read, from the error of reading them, if any."""
    if error is None:
        return CheckVerdict(Level.OK, "The steering tables can be read.")
    return CheckVerdict(Level.FAIL, f"{error}.")


# Keys -------------------------------------------------------------------------------------------


def judge_keys(counts: KeyCounts | None) -> CheckVerdict:
    """Judge whether every key is once in every mirror (None: there is no cut yet)."""
    if counts is None:
        return CheckVerdict(Level.OK, "No cut was published yet; there is no key.")
    metadata: Metadata = {
        "cut": counts.cut,
        **tso_metadata("applied_ts", counts.tso),
        "mirrors": counts.mirrors,
        "mirrors_without_key": counts.without_key,
        "rows": counts.rows,
        "repeated_keys": sum(item.keys for item in counts.repeated),
        **table_metadata(
            "keys",
            "database string, table string, key string, rows int",
            [
                (item.database, item.table, _key_of(key), rows)
                for item in counts.repeated[:LISTED]
                for key, rows in item.examples
            ],
        ),
    }
    if not counts.repeated:
        without = (
            f"; {counts.without_key} without a key cannot be checked" if counts.without_key else ""
        )
        return CheckVerdict(
            Level.OK,
            f"Every mirror has each key once: {counted(counts.rows, 'row')} of "
            f"{counted(counts.mirrors, 'mirror')}{without}.",
            metadata,
        )
    return CheckVerdict(
        Level.FAIL,
        f"Repeated keys: {listed(map(_repeated_text, counts.repeated), '; ')}. "
        "Materialise these mirrors to fold them again from the change log, and "
        "check whether another program writes to their Delta tables.",
        metadata,
    )


def _repeated_text(item: RepeatedKeys) -> str:
    keys = ", ".join(f"({_key_of(key)}) {rows} times" for key, rows in item.examples)
    more = f" and {item.keys - len(item.examples)} more" if item.keys > len(item.examples) else ""
    return f"{joined_name(item.database, item.table)}: {keys}{more}"


def _key_of(key: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in key.items())


# The rebuild ------------------------------------------------------------------------------------


def judge_rebuild(proof: Verification | None) -> CheckVerdict:
    """Judge whether the mirrors are what the landed records make (None: there is no cut yet).

    It has keys and names of columns, but no values of other columns: Dagster keeps its records
    forever, and `ticdc-assets verify` shows the values.
    """
    if proof is None:
        return CheckVerdict(Level.OK, "No cut was published yet; nothing to rebuild.")
    metadata: Metadata = {
        "cut": proof.cut,
        **tso_metadata("applied_ts", proof.tso),
        "proof_from": "the first record" if proof.proof_from is None else str(proof.proof_from),
        "mirrors": len(proof.mirrors),
        "different": sum(not item.is_sound for item in proof.mirrors),
        "records": proof.records,
        "seconds": proof.seconds,
    }
    notes = proof.notes()
    if notes:
        metadata["notes"] = "\n".join(notes)
    if proof.equal:
        return CheckVerdict(Level.OK, f"{proof.summary}.", metadata)
    unsound = [item for item in proof.mirrors if not item.is_sound]
    metadata["tables"] = table_of(
        "database string, table string, found string, content_hash string, rebuilt_hash string",
        [
            (
                item.database,
                item.table,
                "; ".join(item.findings()),
                "" if item.mirror is None else item.mirror.content_hash,
                "" if item.rebuilt is None else item.rebuilt.content_hash,
            )
            for item in unsound
        ],
    )
    rows = [row for item in unsound for row in _rows_of(item)]
    metadata |= table_metadata("rows", _ROW_COLUMNS, rows)
    texts = [*proof.differences, *map(_text_of, unsound)]
    return CheckVerdict(
        Level.FAIL,
        f"{proof.summary}: {listed(texts, '; ')}. `ticdc-assets verify {proof.changefeed}` "
        "shows the values; materialise the mirrors that differ to fold them again from the "
        "change log.",
        metadata,
    )


def _text_of(mirror: VerifiedMirror) -> str:
    """Return how a mirror differs, and its first row that differs."""
    text = f"{joined_name(mirror.database, mirror.table)}: {'; '.join(mirror.findings())}"
    for _, _, row, key, columns in _rows_of(mirror)[:1]:
        text += f" (first {row}: {key}{f' in {columns}' if columns else ''})"
    return text


_ROW_COLUMNS = "database string, table string, row string, key string, columns string"


def _rows_of(table: VerifiedMirror | DiffedTable) -> list[tuple[str, str, str, str, str]]:
    """Return the rows of a table that differ, without values, by `_ROW_COLUMNS`."""
    return [
        (
            table.database,
            table.table,
            str(row.finding),
            _key_of(row.key),
            ", ".join(column.name for column in row.columns),
        )
        for row in table.examples
    ]


# Exports ----------------------------------------------------------------------------------------


def judge_seeds(seeds: Sequence[SeedBalance]) -> CheckVerdict:
    """Judge whether all landed rows of exports were seeded or are in quarantine."""
    if not seeds:
        return CheckVerdict(Level.OK, "No table was seeded from an export.")
    lost = [item for item in seeds if item.lost or (item.quarantined and not item.rows)]
    quarantined = [item for item in seeds if item.quarantined]
    metadata: Metadata = {
        "tables": len(seeds),
        "landed_rows": sum(item.landed for item in seeds),
        "seeded_rows": sum(item.rows for item in seeds),
        "quarantined": sum(item.quarantined for item in seeds),
        "seeds": table_of(
            "database string, table string, seed int, landed int, rows int, quarantined int", seeds
        ),
    }
    if not lost and not quarantined:
        rows = sum(item.rows for item in seeds)
        return CheckVerdict(
            Level.OK,
            f"All that landed is seeded: {counted(rows, 'row')} of {counted(len(seeds), 'table')}.",
            metadata,
        )
    texts = [
        f"{joined_name(item.database, item.table)}: {item.sentence}"
        for item in (*lost, *quarantined)
    ]
    return CheckVerdict(
        Level.FAIL if lost else Level.WARN,
        f"{listed(dict.fromkeys(texts), '; ')}.",
        metadata,
    )


def judge_source(difference: SourceDifference) -> CheckVerdict:
    """Judge whether the mirrors equal an export of the upstream."""
    differing = [item for item in difference.tables if not item.equal]
    metadata: Metadata = {
        **tso_metadata("export_ts", difference.tso),
        "tables": len(difference.tables),
        "differing_tables": len(differing),
        **table_metadata(
            "rows", _ROW_COLUMNS, [row for item in differing[:LISTED] for row in _rows_of(item)]
        ),
    }
    texts = (f"{joined_name(item.database, item.table)}: {item.sentence}" for item in differing)
    return CheckVerdict(
        Level.FAIL if differing else Level.OK,
        f"{difference.summary}. {listed(texts, '; ')}".rstrip(),
        metadata,
    )
