"""What compiled loops do with eight bytes at once, as a word, and with 32, as a vector.

In: arrays of bytes, and places in them. Out: words, the first byte lowest; or 32 bits, one for each
byte of a vector, the first byte's lowest. Nothing checks that a place is in its array: after the
bytes that count come `PADDING` more, which may be read and written.

numba has no such functions, so they name the instructions of LLVM, which compiles a vector to what
the machine has.
"""

# numba and llvmlite have no types for what they generate.
# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

PADDING: Final = 64

_BYTE, _WORD, _BITS, _FLAG = (ir.IntType(size) for size in (8, 64, 32, 1))
_VECTOR: Final = ir.VectorType(_BYTE, 32)
_NO_VECTOR: Final = ir.Constant(_VECTOR, ir.Undefined)
_FIRSTS: Final = ir.Constant(ir.VectorType(_BITS, 32), None)

# Its types say that a caller passes the context of typing too, which numba does.
_generated: Final[Any] = intrinsic


class _Code:
    """The types of a function's arguments, and its code."""

    def __init__(self, context: Any, builder: Any, signature: Any, values: Any) -> None:
        self.builder = builder
        self.values = values
        self._arrays = [
            context.make_array(kind)(context, builder, value).data
            if isinstance(kind, types.Array)
            else None
            for kind, value in zip(signature.args, values, strict=True)
        ]

    def _address(self, number: int, kind: Any) -> Any:
        """Return the address of a place, which is the argument after its array, by its number."""
        address = self.builder.gep(self._arrays[number], [self.values[number + 1]])
        return self.builder.bitcast(address, kind.as_pointer())

    def read(self, number: int, kind: Any) -> Any:
        load = self.builder.load(self._address(number, kind))
        load.align = 1
        return load

    def write(self, value: Any, number: int, kind: Any) -> None:
        self.builder.store(value, self._address(number, kind)).align = 1

    def all(self, byte: Any) -> Any:
        """Return a vector of one byte."""
        vector = self.builder.insert_element(_NO_VECTOR, byte, ir.Constant(_BITS, 0))
        return self.builder.shuffle_vector(vector, _NO_VECTOR, _FIRSTS)

    def bits(self, how: str, vector: Any, other: Any) -> Any:
        """Return the bits of the bytes for which the comparison of two vectors holds."""
        return self.builder.bitcast(self.builder.icmp_unsigned(how, vector, other), _BITS)


@_generated
def word_at(_typing: Any, octets: Any, _at: Any) -> Any:
    """Return the word at a place."""

    def generate(*given: Any) -> Any:
        return _Code(*given).read(0, _WORD)

    return types.uint64(octets, types.intp), generate


@_generated
def put_word(_typing: Any, written: Any, _place: Any, _word: Any) -> Any:
    """Write a word to a place."""

    def generate(context: Any, *given: Any) -> Any:
        code = _Code(context, *given)
        code.write(code.values[2], 0, _WORD)
        return context.get_dummy_value()

    return types.void(written, types.intp, types.uint64), generate


@_generated
def copy(_typing: Any, octets: Any, _at: Any, written: Any, _place: Any) -> Any:
    """Copy the 32 bytes at a place to another place."""

    def generate(context: Any, *given: Any) -> Any:
        code = _Code(context, *given)
        code.write(code.read(0, _VECTOR), 2, _VECTOR)
        return context.get_dummy_value()

    return types.void(octets, types.intp, written, types.intp), generate


@_generated
def among(_typing: Any, octets: Any, _at: Any, _first: Any, _count: Any) -> Any:
    """Return which of the 32 bytes at a place are in a range of so many from a first byte."""

    def generate(*given: Any) -> Any:
        code = _Code(*given)
        builder, (*_, first, count) = code.builder, code.values
        above = builder.sub(code.read(0, _VECTOR), code.all(first))
        return code.bits("<", above, code.all(count))

    return types.uint32(octets, types.intp, types.uint8, types.uint8), generate


@_generated
def differing(_typing: Any, octets: Any, _at: Any, others: Any, _other: Any) -> Any:
    """Return which of the 32 bytes at a place differ from those at another place."""

    def generate(*given: Any) -> Any:
        code = _Code(*given)
        return code.bits("!=", code.read(0, _VECTOR), code.read(2, _VECTOR))

    return types.uint32(octets, types.intp, others, types.intp), generate


@_generated
def first_bit(_typing: Any, _bits: Any) -> Any:
    """Return the lowest bit that is set, of bits that are not all 0."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.zext(builder.cttz(values[0], ir.Constant(_FLAG, 1)), _WORD)

    return types.int64(types.uint32), generate
