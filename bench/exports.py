"""Exports of a large table, made far cheaper than they are read.

In: a folder, a number of rows, a TSO, and CSV or SQL. Out: an export as Dumpling writes it, of one
table of 12 columns, in files of a million rows each. A row's values follow from its number, so two
exports of as many rows are the same but for what `Slip` asks for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.traffic import DATABASE
from ticdc_assets.demo.simulator.export import SETTINGS, finish

TABLE = "exported"
CREATE = f"""CREATE TABLE `{TABLE}` (
  `id` bigint(20) NOT NULL,
  `customer` int(11) DEFAULT NULL,
  `quantity` smallint(5) unsigned DEFAULT NULL,
  `price` decimal(12,2) DEFAULT NULL,
  `weight` double DEFAULT NULL,
  `state` enum('new','paid','sent') DEFAULT NULL,
  `name` varchar(40) DEFAULT NULL,
  `note` varchar(200) DEFAULT NULL,
  `code` char(8) DEFAULT NULL,
  `ordered_at` datetime(3) DEFAULT NULL,
  `changed_at` timestamp NULL DEFAULT NULL,
  `day` date DEFAULT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
"""
COLUMNS = re.findall(r"^  `(\w+)`", CREATE, re.MULTILINE)
SPARK_SCHEMA = (
    "id BIGINT, customer INT, quantity INT, price DECIMAL(12,2), weight DOUBLE, state STRING, "
    "name STRING, note STRING, code STRING, ordered_at TIMESTAMP_NTZ, changed_at TIMESTAMP, "
    "day DATE"
)
"""The same columns as a mirror has them, for Spark's reader of CSV."""
NULL = "\\N"
"""How CSV says NULL."""

ROWS_PER_FILE = 1_000_000
_ROWS_PER_STATEMENT = 5_000
_STATES = ("new", "paid", "sent")

Format = Literal["csv", "sql"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """How an export differs from another one: what a comparison must find.

    Attributes:
        changed: number of a row with another name.
        missing: number of a row that is left out.
        added: number of a row beyond the others.
    """

    changed: int
    missing: int
    added: int


def write_export(
    folder: Path, rows: int, *, tso: int, format: Format, slip: Slip | None = None
) -> int:
    """Write an export, and return how many bytes its rows take."""
    folder.mkdir(parents=True)
    (folder / f"{DATABASE}-schema-create.sql").write_text(
        f"{SETTINGS}CREATE DATABASE `{DATABASE}`;\n"
    )
    (folder / f"{DATABASE}.{TABLE}-schema.sql").write_text(f"{SETTINGS}{CREATE.strip()};\n")
    numbers = [*range(0, rows, ROWS_PER_FILE)]
    size = 0
    for number, begin in enumerate(numbers):
        path = folder / f"{DATABASE}.{TABLE}.{number:09}.{format}"
        wanted: list[int] | range = range(begin, min(rows, begin + ROWS_PER_FILE))
        if slip is not None:
            wanted = [item for item in wanted if item != slip.missing]
            if begin == numbers[-1]:
                wanted.append(slip.added)
        changed = -1 if slip is None else slip.changed
        with path.open("w", encoding="utf-8", newline="") as file:
            file.writelines(
                _csv(wanted, changed) if format == "csv" else _statements(wanted, changed)
            )
        size += path.stat().st_size
    finish(folder, tso)
    return size


def _csv(numbers: list[int] | range, changed: int) -> Iterator[str]:
    yield ",".join(f'"{name}"' for name in COLUMNS) + "\r\n"
    for number in numbers:
        yield f"{_row(number, changed, chr(34), NULL)}\r\n"


def _statements(numbers: list[int] | range, changed: int) -> Iterator[str]:
    yield SETTINGS
    head = f"INSERT INTO `{TABLE}` ({','.join(f'`{name}`' for name in COLUMNS)}) VALUES\n"
    for place, number in enumerate(numbers):
        is_first = place % _ROWS_PER_STATEMENT == 0
        is_last = place % _ROWS_PER_STATEMENT == _ROWS_PER_STATEMENT - 1
        row = _row(number, changed, "'", "NULL")
        ends = ";\n" if is_last or place == len(numbers) - 1 else ",\n"
        yield f"{head if is_first else ''}({row}){ends}"


def _row(number: int, changed: int, quote: str, null: str) -> str:
    mixed = number * 2_654_435_761 % 4_294_967_296
    day = f"20{10 + mixed % 14}-{mixed % 12 + 1:02}-{mixed % 28 + 1:02}"
    second = f"{day} {mixed % 24:02}:{mixed % 60:02}:{number % 60:02}"
    name = "someone else" if number == changed else f"customer {mixed}"
    code = null if number % 10 == 0 else f"{quote}{mixed:08x}{quote}"
    return (
        f"{number},{mixed % 100_000},{mixed % 1000},{mixed % 100_000}.{number % 100:02},"
        f"{mixed % 1000}.5,{quote}{_STATES[mixed % 3]}{quote},{quote}{name}{quote},"
        f"{quote}a note of order {number} that says {mixed} and then some more{quote},{code},"
        f"{quote}{second}.{mixed % 1000:03}{quote},{quote}{second}{quote},{quote}{day}{quote}"
    )
