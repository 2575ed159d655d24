"""Events as tests write them: of `d.t`, without schemas and ids, unless a test says so."""

from typing import Any

from ticdc_assets.model.events import DdlEvent, Image, Op, RowChange


def ddl_event(ts: int, sql: str, *, ddl_type: str | None = None, **more: Any) -> DdlEvent:
    """Return the event of a DDL, of the type that the first word of its text says."""
    fields: dict[str, Any] = {"database": "d", "table": "t", "build_ts_ms": None}
    fields |= {"schema": None, "pre_schema": None, **more}
    word = ddl_type or sql.split()[0].upper()
    return DdlEvent(ddl_type=word, commit_ts=ts, sql=sql, **fields)


def row_event(
    ts: int, *, before: Image | None = None, after: Image | None = None, **more: Any
) -> RowChange:
    """Return the event of an INSERT, UPDATE or DELETE, which its images say."""
    op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
    fields: dict[str, Any] = {"database": "d", "table": "t", "build_ts_ms": None, "table_id": None}
    fields |= {"schema_version": None, **more}
    return RowChange(op=op, commit_ts=ts, before=before, after=after, **fields)
