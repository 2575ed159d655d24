"""TiDB's numbers for column types and for DDL statements, and their words here.

In: the numbers that Open Protocol and Craft send. Out: base types as in `SentColumn.mysql_type` and
the words of `DdlEvent.ddl_type`. Both are tables, so the same number always gives the same word.

The flag `BINARY` decides between the words of a pair, and only there: TiDB sets it on every column
that is not text, numbers and dates too.

Source: `mysql.Type*` and `types.TypeToStr` of pingcap/tidb, pkg/parser; `ActionType` of
pkg/meta/model/job.go; `getDDLType` in pingcap/tiflow pkg/sink/codec/simple/message.go at 017624f.

Not known: 0 (unspecified) and 255 (geometry), which no column of TiDB has.
"""

from collections.abc import Mapping
from typing import Final

TYPE_NAMES: Final[Mapping[int, tuple[str, str]]] = {
    1: ("tinyint", "tinyint"),
    2: ("smallint", "smallint"),
    3: ("int", "int"),
    4: ("float", "float"),
    5: ("double", "double"),
    6: ("null", "null"),
    7: ("timestamp", "timestamp"),
    8: ("bigint", "bigint"),
    9: ("mediumint", "mediumint"),
    10: ("date", "date"),
    11: ("time", "time"),
    12: ("datetime", "datetime"),
    13: ("year", "year"),
    14: ("newdate", "newdate"),
    15: ("varchar", "varbinary"),
    16: ("bit", "bit"),
    225: ("vector", "vector"),
    245: ("json", "json"),
    246: ("decimal", "decimal"),
    247: ("enum", "enum"),
    248: ("set", "set"),
    249: ("tinytext", "tinyblob"),
    250: ("mediumtext", "mediumblob"),
    251: ("longtext", "longblob"),
    252: ("text", "blob"),
    253: ("varchar", "varbinary"),
    254: ("char", "binary"),
}
"""Base type of each type code: without and with the flag `BINARY`."""

DDL_WORDS: Final[Mapping[int, str]] = {
    3: "CREATE",  # create table
    4: "ERASE",  # drop table
    5: "ALTER",  # add column
    6: "ALTER",  # drop column
    7: "CINDEX",  # add index
    8: "DINDEX",  # drop index
    9: "CINDEX",  # add foreign key
    10: "DINDEX",  # drop foreign key
    11: "TRUNCATE",  # truncate table
    12: "ALTER",  # modify column
    13: "ALTER",  # rebase auto_increment ID
    14: "RENAME",  # rename table
    15: "ALTER",  # set default value
    17: "ALTER",  # modify table comment
    18: "ALTER",  # rename index
    19: "ALTER",  # add partition
    20: "ALTER",  # drop partition
    22: "ALTER",  # modify table charset and collate
    23: "ALTER",  # truncate partition
    32: "CINDEX",  # add primary key
    33: "DINDEX",  # drop primary key
    41: "ALTER",  # alter index visibility
    47: "RENAME",  # rename tables
    61: "ALTER",  # multi-schema change
    64: "ALTER",  # reorganize partition
    71: "ALTER",  # alter table partition by
    72: "ALTER",  # remove partitioning
}
"""The Simple protocol's word for each action code; it calls all others `OTHER_DDL`."""

OTHER_DDL: Final = "QUERY"

MAX_ACTION_CODE: Final = 255
"""TiDB's numbers for DDL statements are bytes."""


def ddl_word(action_code: int) -> str:
    """Return the Simple protocol's word for TiDB's `action_code` of a DDL statement."""
    return DDL_WORDS.get(action_code, OTHER_DDL)
