"""MySQL and TiDB value semantics: physical values, canonical text, typed values.

One value of a column has three forms: *physical*, as the message said it; *canonical text*, one
string in which all formats agree, or None for NULL; *typed*, what the mirror's column holds. Each
conversion is compiled once per column and then called per value.

Canonical text is what TiDB prints, with these choices:

* INTEGER, YEAR and BIT: decimal digits, BIT as an unsigned integer.
* FLOAT, DOUBLE and the elements of VECTOR: the fewest digits that read back, no exponent.
* DECIMAL: with all digits of its scale.
* DATETIME, TIMESTAMP and TIME: with all digits of their fraction; TIMESTAMP in the time zone of
  the changefeed.
* text: itself. Binary: `0x` and lower-case hex.
* ENUM: the label. SET: its labels in the order of the column, joined by commas.
* JSON: as printed, without whitespace outside strings. VECTOR: `[1,2.5]`.
* a type this package does not know: the text as sent.
"""

from ticdc_assets.model.values.canonical import canonical_of
from ticdc_assets.model.values.casts import Cast, cast_is_identity, cast_of, keep, lenient_cast_of
from ticdc_assets.model.values.datum import TextCast
from ticdc_assets.model.values.defaults import default_text
from ticdc_assets.model.values.physical import key_text, physical_of
from ticdc_assets.model.values.typed import UNFIT, Unfit, text_of, typed_array, typed_of

__all__ = [
    "UNFIT",
    "Cast",
    "TextCast",
    "Unfit",
    "canonical_of",
    "cast_is_identity",
    "cast_of",
    "default_text",
    "keep",
    "key_text",
    "lenient_cast_of",
    "physical_of",
    "text_of",
    "typed_array",
    "typed_of",
]
