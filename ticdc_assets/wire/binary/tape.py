"""Messages of Avro and Craft on a tape: their values as nodes, and images as text.

In: the bytes of messages with room after them, and loops that put their values on the tape
(`node_loops`). Out: images as texts, written as those of JSON are (`tape.reading`). What is written
after the messages depends on them alone.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_assets.wire.binary import node_loops
from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.tape.image_loops import Images
from ticdc_assets.wire.tape.json_loops import Flags, Texts
from ticdc_assets.wire.tape.reading import ImageLists, Tape, Workspace
from ticdc_assets.wire.tape.texts import PADDING, double_texts, float_texts
from ticdc_assets.wire.tape.token_loops import NODE, NULL

_LEAST_FLOAT: Final = 6
"""The fewest bytes of a column with a floating number."""
_ENDS: Final = 4
"""Bytes of an image besides its columns, at most."""


class BinaryTape:
    """A tape that gets the values of messages.

    Args:
        texts: the messages, with `node_loops.ROOM` after them.
        place: where the nodes are.

    Attributes:
        size: how many bytes the messages have.
        target: what gets the values.
        lists: the columns of images, and the tape.
    """

    def __init__(self, texts: Texts, place: Workspace) -> None:
        self.size = size = int(texts.ends.max(initial=0))
        nodes = place.array("nodes", size + 2, NODE)
        nodes[node_loops.NULL_NODE] = (0, 0, 1, NULL)
        self.target = node_loops.Target(
            texts.octets,
            nodes,
            place.array("floats", size // _LEAST_FLOAT + 1, node_loops.FLOATING),
            np.array([1, size, 0, 0], np.int64),
        )
        self.lists = ImageLists(Tape(texts, nodes, np.empty(0, np.int32), place))

    @property
    def tape(self) -> Tape:
        """The tape."""
        return self.lists.tape

    def written(self, *listed: Images) -> "list[pa.Array[Any]]":
        """Return images as texts; all of the tape are written at once."""
        self._write_floats()
        most = int(self.target.used[node_loops.USED_WRITTEN])
        most += _ENDS * sum(len(images.objects) for images in listed)
        ways = np.full(len(self.lists.columns), Spelling.TEXT, np.uint8)
        return [texts for texts, _ in self.lists.written(listed, ways, most)]

    def _write_floats(self) -> None:
        used = self.target.used
        floats = self.target.floats[: used[node_loops.USED_FLOATS]]
        for is_float, texts_of in ((True, _float_texts), (False, _double_texts)):
            chosen = floats[floats["is_float"] == is_float]
            if not len(chosen):
                continue
            _, raw_offsets, raw = texts_of(chosen).buffers()
            offsets = np.frombuffer(raw_offsets, np.int32, count=len(chosen) + 1)
            content = np.frombuffer(raw, np.uint8)[: offsets[-1]]
            start, size = int(used[node_loops.USED_OCTETS]), len(content)
            octets = self.tape.texts.octets
            if start + size + PADDING > len(octets):
                octets = np.concatenate((octets, np.zeros(size + PADDING, np.uint8)))
                self.lists.tape = replace(self.tape, texts=self.tape.texts._replace(octets=octets))
            octets[start : start + size] = content
            nodes = self.target.nodes
            nodes["start"][chosen["node"]] = start + offsets[:-1]
            nodes["end"][chosen["node"]] = start + offsets[1:]
            used[node_loops.USED_OCTETS] += size
            used[node_loops.USED_WRITTEN] += size


def _double_texts(floats: Any) -> "pa.Array[Any]":
    return double_texts(floats["bits"].copy().view(np.float64))


def _float_texts(floats: Any) -> "pa.Array[Any]":
    bits: npt.NDArray[np.uint64] = floats["bits"].copy()
    is_short: Flags = floats["size"] == 4
    with np.errstate(over="ignore", invalid="ignore"):
        wide = bits.view(np.float64).astype(np.float32)
    numbers = np.where(is_short, bits.astype(np.uint32).view(np.float32), wide)
    # Anything but a FLOAT is 0, as in the reference.
    return float_texts(np.where(np.isfinite(numbers), numbers, np.float32(0)))
