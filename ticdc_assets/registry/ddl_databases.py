"""Statements about databases: CREATE, ALTER and DROP DATABASE.

In: a `Cursor` after the word DATABASE or SCHEMA. Out: a `DdlStatement`. Words that are not
understood are noted on the cursor's tokens.
"""

from typing import Final

from ticdc_assets.registry.ddl_alter import take_tiflash
from ticdc_assets.registry.ddl_indexes import take_if_exists
from ticdc_assets.registry.ddl_partitions import take_option, take_options
from ticdc_assets.registry.ddl_statement import DdlAction, DdlStatement, TableOption
from ticdc_assets.registry.ddl_tokens import Cursor


def _database_options(cursor: Cursor) -> tuple[TableOption, ...]:
    options: list[TableOption] = []
    while not cursor.done:
        options.extend(take_options(cursor))
        if cursor.take("READ", "ONLY"):
            cursor.take_char("=")
            options.append(TableOption(name="read_only", value=cursor.raw()))
            cursor.skip_token()
        elif cursor.take("SET") and take_tiflash(cursor):
            pass
        elif not cursor.done:
            cursor.expect_done()
    return tuple(options)


def create_database(cursor: Cursor) -> DdlStatement:
    """Take what follows CREATE DATABASE."""
    take_if_exists(cursor)
    name = cursor.take_name()
    if name is None:
        cursor.missing()
    return DdlStatement(
        action=DdlAction.CREATE_DATABASE,
        database=name,
        options=_database_options(cursor),
    )


def drop_database(cursor: Cursor) -> DdlStatement:
    """Take what follows DROP DATABASE."""
    take_if_exists(cursor)
    name = cursor.take_name()
    if name is None:
        cursor.missing()
    cursor.take_any(("RESTRICT", "CASCADE"))
    return DdlStatement(action=DdlAction.DROP_DATABASE, database=name)


def alter_database(cursor: Cursor) -> DdlStatement:
    """Take what follows ALTER DATABASE."""
    # The name may be left out; options follow at once then.
    start = cursor.at
    name = None
    if cursor.word() not in ("DEFAULT", "CHARACTER", "COLLATE", "SET"):
        # The other option words are ordinary names too: they are options if an option is all that
        # follows, or if another option comes after it.
        option = take_option(cursor) if cursor.word() in _DATABASE_OPTION_WORDS else None
        unnamed = option is not None and (cursor.done or take_option(cursor) is not None)
        cursor.at = start
        if not unnamed:
            name = cursor.take_name()
            if name is None:
                cursor.missing()
    return DdlStatement(
        action=DdlAction.ALTER_DATABASE, database=name, options=_database_options(cursor)
    )


_DATABASE_OPTION_WORDS: Final = (
    "ACTIVE_ACTIVE",
    "CHARSET",
    "ENCRYPTION",
    "PLACEMENT",
    "SOFTDELETE",
    "SOFTDELETE_JOB_ENABLE",
    "SOFTDELETE_JOB_INTERVAL",
)
