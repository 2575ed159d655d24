"""Table options and partition clauses, as CREATE TABLE and ALTER TABLE write them.

In: a `Cursor`. Out: the `Charset` that options name (other options are read to their end),
`Partitioning`, `PartitionDefinition`, or None if there is none here. Bounds stay text.

TiDB's INTERVAL clauses are not read: TiDB writes the partitions that they mean into the DDL's text
(`rewritePartitionQueryString` in pkg/ddl/partition.go).
"""

from typing import Final, NamedTuple

from ticdc_assets.registry.ddl.definitions import take_charset_name, take_charset_words
from ticdc_assets.registry.ddl.statement import (
    BoundKind,
    PartitionDefinition,
    Partitioning,
    PartitionMethod,
)
from ticdc_assets.registry.ddl.tokens import Cursor

# Options of several words, by those words; every other option is one word.
_LONG_OPTIONS: Final[tuple[tuple[str, ...], ...]] = (
    ("DATA", "DIRECTORY"),
    ("INDEX", "DIRECTORY"),
    ("PLACEMENT", "POLICY"),
    ("STORAGE", "ENGINE"),
    ("FORCE", "AUTO_INCREMENT"),
    ("FORCE", "AUTO_RANDOM_BASE"),
)
_OPTION_LIST: Final = """
ACTIVE_ACTIVE AFFINITY ATTRIBUTES AUTOEXTEND_SIZE AUTO_ID_CACHE AUTO_INCREMENT AUTO_RANDOM_BASE
AVG_ROW_LENGTH CHECKSUM COMMENT COMPRESSION CONNECTION CONSTRAINTS DELAY_KEY_WRITE ENCRYPTION ENGINE
ENGINE_ATTRIBUTE FOLLOWERS FOLLOWER_CONSTRAINTS IETF_QUOTES INSERT_METHOD KEY_BLOCK_SIZE
LEADER_CONSTRAINTS LEARNERS LEARNER_CONSTRAINTS MAX_ROWS MIN_ROWS NODEGROUP PACK_KEYS PAGE_CHECKSUM
PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD PRE_SPLIT_REGIONS PRIMARY_REGION REGIONS ROW_FORMAT
SCHEDULE SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE SEQUENCE SHARD_ROW_ID_BITS
SOFTDELETE_JOB_ENABLE SOFTDELETE_JOB_INTERVAL STATS_AUTO_RECALC STATS_BUCKETS STATS_COLS_CHOICE
STATS_COL_CHOICE STATS_COL_LIST STATS_PERSISTENT STATS_SAMPLE_PAGES STATS_SAMPLE_RATE STATS_TOPN
STORAGE TABLESPACE TABLE_CHECKSUM TRANSACTIONAL TTL_ENABLE TTL_JOB_INTERVAL TYPE UNION VOTERS
VOTER_CONSTRAINTS
"""
_OPTIONS: Final = frozenset(_OPTION_LIST.split())


class Charset(NamedTuple):
    """The character set and collation that options name, None where they do not."""

    charset: str | None = None
    collation: str | None = None


def take_options(cursor: Cursor, *, commas: bool = False) -> Charset | None:
    """Take options, maybe with commas between them; None if there are none."""
    named: Charset | None = None
    while True:
        start = cursor.at
        if commas and named is not None:
            cursor.take_char(",")
        option = _take_option(cursor)
        if option is None:
            cursor.at = start
            return named
        named = Charset(*(new or old for new, old in zip(option, named or option, strict=True)))


def _take_option(cursor: Cursor) -> Charset | None:
    start = cursor.at
    cursor.take("DEFAULT")
    option: Charset | None = None
    if take_charset_words(cursor):
        if (name := take_charset_name(cursor)) is not None:
            option = Charset(charset=name)
    elif cursor.take("COLLATE"):
        if (name := take_charset_name(cursor)) is not None:
            option = Charset(collation=name)
    elif _take_other_option(cursor):
        option = Charset()
    if option is None:
        cursor.at = start
    return option


def _take_other_option(cursor: Cursor) -> bool:
    if cursor.take("START", "TRANSACTION"):
        return True
    if cursor.take("ON", "COMMIT"):
        cursor.take_any(("DELETE", "PRESERVE"))
        return cursor.take("ROWS")
    if cursor.take("TTL"):
        return _take_ttl(cursor)
    if cursor.take("SOFTDELETE"):
        return _take_soft_delete(cursor)
    if any(cursor.take(*words) for words in _LONG_OPTIONS):
        return _take_value(cursor)
    # `comment` is also an ordinary name; as an option only a string follows.
    is_comment = cursor.word() == "COMMENT"
    return bool(cursor.take_any(_OPTIONS)) and _take_value(cursor, only_text=is_comment)


def _take_value(cursor: Cursor, *, only_text: bool = False) -> bool:
    cursor.take_char("=")
    if cursor.take_string() is not None or cursor.take("SET", "DEFAULT"):
        return True
    if only_text or cursor.done or cursor.is_char(","):
        return False
    cursor.take_char("-")
    cursor.skip_token()
    return True


