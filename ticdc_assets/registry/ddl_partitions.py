"""Table options and partition clauses, as CREATE TABLE and ALTER TABLE write them.

In: a `Cursor`. Out: `TableOption`, `Partitioning`, `PartitionDefinition`, or None if there is none
here. Bounds stay text. TiDB's INTERVAL clauses are not read: TiDB writes the partitions that they
mean into the DDL's text (`rewritePartitionQueryString` in pkg/ddl/partition.go).
"""

from typing import Final

from ticdc_assets.registry.ddl_columns import take_charset_name
from ticdc_assets.registry.ddl_statement import (
    BoundKind,
    PartitionDefinition,
    Partitioning,
    PartitionMethod,
    TableOption,
)
from ticdc_assets.registry.ddl_tokens import Cursor

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


def take_option(cursor: Cursor) -> TableOption | None:
    """Take one table, database or partition option."""
    start = cursor.at
    cursor.take("DEFAULT")
    if cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET"):
        return _charset_option(cursor, "charset", start)
    if cursor.take("COLLATE"):
        return _charset_option(cursor, "collate", start)
    if cursor.take("START", "TRANSACTION"):
        return TableOption(name="start_transaction", value=None)
    if cursor.take("ON", "COMMIT"):
        value = cursor.take_any(("DELETE", "PRESERVE"))
        cursor.take("ROWS")
        return TableOption(name="on_commit", value=value.lower())
    if cursor.take("TTL"):
        return _ttl_option(cursor)
    if cursor.take("SOFTDELETE"):
        return _soft_delete_option(cursor, start)
    for words in _LONG_OPTIONS:
        if cursor.take(*words):
            return _valued_option(cursor, "_".join(words).lower(), start)
    word = cursor.take_any(_OPTIONS)
    if word:
        return _valued_option(cursor, word.lower(), start)
    cursor.at = start
    return None


def _charset_option(cursor: Cursor, name: str, start: int) -> TableOption | None:
    value = take_charset_name(cursor)
    if value is None:
        cursor.at = start
        return None
    return TableOption(name=name, value=value)


def _valued_option(cursor: Cursor, name: str, start: int) -> TableOption | None:
    cursor.take_char("=")
    text = cursor.take_string()
    if text is not None:
        return TableOption(name=name, value=text)
    if name == "comment":
        # `comment` is also an ordinary name; as an option only a string follows.
        cursor.at = start
        return None
    group = cursor.take_group()
    if group is not None:
        return TableOption(name=name, value=group.text())
    if cursor.done or cursor.is_char(","):
        cursor.at = start
        return None
    if name == "placement_policy":
        cursor.take("SET")  # PLACEMENT POLICY = SET DEFAULT
    if cursor.is_name():
        return TableOption(name=name, value=cursor.take_name())
    value_start = cursor.at
    cursor.take_char("-")
    cursor.skip_token()
    return TableOption(name=name, value=cursor.text(value_start))


def _ttl_option(cursor: Cursor) -> TableOption:
    """Take `[=] column + INTERVAL n unit`, which ends at the next option's word."""
    cursor.take_char("=")
    start = cursor.at
    cursor.skip_token()
    while not cursor.done and not cursor.is_char(","):
        word = cursor.word()
        if word in _OPTIONS or word in _TTL_ENDS:
            break
        cursor.skip_token()
    return TableOption(name="ttl", value=cursor.text(start))


_TTL_ENDS: Final = frozenset(
    (
        "AS",
        "CHARACTER",
        "CHARSET",
        "COLLATE",
        "DEFAULT",
        "PARTITION",
        "PLACEMENT",
        "REMOVE",
        "SOFTDELETE",
    )
)


def _soft_delete_option(cursor: Cursor, start: int) -> TableOption | None:
    """Take `[=] RETENTION [=] n unit`, `[=] 'OFF'`, or JOB ENABLE and JOB INTERVAL as two words."""
    if cursor.take("JOB"):
        word = cursor.take_any(("ENABLE", "INTERVAL"))
        option = _valued_option(cursor, f"softdelete_job_{word.lower()}", start) if word else None
        if option is None:
            cursor.at = start
        return option
    cursor.take_char("=")
    if not cursor.take("RETENTION"):
        return _valued_option(cursor, "softdelete", start)
    cursor.take_char("=")
    cursor.take("INTERVAL")
    value_start = cursor.at
    if cursor.take_integer() is None and cursor.take_string() is None:
        cursor.at = start
        return None
    if not cursor.take_any(_UNITS):
        cursor.at = start
        return None
    return TableOption(name="softdelete_retention", value=cursor.text(value_start))


_UNITS: Final = frozenset(("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"))


def take_options(cursor: Cursor, *, commas: bool = False) -> tuple[TableOption, ...]:
    """Take options as long as there are some; with `commas` also commas between them."""
    options: list[TableOption] = []
    while True:
        start = cursor.at
        if commas and options:
            cursor.take_char(",")
        option = take_option(cursor)
        if option is None:
            cursor.at = start
            return tuple(options)
        options.append(option)


_METHODS: Final = {
    "HASH": PartitionMethod.HASH,
    "KEY": PartitionMethod.KEY,
    "RANGE": PartitionMethod.RANGE,
    "LIST": PartitionMethod.LIST,
}
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
        method=method,
        expression=expression,
        columns=columns,
        count=count,
        definitions=definitions,
    )


def _take_less_than(cursor: Cursor) -> str | None:
    """Take `LESS THAN (bound)` or `LESS THAN MAXVALUE` and return the bound's text."""
    if not cursor.take("LESS", "THAN"):
        return None
    group = cursor.take_group()
    if group is not None:
        return group.text()
    return "MAXVALUE" if cursor.take("MAXVALUE") else None


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
        if cursor.take("IN"):
            group = cursor.take_group()
            kind, bound = BoundKind.IN, None if group is None else group.text()
        else:
            kind, bound = BoundKind.LESS_THAN, _take_less_than(cursor)
        if bound is None:
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
