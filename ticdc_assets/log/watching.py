"""Check a source for new records, often and cheaply; nothing is landed or written.

In: a lake. Out: how far its source is, as a value that stays the same until there is more.
"""

import time
from collections.abc import Hashable, Mapping

from ticdc_assets.base.errors import SourceUnavailableError
from ticdc_assets.config import CaptureSource, KafkaSource
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.positions import read_position
from ticdc_assets.log.sources import see_source
from ticdc_assets.source.kafka.administration import Administration

_LISTING_SECONDS = 30.0
"""How long the list of topics and partitions is used."""


class SourceWatcher:
    """Checks one source for new records; use it for as long as a run follows.

    For Kafka, a check reads the ends of the partitions over one open connection; every half minute,
    and after a failure, the topics are listed again, to include new topics. For a capture,
    it is one stat of the file.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._administration: Administration | None = None
        self._places: list[tuple[str, int]] = []
        self._bases: Mapping[tuple[str, int], int] = {}
        self._listed_at = float("-inf")

    def look(self) -> Hashable:
        """Return how far the source is: a value that stays the same until it has more records.

        Raises:
            SourceUnavailableError: it cannot be read now.
        """
        match self._lake.changefeed.source:
            case CaptureSource() as source:
                try:
                    stat = source.path.stat()
                except OSError:
                    return self._list()  # its error explains the problem
                return (stat.st_size, stat.st_mtime_ns)
            case KafkaSource() as source:
                return self._look_at(source)

    def _look_at(self, source: KafkaSource) -> Hashable:
        if not self._places or time.monotonic() - self._listed_at >= _LISTING_SECONDS:
            return self._list()
        if self._administration is None:
            self._administration = Administration(source)
        try:
            ends = self._administration.ends(self._places)
        except SourceUnavailableError:
            # A topic may be gone while the others are there.
            return self._list()
        bases = self._bases
        return tuple(sorted((place, end + bases.get(place, 0)) for place, end in ends.items()))

    def _list(self) -> Hashable:
        self._places = []
        partitions = see_source(self._lake).present
        self._bases = read_position(self._lake.paths).bases
        self._places = [(item.topic, item.partition) for item in partitions]
        self._listed_at = time.monotonic()
        return tuple(((item.topic, item.partition), item.end) for item in partitions)
