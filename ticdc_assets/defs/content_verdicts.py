"""Judging what the tables hold: quarantine, mirrors, checksums, schemas, keys, the rebuild.

Values in, verdicts out; nothing is read here and nothing kept. These verdicts change only when
something was written.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from ticdc_assets.defs.metadata import Metadata, tso_metadata
from ticdc_assets.defs.table_schemas import table_of_records
from ticdc_assets.defs.verdicts import LISTED, Verdict, listed
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.lake.checksums import Agreement, Checksums
from ticdc_assets.lake.cuts import Cut, MirrorCut
from ticdc_assets.lake.uniqueness import KeyCounts, RepeatedKeys
from ticdc_assets.lake.verifying import Verification, VerifiedMirror
from ticdc_assets.schemas import ColumnSchema, TableSchema, schema_from_json
from ticdc_assets.tso import to_datetime

SEEN_UNTIL = "seen_until"
"""Metadata of an evaluation: up to which moment of quarantining it has looked."""


# Quarantine -------------------------------------------------------------------------------------


def judge_damage(damages: Sequence[LakeDamagedError]) -> Verdict:
    """Judge whether all tables of a changefeed can be read."""
    if not damages:
        return Verdict(passed=True, description="No table is broken.")
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=listed((f"{error}." for error in damages), " "),
        metadata={"damaged": dg.MetadataValue.int(len(damages))},
    )


def judge_quarantine(
    changefeed: str, rows: list[dict[str, Any]], seen_until: datetime | None
) -> Verdict:
    """Judge whether open rows came since `seen_until` (None: the check never looked)."""
    new = [row for row in rows if seen_until is None or row["quarantined_at"] > seen_until]
    newest = max((row["quarantined_at"] for row in rows), default=None)
    reasons: dict[tuple[str, str], int] = {}
    for row in rows:
        group = (row["stage"], row["reason"])
        reasons[group] = reasons.get(group, 0) + 1
    metadata: Metadata = {
        "open": dg.MetadataValue.int(len(rows)),
        "new": dg.MetadataValue.int(len(new)),
        "reasons": table_of_records(
            [
                {"stage": stage, "reason": reason, "open": count}
                for (stage, reason), count in sorted(
                    reasons.items(), key=lambda item: (-item[1], item[0])
                )
            ],
            {"stage": "string", "reason": "string", "open": "int"},
        ),
        SEEN_UNTIL: dg.MetadataValue.text(_later(newest, seen_until)),
    }
    if new:
        counts: dict[str, int] = {}
        for row in new:
            counts[row["reason"]] = counts.get(row["reason"], 0) + 1
        told = listed(f"{reason} {count}" for reason, count in sorted(counts.items()))
        return Verdict(
            passed=False,
            description=(
                f"{len(new)} came into quarantine ({told}); {len(rows)} are open in all. Look at "
                f"them with `ticdc-assets quarantine {changefeed}`; after a fix run "
                f"{changefeed}_redrive."
            ),
            metadata=metadata,
        )
    remaining = f"; {len(rows)} from before are still open" if rows else ", and nothing is open"
    return Verdict(
        passed=True, description=f"Nothing new in quarantine{remaining}.", metadata=metadata
    )


def _later(newest: datetime | None, seen_until: datetime | None) -> str:
    moments = [moment for moment in (newest, seen_until) if moment is not None]
    return max(moments).isoformat() if moments else ""


# Completeness -----------------------------------------------------------------------------------


def judge_mirrors(changefeed: str, cut: Cut | None) -> Verdict:
    """Judge whether the mirrors of the newest cut have everything."""
    if cut is None:
        return Verdict(passed=True, description="No cut was published yet; nothing to look at.")
    incomplete = [
        item for item in cut.mirrors if (item.incomplete or item.marks) and not item.failed
    ]
    unknown = [item for item in cut.held if item.mirror_id is None]
    metadata: Metadata = {
        "mirrors": dg.MetadataValue.int(len(cut.mirrors)),
        "incomplete": dg.MetadataValue.int(sum(item.incomplete for item in cut.mirrors)),
        "failed": dg.MetadataValue.int(len(cut.failed)),
        "marked": dg.MetadataValue.int(sum(bool(item.marks) for item in cut.mirrors)),
        "undecoded_records": dg.MetadataValue.int(cut.quarantined),
        **tso_metadata("applied_ts", cut.tso),
    }
    if cut.failed:
        metadata["failed_mirrors"] = table_of_records(
            [
                {
                    "database": item.database,
                    "table": item.table,
                    "reason": item.reason,
                    "since": item.since.isoformat(timespec="seconds"),
                    "rows_at": "" if item.tso is None else str(item.tso),
                    "waiting": item.waiting,
                }
                for item in cut.failed
            ],
            {
                "database": "string",
                "table": "string",
                "reason": "string",
                "since": "string",
                "rows_at": "string",
                "waiting": "int",
            },
        )
    if incomplete:
        metadata["tables"] = table_of_records(
            [
                {
                    "database": item.database,
                    "table": item.table,
                    "held": item.held,
                    "quarantined": item.quarantined,
                    "marks": ", ".join(item.marks),
                }
                for item in incomplete
            ],
            {
                "database": "string",
                "table": "string",
                "held": "int",
                "quarantined": "int",
                "marks": "string",
            },
        )
    if cut.held:
        metadata["held"] = table_of_records(
            [
                {
                    "database": item.database,
                    "table": item.table,
                    "schema_version": str(item.schema_version),
                    "rows": item.rows,
                    "since": item.since.isoformat(timespec="seconds"),
                    "first_commit": to_datetime(item.min_ts).isoformat(timespec="seconds"),
                }
                for item in cut.held
            ],
            {
                "database": "string",
                "table": "string",
                "schema_version": "string",
                "rows": "int",
                "since": "string",
                "first_commit": "string",
            },
        )
    findings = [
        *(f"failed: {item.sentence}" for item in cut.failed),
        *(f"{item.database}.{item.table} ({_shortcomings(item)})" for item in incomplete),
        *(f"{item.database}.{item.table} ({item.rows} held, no mirror yet)" for item in unknown),
    ]
    if cut.quarantined:
        findings.append(f"{cut.quarantined} records that could not be decoded")
    if not findings:
        return Verdict(
            passed=True,
            description=f"All {len(cut.mirrors)} mirrors have every change up to {cut.moment}.",
            metadata=metadata,
        )
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR if cut.failed else dg.AssetCheckSeverity.WARN,
        description=(
            f"Not complete at {cut.moment}: {listed(findings)}. Held changes wait for their schema "
            "(TiCDC repeats it in bootstraps: see send-bootstrap-interval-in-sec); "
            f"quarantined ones need a fix and {changefeed}_redrive; marks are explained in "
            "docs/limitations.md."
        ),
        metadata=metadata,
    )


def judge_accounts(cut: Cut | None) -> Verdict:
    """Judge whether each row change that the newest cut is the first to have is accounted for."""
    if cut is None:
        return Verdict(passed=True, description="No cut was published yet; nothing to look at.")
    names = ("read", "applied", "waiting", "held", "quarantined", "excluded", "superseded")
    sums = {name: sum(getattr(item, name) for item in cut.accounts) for name in names}
    metadata: Metadata = {name: dg.MetadataValue.int(count) for name, count in sums.items()}
    parts = ", ".join(f"{sums[name]} {name}" for name in names[1:] if sums[name]) or "none"
    if not cut.unaccounted:
        return Verdict(
            passed=True,
            description=f"{sums['read']} row changes were read for {cut.moment}: {parts}.",
            metadata=metadata,
        )
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=(
            f"Row changes are missing at {cut.moment}: "
            f"{listed([item.sentence for item in cut.unaccounted])}. They are in change_log; no "
            "mirror has them. It is a fault of this package or of the messages: report it with "
            "what ticdc-assets decode prints of these records."
        ),
        metadata=metadata,
    )


def _shortcomings(mirror: MirrorCut) -> str:
    parts = [f"{mirror.held} held"] if mirror.held else []
    if mirror.quarantined:
        parts.append(f"{mirror.quarantined} quarantined")
    return ", ".join([*parts, *mirror.marks])


# Checksums --------------------------------------------------------------------------------------


def judge_checksums(checksums: Checksums) -> Verdict:
    """Judge whether the rows are what their checksums say."""
    counts = checksums.counts
    wrong = counts[Agreement.DISAGREES]
    metadata: Metadata = {
        str(agreement): dg.MetadataValue.int(count) for agreement, count in counts.items()
    }
    if not sum(counts.values()):
        return Verdict(
            passed=True, description="The messages carry no row checksums.", metadata=metadata
        )
    said = (
        f"{counts[Agreement.AGREES]} row changes agree with their checksum, {wrong} disagree; of "
        f"{counts[Agreement.UNKNOWN]} nothing can be said, {counts[Agreement.WAITING]} wait for "
        "their schema."
    )
    if not wrong:
        return Verdict(passed=True, description=said, metadata=metadata)
    metadata["examples"] = table_of_records(
        [
            {
                "where": "/".join(
                    str(item[name]) for name in ("topic", "partition", "offset", "index")
                ),
                "database": item["database"],
                "table": item["table"],
                "commit_ts": str(item["commit_ts"]),
            }
            for item in checksums.examples
        ],
        {"where": "string", "database": "string", "table": "string", "commit_ts": "string"},
    )
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=(
            f"{said} Those rows were applied as they were sent: compare them with the source, and "
            "look for TiCDC's own report of a corrupted row."
        ),
        metadata=metadata,
    )


# Schemas ----------------------------------------------------------------------------------------


def judge_conflicts(changefeed: str, conflicts: Iterable[Mapping[str, Any]]) -> Verdict:
    """Judge whether two structures were claimed for one schema version; rows as in the table."""
    rows = sorted(
        conflicts,
        key=lambda row: (row["database"], row["table"], row["schema_version"], row["offset"]),
    )
    metadata: Metadata = {"conflicts": dg.MetadataValue.int(len(rows))}
    if not rows:
        return Verdict(
            passed=True,
            description="Every schema version has one structure.",
            metadata=metadata,
        )
    claims = [(row, _claims(row)) for row in rows]
    names = ("database", "table", "schema_version", "registered", "claimed", "where")
    metadata["claims"] = table_of_records(
        [
            {
                "database": row["database"],
                "table": row["table"],
                "schema_version": str(row["schema_version"]),
                "registered": f"{row['registered_source']}: {registered}",
                "claimed": f"{row['claimed_source']}: {claimed}",
                "where": "/".join(
                    str(row[name]) for name in ("topic", "partition", "offset", "index")
                ),
            }
            for row, (registered, claimed) in claims[:LISTED]
        ],
        dict.fromkeys(names, "string"),
    )
    told = listed(
        (
            f"{row['database']}.{row['table']} at version {row['schema_version']}: "
            f"{row['registered_source']} says {registered}, {row['claimed_source']} says {claimed}"
            for row, (registered, claimed) in claims
        ),
        "; ",
    )
    return Verdict(
        passed=False,
        description=(
            f"{len(rows)} structures were claimed for schema versions that have another one: "
            f"{told}. The registered one is used, so rows written by the other may be in "
            "quarantine, or wrong without notice. Compare with SHOW CREATE TABLE upstream; if the "
            "registered one is wrong, let the changefeed begin before the CREATE of the table, and "
            f"prove the mirrors by {changefeed}_verify."
        ),
        metadata=metadata,
    )


def _claims(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what each of two schemas says where they differ."""
    registered, claimed = (_schema_of(row[side]) for side in ("registered", "claimed"))
    if registered is None or claimed is None:
        return ("a schema" if registered else "no schema", "a schema" if claimed else "no schema")
    ours = {column.name: _column_text(column) for column in registered.columns}
    theirs = {column.name: _column_text(column) for column in claimed.columns}
    names = [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name)]
    if names:
        return tuple(  # pyright: ignore[reportReturnType]  # of two sides
            listed(side.get(name, f"no {name}") for name in names) for side in (ours, theirs)
        )
    if registered.handle_key != claimed.handle_key:
        return (_key_text(registered), _key_text(claimed))
    if list(ours) != list(theirs):
        return (f"the order {listed(ours)}", f"the order {listed(theirs)}")
    return ("other indexes, defaults or ids", "other indexes, defaults or ids")


