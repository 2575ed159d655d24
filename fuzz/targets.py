"""What is fuzzed, by name: the decoders of each wire format, and what understands DDL text."""

from collections.abc import Sequence
from typing import Final

from fuzz.ddl_texts import NAME as DDL
from fuzz.ddl_texts import DdlTarget
from fuzz.decoders import DecoderTarget
from fuzz.findings import Target
from fuzz.seeds import golden_folder, load_ddl_seeds, load_seeds
from ticdc_assets.wire import WireFormat

NAMES: Final[Sequence[str]] = (*(wire_format.value for wire_format in WireFormat), DDL)
"""The names of all targets."""


def make_target(name: str) -> Target:
    """Return what is fuzzed under `name`, from golden messages where they are there."""
    golden = golden_folder()
    if name == DDL:
        return DdlTarget(load_ddl_seeds(golden))
    wire_format = WireFormat(name)
    return DecoderTarget(wire_format, load_seeds(wire_format, golden))
