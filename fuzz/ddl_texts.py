"""Fuzzing of DDL text: understanding it, and inferring schemas from it, never raises.

In: batches of damaged statements. Out: findings. It is a failure if `parse_ddl`,
`parse_ddl_script`, `schema_after` or what goes with them raises, takes too
long, says something else the second time, or infers a schema that would not be read back from
where it is stored.
"""

import re
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from time import thread_time
from typing import Any, Final, TypeAlias

import msgspec

from fuzz.damage import damaged
from fuzz.decoders import BATCH_RECORDS, LARGE_AT, LARGE_EVERY, LARGEST, where
from fuzz.findings import Batch, Failure, Findings, Note, findings_of
from fuzz.limits import least_seconds, seconds_allowed
from fuzz.seeds import DdlSeeds
from ticdc_assets.model.schemas import TableSchema, schema_from_json, schema_to_json
from ticdc_assets.registry.ddl.reader import parse_ddl, parse_ddl_script
from ticdc_assets.registry.ddl.statement import DdlStatement
from ticdc_assets.registry.inference.columns import (
    DATABASE_DEFAULTS,
    defaults_after,
)
from ticdc_assets.registry.inference.schemas import Inferred, schema_after
from ticdc_assets.wire.record import Record

Parse: TypeAlias = Callable[[str], DdlStatement]

NAME: Final = "ddl"
ENCODING_ERRORS: Final = "surrogatepass"
"""Texts travel as bytes here, those with lone surrogates too."""

_WORDS: Final = r"""
    CREATE TABLE DATABASE SCHEMA INDEX VIEW SEQUENCE ALTER DROP RENAME TRUNCATE FLASHBACK RECOVER
    ADD COLUMN CHANGE MODIFY SET DEFAULT PRIMARY KEY UNIQUE FULLTEXT SPATIAL CONSTRAINT FOREIGN
    REFERENCES CHECK PARTITION PARTITIONS BY RANGE LIST HASH VALUES LESS THAN MAXVALUE IN INTERVAL
    EXCHANGE WITH REORGANIZE INTO COALESCE FIRST LAST LIKE AS SELECT IF NOT EXISTS NULL AFTER TO ON
    USING BTREE COMMENT CHARSET CHARACTER COLLATE CONVERT ENGINE AUTO_INCREMENT AUTO_RANDOM WHERE
    GENERATED ALWAYS VIRTUAL STORED VISIBLE INVISIBLE CLUSTERED NONCLUSTERED UNSIGNED ZEROFILL
    INT BIGINT DECIMAL(10,2) FLOAT(7,3) DOUBLE BIT(64) VARCHAR(255) CHAR BINARY VARBINARY(9)
    ENUM('a','b') SET('x') DATETIME(6) TIMESTAMP(3) TIME YEAR JSON VECTOR(3) TEXT BLOB LONGTEXT
    NATIONAL GEOMETRY SERIAL BOOLEAN CURRENT_TIMESTAMP NOW() UPDATE TEMPORARY GLOBAL CASCADE
    RESTRICT utf8mb4 gbk latin1 binary utf8mb4_0900_ai_ci b'01' x'ff' 0xff 1e9 -1 'it''s' "q"
    `a``b` _utf8'x' N'x' ( ) , ; = . /* */ /*T![auto_rand] /*!50100 -- # ' " ` \
"""
WORDS: Sequence[str] = tuple(_WORDS.split())
"""What statements are made of."""

ODD: Sequence[str] = (
    "(" * 300,
    ")" * 300,
    "(" * 300 + ")" * 300,
    "/*" * 50,
    "'",
    "\0",
    "\ud800",
    "\u2028",
    "🚀",
    "é",
    "9" * 400,
    "-9" * 100,
    "1e999999999",
    "0x" + "f" * 300,
    "b'" + "1" * 300 + "'",
    "x'0'",
    "`" + "n" * 300 + "`",
    "'" + "\\" * 31,
    "decimal(99999999999999999999, -1)",
    "enum(" + ",".join("'v'" for _ in range(200)) + ")",
    "varchar(18446744073709551616)",
    "bit(0)",
    "timestamp(99)",
    "default 1e400",
    "default b'" + "1" * 65 + "'",
    "default '0000-00-00'",
    "default '9999-99-99 99:99:99.9999999'",
    "default current_timestamp(7)",
    "default (uuid())",
    "default x'ff'",
    "charset nothing",
)

_TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|\w+|\s+|.", re.DOTALL)
_TIMEZONES = ("UTC", "Asia/Shanghai", "America/New_York", "+05:30", "nowhere", "")