def _schema_of(text: str | None) -> TableSchema | None:
    return None if text is None else schema_from_json(json.loads(text), "$")


def _column_text(column: ColumnSchema) -> str:
    size = f"({column.length},{column.decimal})" if column.length or column.decimal else ""
    labels = f"({listed(column.elements)})" if column.elements else ""
    words = [f"{column.name} {column.mysql_type}{labels or size}"]
    words += ["unsigned"] if column.unsigned else []
    words += [] if column.nullable else ["not null"]
    words += [column.collation] if column.collation else []
    return " ".join(words)


def _key_text(schema: TableSchema) -> str:
    return f"the key {listed(schema.handle_key)}" if schema.handle_key else "no key"


# Keys -------------------------------------------------------------------------------------------


def judge_keys(found: KeyCounts | None) -> Verdict:
    """Judge whether every key is once in every mirror (None: there is no cut yet)."""
    if found is None:
        return Verdict(passed=True, description="No cut was published yet; there is no key.")
    metadata: Metadata = {
        "cut": dg.MetadataValue.int(found.cut),
        **tso_metadata("applied_ts", found.tso),
        "mirrors": dg.MetadataValue.int(found.mirrors),
        "mirrors_without_key": dg.MetadataValue.int(found.without_key),
        "rows": dg.MetadataValue.int(found.rows),
        "repeated_keys": dg.MetadataValue.int(sum(item.keys for item in found.repeated)),
    }
    if not found.repeated:
        without = (
            f"; {found.without_key} without a key cannot be checked" if found.without_key else ""
        )
        return Verdict(
            passed=True,
            description=(
                f"Every key is once in its mirror: {found.rows} rows of {found.mirrors} "
                f"mirrors{without}."
            ),
            metadata=metadata,
        )
    metadata["keys"] = table_of_records(
        [
            {
                "database": item.database,
                "table": item.table,
                "key": _key_of(example.key),
                "rows": example.rows,
            }
            for item in found.repeated[:LISTED]
            for example in item.examples
        ],
        {"database": "string", "table": "string", "key": "string", "rows": "int"},
    )
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=(
            f"Keys stand more than once: {listed(map(_repeated_text, found.repeated), '; ')}. "
            "Materialise these partitions of mirrors to fold them again from the change log, and "
            "look whether anything else writes to their Delta tables."
        ),
        metadata=metadata,
    )


