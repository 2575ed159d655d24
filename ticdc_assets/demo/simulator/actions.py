"""TiDB's numbers of DDL statements, and the words of the Simple protocol and Canal-JSON for them.

In: what is run. Out: the number that Open Protocol and Craft send, and the word that the others do.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    AddPrimaryKey,
    AlterAction,
    DropColumn,
    DropPrimaryKey,
    ModifyColumn,
    RenameColumn,
    SetDefault,
)


class ActionCode(IntEnum):
    """TiDB's numbers for the statements that are run here."""

    CREATE_DATABASE = 1
    DROP_DATABASE = 2
    CREATE_TABLE = 3
    DROP_TABLE = 4
    ADD_COLUMN = 5
    DROP_COLUMN = 6
    ADD_INDEX = 7
    DROP_INDEX = 8
    TRUNCATE_TABLE = 11
    MODIFY_COLUMN = 12
    RENAME_TABLE = 14
    SET_DEFAULT = 15
    TABLE_COMMENT = 17
    ADD_PARTITION = 19
    DROP_PARTITION = 20
    CREATE_VIEW = 21
    TRUNCATE_PARTITION = 23
    DROP_VIEW = 24
    RECOVER_TABLE = 25
    ALTER_DATABASE = 26
    ADD_PRIMARY_KEY = 32
    DROP_PRIMARY_KEY = 33
    EXCHANGE_PARTITION = 42
    CREATE_TABLES = 60
    MULTI_CHANGE = 61
    REORGANIZE_PARTITION = 64
    PARTITION_BY = 71
    REMOVE_PARTITIONING = 72

    @property
    def word(self) -> str:
        """What the Simple protocol and Canal-JSON call it."""
        return _WORDS.get(self, "ALTER")


_WORDS: Final[Mapping[ActionCode, str]] = {
    ActionCode.CREATE_DATABASE: "QUERY",
    ActionCode.DROP_DATABASE: "QUERY",
    ActionCode.ALTER_DATABASE: "QUERY",
    ActionCode.CREATE_TABLE: "CREATE",
    ActionCode.CREATE_TABLES: "QUERY",
    ActionCode.DROP_TABLE: "ERASE",
    ActionCode.ADD_INDEX: "CINDEX",
    ActionCode.DROP_INDEX: "DINDEX",
    ActionCode.TRUNCATE_TABLE: "TRUNCATE",
    ActionCode.RENAME_TABLE: "RENAME",
    ActionCode.CREATE_VIEW: "QUERY",
    ActionCode.DROP_VIEW: "QUERY",
    ActionCode.RECOVER_TABLE: "QUERY",
    ActionCode.ADD_PRIMARY_KEY: "CINDEX",
    ActionCode.DROP_PRIMARY_KEY: "DINDEX",
    ActionCode.EXCHANGE_PARTITION: "QUERY",
}
"""The words; every other number is an ALTER."""

ALTER_CODES: Final[Mapping[type[AlterAction], ActionCode]] = {
    AddColumn: ActionCode.ADD_COLUMN,
    DropColumn: ActionCode.DROP_COLUMN,
    RenameColumn: ActionCode.MODIFY_COLUMN,
    ModifyColumn: ActionCode.MODIFY_COLUMN,
    SetDefault: ActionCode.SET_DEFAULT,
    AddPrimaryKey: ActionCode.ADD_PRIMARY_KEY,
    DropPrimaryKey: ActionCode.DROP_PRIMARY_KEY,
}
"""The number of an ALTER TABLE with one change."""
