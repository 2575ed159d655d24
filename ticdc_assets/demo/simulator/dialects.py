"""The dialects of TiCDC that the stand-in writes, and the options of what a message holds.

In: a wire format and what was asked for. Out: the dialect to write in. The old TiCDC is
pingcap/tiflow; the new one, pingcap/ticdc, is what changefeeds have since v8.5.4 with the new
architecture. Craft is a format of the old one alone.
"""

from dataclasses import dataclass
from enum import StrEnum

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.wire import WireFormat


class Dialect(StrEnum):
    """Which TiCDC writes."""

    TIFLOW = "tiflow"
    TICDC = "ticdc"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """Options of TiCDC that change what a message holds; a format without an option ignores it.

    Attributes:
        dialect: which TiCDC writes; None for the new one where it has the format.
        tidb_extension: Canal-JSON: send commit ts and watermarks.
        content_compatible: Canal-JSON: spell types in full, and send only updated columns.
        only_updated_columns: leave columns that did not change out of `before` (not Simple, Craft).
        delete_only_handle_key: reduce the image of a DELETE to the handle key (not Simple).
        batched_creates: new dialect: send CREATE TABLE as that of a batch (fast create table).
    """

    dialect: Dialect | None = None
    tidb_extension: bool = True
    content_compatible: bool = False
    only_updated_columns: bool = False
    delete_only_handle_key: bool = False
    batched_creates: bool = False


def dialect_of(wire_format: WireFormat, wanted: Dialect | None) -> Dialect:
    """Return the dialect to write a format in: the one wanted, or the newest that has it.

    Raises:
        ConfigError: the one wanted does not have the format.
    """
    if wire_format is WireFormat.CRAFT:
        if wanted is Dialect.TICDC:
            raise ConfigError(
                "Craft is not a format of the dialect ticdc: choose the dialect tiflow, or "
                "another format"
            )
        return Dialect.TIFLOW
    return wanted or Dialect.TICDC
