"""How the CSV files of an export are written, by Dumpling's own options.

In: options by Dumpling's names. Out: a `CsvDialect`, the form of fields, rows, NULL and binary
values. Its defaults are Dumpling's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ticdc_assets.base.errors import ConfigError, shorten


class BinaryText(StrEnum):
    """How a CSV file writes the bytes of a binary column."""

    RAW = "raw"
    HEX = "hex"
    BASE64 = "base64"


OUTPUT_DIALECTS = {
    "": BinaryText.RAW,
    "snowflake": BinaryText.HEX,
    "redshift": BinaryText.HEX,
    "bigquery": BinaryText.BASE64,
}
"""The form of binary values for each value of `--csv-output-dialect`."""

DUMPLING_OPTION = "--include-generated-columns stored"
"""With this option Dumpling writes stored generated columns into CSV and Parquet files."""

_LONGEST = 16
_OPTIONS = {
    "csv-separator": "separator",
    "csv-delimiter": "quote",
    "csv-null-value": "null",
    "csv-line-terminator": "terminator",
}
_FLAGS = {"no-header": "header", "escape-backslash": "backslash"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvDialect:
    r"""How CSV files are written.

    Attributes:
        separator: between fields (`--csv-separator`).
        quote: around text; "" for nothing (`--csv-delimiter`).
        null: the text of NULL, without quotes (`--csv-null-value`).
        terminator: ends a row (`--csv-line-terminator`). A row that ends by `\n` may end by `\r\n`
            as well.
        header: whether the first row of a file names its columns (not with `--no-header`).
        backslash: whether backslashes escape (`--escape-backslash`); otherwise quotes are doubled.
        binary: how bytes are written (`--csv-output-dialect`).

    Raises:
        ConfigError: the options contradict each other, or one is too long.
    """

    separator: str = ","
    quote: str = '"'
    null: str = "\\N"
    terminator: str = "\r\n"
    header: bool = True
    backslash: bool = True
    binary: BinaryText = BinaryText.RAW

    def __post_init__(self) -> None:
        for name in ("separator", "quote", "null", "terminator"):
            if len(getattr(self, name).encode()) > _LONGEST:
                raise ConfigError(
                    f"the {name} {shorten(getattr(self, name))} of the CSV files is longer than "
                    f"{_LONGEST} bytes"
                )
        if not self.separator or not self.terminator:
            raise ConfigError("CSV files need a separator and a line terminator")
        if self.separator == self.quote:
            raise ConfigError("the separator and the quote of CSV files cannot be the same")


def _meant(value: str) -> str:
    """Return a value with its escapes replaced: characters that are hard to type in a shell."""
    for written, meant in (("\\t", "\t"), ("\\r", "\r"), ("\\n", "\n"), ("\\0", "\0")):
        value = value.replace(written, meant)
    return value


def dialect_of(options: Mapping[str, str]) -> CsvDialect:
    """Return the dialect for Dumpling's options, by their names without `--`.

    Raises:
        ConfigError: there is no such option or value.
    """
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name in _OPTIONS:
            values[_OPTIONS[name]] = value if name == "csv-null-value" else _meant(value)
        elif name in _FLAGS and value.lower() in ("true", "false"):
            values[_FLAGS[name]] = (value.lower() == "true") is not (name == "no-header")
        elif name == "csv-output-dialect" and value in OUTPUT_DIALECTS:
            values["binary"] = OUTPUT_DIALECTS[value]
        else:
            option_names = ", ".join([*_OPTIONS, *_FLAGS, "csv-output-dialect"])
            raise ConfigError(
                f"{name}={value} is not an option of CSV files; Dumpling's options are "
                f"{option_names}"
            )
    return CsvDialect(**values)
