"""Rows of a history: from changes and older versions to versions, over Arrow batches.

In: Arrow batches of the change log, or of an older history. Out: effects (one row a put or delete,
typed as the history's columns), and of these, sorted by key and sequence, the versions. All three
are functions over batches, so they run in this process for a few rows and in Spark's workers for
many. The meaning is `changelog.history_changes`; `changelog.history_fold` is the reference.

A version's columns go by numbers here (`c0`, `c1`, ...), because a table's may have any name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from ticdc_assets.changelog.history_changes import (
    HistoryResolver,
    KeptText,
    VersionCarrier,
    VersionEvent,
    first_cut_after,
    surely_given,
    texts_at,
)
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan
from ticdc_assets.changelog.resolve import hands_over
from ticdc_assets.changelog.sequence import rank_of
from ticdc_assets.errors import InputError
from ticdc_assets.events import Op
from ticdc_assets.lake.effects import EXTRA_TYPE, SEQUENCE_FIELDS, SEQUENCE_TYPE
from ticdc_assets.lake.mirror_rows import PARTIAL, ArrowMap, MirrorLayout, canonical_rows, free_name
from ticdc_assets.mysql_types import arrow_type
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.schemas import TableSchema
from ticdc_assets.values import UNFIT, typed_array, typed_of
from ticdc_assets.wire.rows import image_from_json


@dataclass(frozen=True, kw_only=True)
class HistoryLayout:
    """The columns of a history's Delta table.

    The upstream columns come first, by their own names; then ours, whose names get underscores at
    their end until they collide with none upstream.
    """

    schema: TableSchema

    @cached_property
    def valid_from(self) -> str:
        """Name of the column with the first cut that has the version."""
        return free_name("_ticdc_valid_from", self.schema)

    @cached_property
    def valid_to(self) -> str:
        """Name of the column with the first cut that has the version no longer."""
        return free_name("_ticdc_valid_to", self.schema)

    @cached_property
    def op(self) -> str:
        """Name of the column that says how the version came."""
        return free_name("_ticdc_op", self.schema)

    @cached_property
    def ended_by(self) -> str:
        """Name of the column that says how the version ended."""
        return free_name("_ticdc_ended_by", self.schema)

    @cached_property
    def deleted_at(self) -> str:
        """Name, in the table with deleted rows, of the column that says since when one is gone."""
        return free_name("_ticdc_deleted_at", self.schema)

    @cached_property
    def newest(self) -> str:
        """Name of a column that numbers the versions of a key, newest first."""
        return free_name("_ticdc_newest", self.schema)

    @cached_property
    def extra(self) -> str:
        """Name of the map column with the exact text of what typed columns cannot hold."""
        return MirrorLayout(schema=self.schema).extra

    @property
    def own(self) -> list[str]:
        """Our columns, in order."""
        return [self.valid_from, self.valid_to, self.op, self.ended_by, self.extra]

    @property
    def names(self) -> list[str]:
        """All column names, in order."""
        return [*(column.name for column in self.schema.columns), *self.own]

    @property
    def places(self) -> list[str]:
        """Where in a version each of `names` is."""
        return [*column_places(self.schema), *_OWN]


_OWN = ("valid_from", "valid_to", "op", "ended_by", "extra")


def column_places(schema: TableSchema) -> list[str]:
    """Return where in a version the table's columns are."""
    return [f"c{number}" for number in range(len(schema.columns))]


