"""MySQL and TiDB value semantics: physical values, canonical text, typed values.

One column has three forms of a value: *physical*, as the message said it; *canonical text*, one
string in which all formats agree; *typed*, what the mirror's column holds. Each conversion is
compiled once per column and then called per value.
"""

from ticdc_assets.values.arrays import typed_array
from ticdc_assets.values.canonical import canonical_of
from ticdc_assets.values.casts import cast_is_identity, cast_of, keep
from ticdc_assets.values.defaults import default_text
from ticdc_assets.values.keys import key_text
from ticdc_assets.values.physical import physical_of
from ticdc_assets.values.typed import UNFIT, Unfit, text_of, typed_of

__all__ = [
    "UNFIT",
    "Unfit",
    "canonical_of",
    "cast_is_identity",
    "cast_of",
    "default_text",
    "keep",
    "key_text",
    "physical_of",
    "text_of",
    "typed_array",
    "typed_of",
]