def _take_ttl(cursor: Cursor) -> bool:
    """Take `[=] column + INTERVAL n unit`."""
    cursor.take_char("=")
    if cursor.take_name() is None or not cursor.take_char("+") or not cursor.take("INTERVAL"):
        return False
    if cursor.take_string() is None:
        cursor.skip_token()
    unit = cursor.word()
    cursor.skip_token()
    return bool(unit)


def _take_soft_delete(cursor: Cursor) -> bool:
    """Take `[=] RETENTION [=] n unit`, `[=] 'OFF'`, or JOB ENABLE and JOB INTERVAL as two words."""
    if cursor.take("JOB"):
        return bool(cursor.take_any(("ENABLE", "INTERVAL"))) and _take_value(cursor)
    cursor.take_char("=")
    if not cursor.take("RETENTION"):
        return _take_value(cursor)
    cursor.take_char("=")
    cursor.take("INTERVAL")
    has_number = cursor.take_integer() is not None or cursor.take_string() is not None
    return has_number and bool(cursor.take_any(_UNITS))


_UNITS: Final = frozenset(("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"))

_METHODS: Final = {method.name: method for method in PartitionMethod if "_" not in method.name}
_COLUMNS_METHODS: Final = {
    PartitionMethod.RANGE: PartitionMethod.RANGE_COLUMNS,
    PartitionMethod.LIST: PartitionMethod.LIST_COLUMNS,
}


def take_partitioning(cursor: Cursor) -> Partitioning | None:
    """Take what follows PARTITION BY."""
    cursor.take("LINEAR")
    word = cursor.take_any(_METHODS)
    if not word:
        cursor.missing()
        return None
    method = _METHODS[word]
    if cursor.take_any(("COLUMNS", "FIELDS")):
        method = _COLUMNS_METHODS.get(method, method)
    if cursor.take("ALGORITHM"):
        cursor.take_char("=")
        cursor.take_integer()
    group = cursor.take_group()
    if group is None:
        cursor.missing()
        return None
    expression = group.text()
    by_columns = (PartitionMethod.KEY, PartitionMethod.RANGE_COLUMNS, PartitionMethod.LIST_COLUMNS)
    columns = take_names(group) if method in by_columns else ()
    count: int | None = None
    definitions: tuple[PartitionDefinition, ...] = ()
    while True:
        if cursor.take("PARTITIONS"):
            count = cursor.take_integer()
        elif cursor.take("SUBPARTITION", "BY"):
            cursor.take("LINEAR")
            cursor.take_any(_METHODS)
            if cursor.take("ALGORITHM"):
                cursor.take_char("=")
                cursor.take_integer()
            cursor.take_group()
        elif cursor.take("SUBPARTITIONS"):
            cursor.take_integer()
        elif cursor.is_char("(") and not definitions:
            definitions = take_definitions(cursor)
        elif cursor.take("UPDATE", "INDEXES"):
            cursor.take_group()
        else:
            break
    return Partitioning(
        method=method, expression=expression, columns=columns, count=count, definitions=definitions
    )


def take_definitions(cursor: Cursor) -> tuple[PartitionDefinition, ...]:
    """Take `(PARTITION p ..., PARTITION q ...)`."""
    group = cursor.take_group()
    if group is None:
        cursor.missing()
        return ()
    definitions: list[PartitionDefinition] = []
    while not group.done:
        definition = _take_definition(group)
        if definition is not None:
            definitions.append(definition)
        if not group.take_char(",") and not group.done:
            group.unexpected()
            group.take_char(",")
    return tuple(definitions)


def _take_definition(cursor: Cursor) -> PartitionDefinition | None:
    name = _take_value_name(cursor) if cursor.take("PARTITION") else None
    if name is None:
        return None
    kind: BoundKind | None = None
    bound: str | None = None
    if cursor.take("DEFAULT"):
        kind = BoundKind.DEFAULT
    elif cursor.take("VALUES"):
        kind = BoundKind.IN if cursor.take("IN") else BoundKind.LESS_THAN
        if kind is BoundKind.LESS_THAN and not cursor.take("LESS", "THAN"):
            return None
        group = cursor.take_group()
        if group is not None:
            bound = group.text()
        elif kind is BoundKind.LESS_THAN and cursor.take("MAXVALUE"):
            bound = "MAXVALUE"
        else:
            return None
    take_options(cursor)
    group = cursor.take_group()
    while group is not None and not group.done:
        if group.take("SUBPARTITION") and _take_value_name(group) is not None:
            take_options(group)
        else:
            group.unexpected()
        group.take_char(",")
    return PartitionDefinition(name=name, bound_kind=kind, bound=bound)


def _take_value_name(cursor: Cursor) -> str | None:
    """Take a partition's name; MySQL also writes it as a string."""
    return cursor.take_name() if cursor.is_name() else cursor.take_string()


def take_names(cursor: Cursor) -> tuple[str, ...]:
    """Take `a, b, c`."""
    names: list[str] = []
    while (name := cursor.take_name()) is not None:
        names.append(name)
        if not (cursor.is_char(",") and cursor.is_name(1)):
            break
        cursor.at += 1
    return tuple(names)