def version_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of versions.

    A row without `valid_from` is not a version: a change that could not be read, or with `is_head`
    the end of a version that is not among these (see `fold_versions`).
    """
    return pa.schema(
        [
            *_typed_fields(schema),
            ("valid_from", pa.int64()),
            ("valid_to", pa.int64()),
            ("op", pa.string()),
            ("ended_by", pa.string()),
            ("extra", EXTRA_TYPE),
            ("is_head", pa.bool_()),
            ("partial_ts", pa.string()),
        ]
    )


_KEPT_TYPE = pa.list_(
    pa.struct([("ddl_ts", pa.int64()), ("column", pa.string()), ("text", pa.string())])
)
"""Arrow type of `HistoryChange.kept`."""


def history_effect_schema(schema: TableSchema) -> pa.Schema:
    """Return the Arrow schema of effects on a history."""
    return pa.schema(
        [
            ("key", pa.string()),
            *SEQUENCE_TYPE,
            ("op", pa.string()),
            ("is_delete", pa.bool_()),
            ("is_partial", pa.bool_()),
            # Of a version that has ended already.
            ("valid_to", pa.int64()),
            ("ended_by", pa.string()),
            # Of one that DDL ends if nothing does before.
            ("ends_at", pa.int64()),
            ("removed_by", pa.string()),
            ("kept", _KEPT_TYPE),
            *_typed_fields(schema),
            ("extra", EXTRA_TYPE),
        ]
    )


def _typed_fields(schema: TableSchema) -> list[tuple[str, pa.DataType]]:
    return [
        (place, arrow_type(column))
        for place, column in zip(column_places(schema), schema.columns, strict=True)
    ]


# Effects ----------------------------------------------------------------------------------------


def history_effects(plan: MirrorPlan, timezone: str, only_key: str | None = None) -> ArrowMap:
    """Return the function from change log batches to effects on the history of `plan`'s table.

    Args:
        plan: the plan.
        timezone: the changefeed's time zone (IANA name).
        only_key: leave out rows of other keys, if set.
    """
    plan = _light(plan)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        resolver = HistoryResolver(plan, timezone)
        build = _EffectBuilder(plan.schema, timezone).build
        for batch in batches:
            effects = [
                effect
                for row in batch.to_pylist()
                for effect in _effects_of(resolver, row)
                if only_key is None or effect["key"] == only_key
            ]
            yield build(effects)

    return convert


def _light(plan: MirrorPlan) -> MirrorPlan:
    """Return the plan without what came before it: no worker needs that, and it may be large."""
    return replace(plan, handover=None, earlier=None)


def _effects_of(resolver: HistoryResolver, row: dict[str, Any]) -> list[dict[str, Any]]:
    before, after = row["before"], row["after"]
    place = {name: row[name] for name in SEQUENCE_FIELDS if name != "rank"}
    try:
        changes = resolver.resolve(
            Op(row["op"]),
            row["schema_version"],
            commit_ts=row["commit_ts"],
            before=None if before is None else image_from_json(before),
            after=None if after is None else image_from_json(after),
            partial=bool(row["handle_key_only"]),
        )
    except InputError:
        return [_unread(place)]
    return [
        {
            **place,
            "key": "=" + change.key,
            "rank": rank_of(is_delete=change.is_delete, es_only=bool(row["es_only"])),
            "op": change.op,
            "is_delete": change.is_delete,
            "is_partial": change.partial,
            "ends_at": change.ends_at,
            "removed_by": change.ended_by,
            "values": change.values,
            "lost": change.lost,
            "kept": _kept_items(change.kept),
            "partial_ts": str(row["commit_ts"]) if change.partial else None,
        }
        for change in changes
    ]


def _kept_items(kept: tuple[KeptText, ...]) -> list[dict[str, Any]] | None:
    names = _KEPT_TYPE.value_type.names
    return [dict(zip(names, item, strict=True)) for item in kept] or None


def _unread(place: dict[str, Any]) -> dict[str, Any]:
    """Return the effect that tells of a change or version that does not fit."""
    return {**place, "key": "!", "rank": 0, "is_delete": False, "values": {}}


_NOWHERE = {"commit_ts": 0, "rank": -1, "topic": "", "partition": -1, "offset": -1, "index": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """How versions go on to a plan.

    Attributes:
        schema: the schema they have.
        plan: the plan they go on to.
        timezone: the changefeed's time zone (IANA name).
        since_ts: partition DDL below it has ended its versions already.
        part: the part by which their rows are handed over, if they are.
        ends: what ends the versions whose row is not handed over; None if all go on.
        begins: how rows of another table begin anew; None if the versions are of this one.
    """

    schema: TableSchema
    plan: MirrorPlan
    timezone: str
    since_ts: int = 0
    part: HandoverPart | None = None
    ends: str | None = None
    begins: str | None = None

    @property
    def keeps_ended(self) -> bool:
        """Whether versions that have ended are the same before and after."""
        carrier = VersionCarrier(
            self.schema, self.plan, self.timezone, part=self.part, since_ts=self.since_ts
        )
        before, after = _typed_fields(self.schema), _typed_fields(self.plan.schema)
        return self.begins is None and not carrier.changes_rows and before == after

    def effects(self, only_key: str | None = None) -> ArrowMap:
        """Return the function from versions to effects."""
        part = self.part and replace(self.part, plan=_light(self.part.plan))
        passage = replace(self, plan=_light(self.plan), part=part)

        def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            going = _Going(passage)
            build = _EffectBuilder(passage.plan.schema, passage.timezone).build
            for batch in batches:
                effects = [
                    effect
                    for effect in going.effects(batch)
                    if only_key is None or effect["key"] in ("", only_key)
                ]
                yield build(effects)

        return convert


class _Going:
    """Turns versions into effects."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._layout = MirrorLayout(schema=passage.schema)
        self._resolver = HistoryResolver(passage.plan, passage.timezone)
        self._carrier = VersionCarrier(
            passage.schema,
            passage.plan,
            passage.timezone,
            part=passage.part,
            since_ts=passage.since_ts,
        )
        part = passage.part
        self._given = None if part is None else hands_over(part, passage.timezone)
        self._typed = {
            column.name: typed_of(column, passage.timezone) for column in passage.schema.columns
        }

    def effects(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        named = batch.select([*column_places(self._passage.schema), "extra"]).rename_columns(
            [*(column.name for column in self._passage.schema.columns), self._layout.extra]
        )
        rows = canonical_rows(named, self._layout, self._passage.timezone)
        known = batch.select(list(_OWN)).to_pylist()
        for row, version in zip(rows, known, strict=True):
            try:
                effect = self._effect(row, version)
            except InputError:
                effect = _unread(_NOWHERE)
            if effect is not None:
                yield effect

    def _effect(self, row: CanonicalRow, version: dict[str, Any]) -> dict[str, Any] | None:
        passage = self._passage
        valid_to, ended_by = version["valid_to"], version["ended_by"]
        valid_from, op = version["valid_from"], version["op"]
        if passage.begins is not None:
            if valid_to is not None or self._given is None or not self._given(row):
                return None
            valid_from, op = first_cut_after(passage.plan.floor_ts), passage.begins
        elif (
            valid_to is None
            and passage.ends is not None
            and not (self._given is not None and surely_given(self._given, row))
        ):
            valid_to, ended_by = first_cut_after(passage.plan.floor_ts), passage.ends
        end = self._carrier.end(row, valid_from) if valid_to is None else None
        extra = dict(version["extra"] or ())
        carried = self._carrier.carry(row, self._lost(extra), ended=valid_to is not None)
        return {
            **_NOWHERE,
            # What has ended meets no change any more.
            "key": "" if valid_to is not None else "=" + self._resolver.key_of(carried.row),
            "commit_ts": valid_from,
            "op": op,
            "is_delete": False,
            "valid_to": valid_to,
            "ended_by": ended_by,
            "ends_at": end and end[0],
            "removed_by": end and end[1],
            "values": carried.row,
            "lost": carried.lost,
            "kept": _kept_items(carried.kept),
            "partial_ts": extra.get(PARTIAL),
        }

    def _lost(self, extra: dict[str, str]) -> CanonicalRow:
        """Return the texts that their typed column would hold, if they were of its type."""
        return {
            name: text
            for name, text in extra.items()
            if name != PARTIAL and name in self._typed and self._typed[name](text) is not UNFIT
        }


class _EffectBuilder:
    """Builds effect batches with typed columns."""

    def __init__(self, schema: TableSchema, timezone: str) -> None:
        self._columns = schema.columns
        self._timezone = timezone
        self._schema = history_effect_schema(schema)

    def build(self, effects: list[dict[str, Any]]) -> pa.RecordBatch:
        extras: list[list[tuple[str, str]]] = [
            [(PARTIAL, effect["partial_ts"])] if effect.get("partial_ts") else []
            for effect in effects
        ]
        arrays: dict[str, pa.Array] = {}
        for place, column in zip(column_places_of(self._columns), self._columns, strict=True):
            name = column.name
            texts: list[str | None] = []
            for number, effect in enumerate(effects):
                text = effect["values"].get(name)
                if text is not None and name in effect.get("lost", ()):
                    extras[number].append((name, text))
                    text = None
                texts.append(text)
            arrays[place], unfit = typed_array(column, self._timezone, texts)
            for number, text in enumerate(texts if unfit is not None else ()):
                if text is not None and unfit is not None and unfit[number]:
                    extras[number].append((name, text))
        arrays["extra"] = pa.array([extra or None for extra in extras], EXTRA_TYPE)
        for field in self._schema:
            if field.name not in arrays:
                values = [effect.get(field.name) for effect in effects]
                arrays[field.name] = pa.array(values, field.type)
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self._schema.names], schema=self._schema
        )


