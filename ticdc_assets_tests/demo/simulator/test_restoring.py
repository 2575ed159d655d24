"""The text of DDL as TiDB's parser writes it: against golden texts, and of the stand-in's own."""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from ticdc_assets.demo.simulator.commits import CommittedDdl
from ticdc_assets.demo.simulator.restoring import restored
from ticdc_assets.registry.ddl import parse_ddl
from ticdc_assets.registry.ddl_statement import DdlAction, DdlStatement
from ticdc_assets_tests.demo.simulator.storm import storm

TEXTS = {
    "create table t (a int comment 'x\\ny', key k (a))": (
        "CREATE TABLE `t` (`a` INT COMMENT _UTF8MB4'x\ny',INDEX `k`(`a`))"
    ),
    "create table if not exists `d`.`t` (a integer default -1, b bool not null)": (
        "CREATE TABLE IF NOT EXISTS `d`.`t` (`a` INT DEFAULT -1,`b` TINYINT(1) NOT NULL)"
    ),
    "alter table t add b binary(2) default 0x00Ff, add c varchar(9) default 'it''s \\\\ \"q\"'": (
        "ALTER TABLE `t` ADD COLUMN `b` BINARY(2) DEFAULT x'00ff', "
        "ADD COLUMN `c` VARCHAR(9) DEFAULT _UTF8MB4'it''s \\\\ \"q\"'"
    ),
    "ALTER TABLE t ADD (a timestamp(3) not null default current_timestamp(3), b int zerofill)": (
        "ALTER TABLE `t` ADD COLUMN (`a` TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), "
        "`b` INT UNSIGNED ZEROFILL)"
    ),
    "/* why */ alter table t modify a datetime default now() on update now() -- because": (
        "ALTER TABLE `t` MODIFY COLUMN `a` DATETIME DEFAULT NOW() ON UPDATE NOW()"
    ),
    "create table t (a int primary key /*T![clustered_index] nonclustered */) engine=innodb": (
        "CREATE TABLE `t` (`a` INT PRIMARY KEY /*T![clustered_index] NONCLUSTERED */)"
        " ENGINE = innodb"
    ),
    "alter table t partition by range columns (d) "
    "(partition a values less than ('2024-01-01'), partition b values less than (maxvalue))": (
        "ALTER TABLE `t` PARTITION BY RANGE COLUMNS (`d`) "
        "(PARTITION `a` VALUES LESS THAN (_UTF8MB4'2024-01-01'),"
        "PARTITION `b` VALUES LESS THAN (MAXVALUE))"
    ),
    "alter table t add partition (partition c values in (1, null)), drop partition `p 1`, q": (
        "ALTER TABLE `t` ADD PARTITION (PARTITION `c` VALUES IN (1, NULL)), "
        "DROP PARTITION `p 1`,`q`"
    ),
    "alter table t truncate partition p0, p1": "ALTER TABLE `t` TRUNCATE PARTITION `p0`,`p1`",
    "drop table if exists a, d.b": "DROP TABLE IF EXISTS `a`, `d`.`b`",
    "rename table a to b, c to d.e": "RENAME TABLE `a` TO `b`, `c` TO `d`.`e`",
    "create unique index u on t (a desc, b(9))": (
        "CREATE UNIQUE INDEX `u` ON `t` (`a` DESC, `b`(9))"
    ),
    "alter table t frobnicate hard": None,
    "": None,
}
"""Statements and what TiDB's parser makes of them; None where it is not handled here."""


@pytest.mark.parametrize(("sql", "text"), TEXTS.items(), ids=range(len(TEXTS)))
def test_texts(sql: str, text: str | None) -> None:
    assert restored(sql) == (sql if text is None else text)
    assert restored(restored(sql)) == restored(sql)


@pytest.mark.parametrize("scenario", ["types", "shop"])
def test_golden_texts(
    golden_dir: Callable[..., Path], golden_new_dir: Callable[..., Path], scenario: str
) -> None:
    def texts(folder: Path) -> dict[int, list[str]]:
        found: dict[int, list[str]] = defaultdict(list)
        with gzip.open(folder / "events.jsonl.gz", "rt") as lines:
            for event in map(json.loads, lines):
                if event["type"] == "ddl" and event["partition"] == 0:
                    found[event["commit_ts"]].append(event["sql"])
        return found

    old = texts(golden_dir("open", scenario))
    new = texts(golden_new_dir("open", scenario))
    assert len(old) > 1
    for ts, statements in old.items():
        # The renames of one statement end in a semicolon, whoever made their text.
        assert [restored(sql) for sql in statements] == [text.rstrip(";") for text in new[ts]]


def meaning(statement: DdlStatement) -> str:
    """Return what a statement does, apart from how it is spelled."""
    told = (
        statement.action,
        statement.database,
        statement.table,
        statement.columns,
        statement.changes,
        statement.renames,
        statement.like,
    )
    # Expressions are there as they are written.
    text = repr(told).replace("_UTF8MB4", "")
    text = text.replace("CURRENT_TIMESTAMP", "current_timestamp")
    return text.replace("current_timestamp()", "current_timestamp")


@pytest.mark.thorough
def test_what_a_storm_says_stays_what_it_is() -> None:
    count = 0
    for seed in range(8):
        for commit in storm(seed, steps=120, keyless=seed % 2 == 0).upstream.history:
            for event in commit.events if isinstance(commit, CommittedDdl) else ():
                text = restored(event.sql)
                statement = parse_ddl(event.sql)
                if statement.action is DdlAction.UNKNOWN or statement.unparsed is not None:
                    assert text == event.sql
                    continue
                assert restored(text) == text
                assert meaning(parse_ddl(text)) == meaning(statement), text
                count += 1
    assert count > 200