def _repeated_text(item: RepeatedKeys) -> str:
    keys = ", ".join(f"({_key_of(example.key)}) {example.rows} times" for example in item.examples)
    more = f" and {item.keys - len(item.examples)} more" if item.keys > len(item.examples) else ""
    return f"{item.database}.{item.table}: {keys}{more}"


def _key_of(key: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in key.items())


# The rebuild ------------------------------------------------------------------------------------


def judge_rebuild(found: Verification | None) -> Verdict:
    """Judge whether the mirrors are what the landed records make (None: there is no cut yet).

    Keys and names of columns are told, the values of other columns are not: what Dagster records
    stays, and `ticdc-assets verify` shows them.
    """
    if found is None:
        return Verdict(passed=True, description="No cut was published yet; nothing to rebuild.")
    metadata: Metadata = {
        "cut": dg.MetadataValue.int(found.cut),
        **tso_metadata("applied_ts", found.tso),
        "proof_from": dg.MetadataValue.text(
            "the first record" if found.proof_from is None else str(found.proof_from)
        ),
        "mirrors": dg.MetadataValue.int(len(found.mirrors)),
        "different": dg.MetadataValue.int(sum(not item.is_sound for item in found.mirrors)),
        "records": dg.MetadataValue.int(found.records),
        "seconds": dg.MetadataValue.float(found.seconds),
    }
    notes = found.notes()
    if notes:
        metadata["notes"] = dg.MetadataValue.text("\n".join(notes))
    if found.equal:
        return Verdict(passed=True, description=f"{found.summary}.", metadata=metadata)
    unsound = [item for item in found.mirrors if not item.is_sound]
    metadata["tables"] = table_of_records(
        [
            {
                "database": item.database,
                "table": item.table,
                "found": "; ".join(item.findings()),
                "content_hash": "" if item.mirror is None else item.mirror.content_hash,
                "rebuilt_hash": "" if item.rebuilt is None else item.rebuilt.content_hash,
            }
            for item in unsound
        ],
        dict.fromkeys(("database", "table", "found", "content_hash", "rebuilt_hash"), "string"),
    )
    rows = [record for item in unsound for record in _row_records(item)]
    if rows:
        names = ("database", "table", "row", "key", "columns")
        metadata["rows"] = table_of_records(rows, dict.fromkeys(names, "string"))
    told = [*found.differences, *map(_told, unsound)]
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=(
            f"{found.summary}: {listed(told, '; ')}. `ticdc-assets verify {found.changefeed}` "
            "shows the values; materialise the mirrors that differ to fold them again from the "
            "change log."
        ),
        metadata=metadata,
    )


def _told(mirror: VerifiedMirror) -> str:
    """Return what is the matter with a mirror, and with its first row that differs."""
    text = f"{mirror.database}.{mirror.table}: {'; '.join(mirror.findings())}"
    for record in _row_records(mirror)[:1]:
        columns = f" in {record['columns']}" if record["columns"] else ""
        text += f" (first {record['row']}: {record['key']}{columns})"
    return text


def _row_records(mirror: VerifiedMirror) -> list[dict[str, str]]:
    return [
        {
            "database": mirror.database,
            "table": mirror.table,
            "row": str(row.finding),
            "key": _key_of(row.key),
            "columns": ", ".join(item.name for item in row.columns),
        }
        for row in mirror.examples
    ]