def column_places_of(columns: Iterable[object]) -> list[str]:
    """Return where in a version these columns are."""
    return [f"c{number}" for number, _ in enumerate(columns)]


# Versions ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Version:
    """A version while it is folded; `row` is a batch and a row's number in it."""

    row: tuple[pa.RecordBatch, int]
    valid_from: int | None
    op: str | None
    valid_to: int | None = None
    ended_by: str | None = None
    partial_ts: str | None = None
    ends_at: int | None = None
    removed_by: str | None = None
    is_head: bool = False
    kept: tuple[KeptText, ...] = ()


def fold_versions(schema: TableSchema, *, heads: bool) -> ArrowMap:
    """Return the function from effects, sorted by key and sequence, to versions.

    Args:
        schema: the table's schema.
        heads: whether a key may have a version that is not among the effects. Then a row with
            `is_head` tells for each key what becomes of it: `valid_to` and `ended_by` if it ends,
            `partial_ts` if it is known in part from then on. Where there is no such version, a head
            with `valid_from` is one by itself.
    """
    keyed = bool(schema.handle_key)
    target = version_schema(schema)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fold = _KeyFold(heads=heads) if keyed else _BagFold()
        for batch in batches:
            fold.take(batch)
            if fold.done:
                yield _built(fold.drain(), schema, target)
        fold.finish()
        if fold.done:
            yield _built(fold.drain(), schema, target)

    return convert


