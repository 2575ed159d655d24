"""A stand-in changefeed with what no demo asks of it: large messages."""

from collections.abc import Sequence
from dataclasses import dataclass

from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.transaction import CommittedRow
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import Event, RowChange
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.demo.simulator.large_messages import LargeMessages, LargeMessageWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class OddFeedOptions(FeedOptions):
    """How an odd changefeed sends.

    Attributes:
        large_messages: what becomes of messages that are too large; None if none is.
    """

    large_messages: LargeMessages | None = None


class OddChangefeed(StandInChangefeed):
    """A changefeed that cuts a row whose message would be too large to its handle key.

    Raises:
        ValueError: the format does not have what the options ask for.
    """

    def __init__(
        self,
        upstream: Upstream,
        topic: str,
        *,
        partitions: int = 4,
        wire_format: WireFormat = WireFormat.SIMPLE_JSON,
        options: FeedOptions | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            upstream,
            topic,
            partitions=partitions,
            wire_format=wire_format,
            options=options,
            seed=seed,
        )
        self._large: LargeMessageWriter | None = None
        if isinstance(options, OddFeedOptions) and options.large_messages is not None:
            if not self._form.has_commit_ts:
                raise ValueError(f"{wire_format} has no large messages without the TiDB extension")
            self._large = LargeMessageWriter(
                wire_format,
                self._form.encode,
                options.compression,
                options.large_messages,
                seed=seed,
            )

    def _row_change(self, row: CommittedRow, commit_ts: int, build_ms: int) -> RowChange:
        sent = super()._row_change(row, commit_ts, build_ms)
        return sent if self._large is None else self._large.sent(sent, row.schema.handle_key)

    def _encode(self, events: Sequence[Event]) -> Sequence[Record]:
        if self._large is None:
            return super()._encode(events)
        return self._form.encode(events, max_message_bytes=self._large.max_message_bytes)