class DdlTarget:
    """Understanding DDL text.

    Args:
        seeds: statements to damage, and schemas to change.
        parse: what understands them.

    Attributes:
        name: `ddl`.
        source: where the seeds are from.
    """

    def __init__(self, seeds: DdlSeeds, *, parse: Parse = parse_ddl) -> None:
        self.name = NAME
        self.source = seeds.source
        self._texts = seeds.texts
        self._schemas = seeds.schemas
        self._raw = [_raw(text) for text in seeds.texts]
        self._parse = parse

    # --- inputs ---

    def batch(self, generator: Random, number: int) -> Batch:
        """Return batch `number`: one large text, or many."""
        if number % LARGE_EVERY == LARGE_AT:
            text = self._grown(generator, int(2 ** generator.uniform(14, LARGEST)))
            return Batch(records=[Record(key=None, value=_raw(text))], large=True)
        texts = (self._damaged(generator) for _ in range(BATCH_RECORDS))
        return Batch(records=[Record(key=None, value=_raw(text)) for text in texts])

    def _damaged(self, generator: Random) -> str:
        what = generator.random()
        text = generator.choice(self._texts)
        if what < 0.02:
            return text
        if what < 0.1:
            words = generator.choices((*WORDS, *ODD), k=generator.randrange(1, 30))
            return generator.choice(" ,(").join(words)
        if what < 0.4:
            raw = damaged(generator, _raw(text), self._raw)
            return raw.decode("utf-8", "replace")
        pieces = _TOKEN.findall(text)
        for _ in range(generator.choice((1, 1, 2, 3, 8))):
            self._change(generator, pieces)
        return "".join(pieces)

    def _change(self, generator: Random, pieces: list[str]) -> None:
        """Change one token, or a few next to each other."""
        place = generator.randrange(len(pieces) + 1)
        end = min(len(pieces), place + generator.choice((1, 1, 2, 5, 20)))
        what = generator.random()
        if what < 0.2:
            pieces[place:end] = []
        elif what < 0.35:
            pieces[end:end] = pieces[place:end]
        elif what < 0.5:
            other = _TOKEN.findall(generator.choice(self._texts))
            start = generator.randrange(len(other) + 1)
            pieces[place:end] = other[start : start + generator.randrange(1, 20)]
        elif what < 0.75:
            pieces[place:place] = [" ", generator.choice(WORDS), " "]
        elif what < 0.9:
            pieces[place:end] = [" ", generator.choice(WORDS), " "]
        else:
            pieces[place:place] = [generator.choice(ODD)]

    def _grown(self, generator: Random, size: int) -> str:
        """Return a text of about `size` characters."""
        pieces = _TOKEN.findall(generator.choice(self._texts))
        place = generator.randrange(len(pieces) + 1)
        end = min(len(pieces), place + generator.choice((1, 2, 5, 20)))
        piece = (
            generator.choice(
                (
                    "".join(pieces[place:end]),
                    generator.choice(WORDS),
                    generator.choice(ODD),
                    generator.choice("()`'\"\\/*-#;, \n0a.@"),
                    ", c int",
                    ", add column c int",
                    ", key (a)",
                )
            )
            or " "
        )
        if generator.random() < 0.5:
            many = piece * (size // len(piece))
        else:
            # Each with a number of its own, so that no name is there twice.
            many = "".join(f"{piece}{number}" for number in range(size // (len(piece) + 5)))
        return "".join((*pieces[:end], many, *pieces[end:]))

    # --- checks ---

    def check(self, batch: Batch, note: Note) -> Findings:
        """Read each statement, and infer schemas from it."""
        return findings_of(batch, lambda findings: self._check(batch, note, findings))

    def _check(self, batch: Batch, note: Note, findings: Findings) -> None:
        for number, record in enumerate(batch.records):
            note(number)
            raw = record.value or b""
            text = raw.decode("utf-8", ENCODING_ERRORS)
            # The input alone says which schema and which zone, so that a file is enough.
            schema = self._schemas[len(raw) % len(self._schemas)]
            timezone = _TIMEZONES[len(raw) % len(_TIMEZONES)]
            wrong: tuple[str, str] | None
            began = thread_time()
            try:
                statement = self._parse(text)
                seconds = thread_time() - began
                inferred = _inferred(statement, schema, timezone)
                took = thread_time() - began
                wrong = self._wrong(text, statement, inferred)
            except Exception as error:  # noqa: BLE001 - this is what the program looks for
                seconds = took = thread_time() - began
                wrong = ("raises " + where(error), traceback.format_exc())
            else:
                unread = statement.unparsed is not None
                if unread:
                    findings.reasons[f"{statement.action.value}, in part"] += 1
                else:
                    findings.accepted += 1
            findings.inputs += 1
            findings.took(took, len(raw))
            allowed = 3 * seconds_allowed(len(raw))
            if least_seconds(took, allowed, partial(self._read, text, schema, timezone)) > allowed:
                wrong = ("is slow", f"{seconds:.2f} s to read, {took:.2f} s with schemas")
            if wrong is not None:
                findings.failures.append(Failure(kind=wrong[0], text=wrong[1], number=number))

    def _read(self, text: str, schema: TableSchema, timezone: str) -> list[Inferred]:
        return _inferred(self._parse(text), schema, timezone)

    def _wrong(
        self, text: str, statement: DdlStatement, inferred: Sequence[Inferred]
    ) -> tuple[str, str] | None:
        """Return what is wrong with what was read, None if nothing is."""
        if type(statement) is not DdlStatement:
            return "gives no statement", repr(statement)[:2000]
        if len(text) < 5_000 and len(text) % 4 == 0:
            if self._parse(text) != statement:
                return "says something else the second time", repr(statement)[:2000]
            parse_ddl_script(text)
        for each in inferred:
            if not all(type(note) is str and note for note in each.notes):
                return "gives notes that are none", repr(each.notes)[:2000]
            stored = _stored(each.schema)
            if stored is not None and stored != each.schema:
                return (
                    "infers a schema that is another once it was stored",
                    f"{each.schema!r:.3000}\n{stored!r:.3000}",
                )
        return None


def _inferred(statement: DdlStatement, schema: TableSchema, timezone: str) -> list[Inferred]:
    """Return the schemas after a statement, and after it once more."""
    defaults = defaults_after(statement, defaults_after(statement, DATABASE_DEFAULTS))
    first = schema_after(statement, schema, defaults=defaults, timezone=timezone)
    return [first, schema_after(statement, first.schema, defaults=defaults, timezone=timezone)]


def _stored(schema: TableSchema) -> TableSchema | None:
    """Return the schema as it is read back; None for one that has texts no file can hold."""
    as_json: Any = schema_to_json(schema)
    try:
        text = msgspec.json.encode(as_json)
    except UnicodeEncodeError:
        return None  # lone surrogates, which no message can bring here
    return schema_from_json(msgspec.json.decode(text), "$")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", ENCODING_ERRORS)