_LIGHT = (
    *("key", "commit_ts", "op", "is_delete", "is_partial", "valid_to", "ended_by"),
    *("ends_at", "removed_by", "kept"),
)


class _Fold:
    """Follows the effects of one key after the other."""

    def __init__(self) -> None:
        self.done: list[_Version] = []
        self._key: str | None = None
        self._there: list[_Version] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Take in effects."""
        rows = batch.select(list(_LIGHT)).to_pylist()
        for number, effect in enumerate(rows):
            row = (batch, number)
            if effect["key"] == "!":
                self.done.append(_Version(row, None, None))
            elif effect["valid_to"] is not None:
                ended = _begun(row, effect)
                ended.valid_to, ended.ended_by = effect["valid_to"], effect["ended_by"]
                self.done.append(ended)
            else:
                if effect["key"] != self._key:
                    self.finish()
                    self._key = effect["key"]
                self._follow(row, effect)
        self._settle_in()

    def finish(self) -> None:
        """End the key: what is there is current, but for what DDL ends."""
        for version in self._there:
            if version.ends_at is not None:
                version.valid_to, version.ended_by = version.ends_at, version.removed_by
            self.done.append(version)
        self._there = []

    def drain(self) -> list[_Version]:
        """Return what is done, once."""
        done, self.done = self.done, []
        return done

    def _follow(self, row: tuple[pa.RecordBatch, int], effect: dict[str, Any]) -> None:
        raise NotImplementedError

    def _settle_in(self) -> None:
        """Keep of a batch only the rows that are still needed."""
        for version in self._there:
            version.row = _alone(version.row)

    def _end_removed(self, ts: int) -> None:
        """End the versions that DDL took up to a cut."""
        there: list[_Version] = []
        for version in self._there:
            if version.ends_at is not None and version.ends_at <= ts:
                version.valid_to, version.ended_by = version.ends_at, version.removed_by
                self.done.append(version)
            else:
                there.append(version)
        self._there = there

    def _end(self, version: _Version, at: int, by: str) -> None:
        if version.valid_from is None or version.valid_from < at:
            version.valid_to, version.ended_by = at, by
            self.done.append(version)


class _BagFold(_Fold):
    """Of a table without a key: a version is a copy of a row; a delete ends the oldest."""

    def _follow(self, row: tuple[pa.RecordBatch, int], effect: dict[str, Any]) -> None:
        ts = effect["commit_ts"]
        self._end_removed(ts)
        if not effect["is_delete"]:
            self._there.append(_begun(row, effect))
        elif self._there:
            self._end(self._there.pop(0), ts, effect["op"])


class _KeyFold(_Fold):
    """Of a table with a key: of the changes at one commit ts the last one counts."""

    def __init__(self, *, heads: bool) -> None:
        super().__init__()
        self._heads = heads
        self._is_known = not heads
        self._ts: int | None = None
        self._last: tuple[tuple[pa.RecordBatch, int], dict[str, Any]] | None = None
        self._behind: tuple[tuple[pa.RecordBatch, int], dict[str, Any]] | None = None
        self._replaced = False

    def finish(self) -> None:
        self._settle()
        self._ts = None
        super().finish()
        self._is_known = not self._heads

    def _settle_in(self) -> None:
        super()._settle_in()
        self._last = self._last and (_alone(self._last[0]), self._last[1])
        self._behind = self._behind and (_alone(self._behind[0]), self._behind[1])

    def _follow(self, row: tuple[pa.RecordBatch, int], effect: dict[str, Any]) -> None:
        if effect["commit_ts"] != self._ts:
            self._settle()
            self._ts = effect["commit_ts"]
        if effect["is_partial"]:
            self._behind = (row, effect)
        else:
            self._last, self._behind = (row, effect), None
        self._replaced = self._replaced or effect["is_delete"]

    def _settle(self) -> None:
        """Let the changes of one commit ts take effect."""
        ts, last, behind, replaced = self._ts, self._last, self._behind, self._replaced
        self._last = self._behind = None
        self._replaced = False
        if ts is None:
            return
        self._end_removed(ts)
        if last is not None:
            row, effect = last
            by = effect["op"] if effect["is_delete"] else VersionEvent.UPDATE
            if self._there:
                self._end(self._there.pop(), ts, by)
            elif not self._is_known:
                self.done.append(_Version(row, None, None, ts, by, is_head=True))
            if not effect["is_delete"]:
                begun = _begun(row, effect)
                begun.op = VersionEvent.UPDATE if replaced else begun.op
                self._there = [begun]
            self._is_known = True
        if behind is not None:
            row, effect = behind
            if not self._there:
                self._there = [_begun(row, effect)]
                self._there[0].is_head = not self._is_known
                self._is_known = True
            self._there[0].partial_ts = str(ts)


def _begun(row: tuple[pa.RecordBatch, int], effect: dict[str, Any]) -> _Version:
    return _Version(
        row,
        effect["commit_ts"],
        effect["op"],
        ends_at=effect["ends_at"],
        removed_by=effect["removed_by"],
        kept=tuple(tuple(item.values()) for item in effect["kept"] or ()),
    )


def _alone(row: tuple[pa.RecordBatch, int]) -> tuple[pa.RecordBatch, int]:
    batch, number = row
    return (batch, number) if batch.num_rows == 1 else (batch.take(pa.array([number])), 0)


def _built(versions: list[_Version], schema: TableSchema, target: pa.Schema) -> pa.RecordBatch:
    """Return versions as a batch."""
    taken: dict[int, tuple[pa.RecordBatch, list[int]]] = {}
    order: dict[int, list[_Version]] = {}
    for version in versions:
        batch, number = version.row
        taken.setdefault(id(batch), (batch, []))[1].append(number)
        order.setdefault(id(batch), []).append(version)
    places = [name for name in target.names if name.startswith("c") and name[1:].isdigit()]
    rows = pa.Table.from_batches(
        [
            batch.select([*places, "extra"]).take(pa.array(numbers, pa.int64()))
            for batch, numbers in taken.values()
        ]
    ).combine_chunks()
    ordered = [version for group in order.values() for version in group]
    extra = rows.column("extra")
    if any(version.partial_ts is not None for version in ordered):
        extra = pa.array(
            [
                entries if version.partial_ts is None else _marked(entries, version.partial_ts)
                for entries, version in zip(extra.to_pylist(), ordered, strict=True)
            ],
            EXTRA_TYPE,
        )
    arrays: dict[str, Any] = {name: rows.column(name) for name in places}
    texts = [texts_at(version.kept, version.valid_to) for version in ordered]
    if any(texts):
        extra = pa.array(
            [
                [item for item in entries or () if item[0] not in own] + list(own.items()) or None
                for entries, own in zip(extra.to_pylist(), texts, strict=True)
            ],
            EXTRA_TYPE,
        )
        for name, column in zip(places, schema.columns, strict=True):
            kept = [None if column.name in own else row for row, own in enumerate(texts)]
            if None in kept:
                arrays[name] = arrays[name].take(pa.array(kept, pa.int64()))
    arrays["extra"] = extra
    for name in target.names:
        if name not in arrays:
            values = [getattr(version, name) for version in ordered]
            arrays[name] = pa.array(values, target.field(name).type)
    table = pa.table([arrays[name] for name in target.names], schema=target)
    return table.to_batches(max_chunksize=None)[0] if table.num_rows else _empty(target)


def _marked(entries: list[tuple[str, str]] | None, ts: str) -> list[tuple[str, str]]:
    return [(PARTIAL, ts), *(item for item in entries or () if item[0] != PARTIAL)]


def _empty(target: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=target)
