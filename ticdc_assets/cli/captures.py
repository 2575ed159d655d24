"""Commands on captures, files of Kafka records: `record`, `play` and `decode`."""

from pathlib import Path

import click

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.base.names import counted
from ticdc_assets.cli.base import lake_of, main, note
from ticdc_assets.cli.completing import changefeed_argument
from ticdc_assets.cli.printing import print_json
from ticdc_assets.config import (
    WIRE_FORMATS,
    CaptureSource,
    Changefeed,
    KafkaSource,
    load_settings,
)


def _kafka_source(feed: Changefeed) -> KafkaSource:
    if not isinstance(feed.source, KafkaSource):
        raise ConfigError(
            f"the source of changefeed {feed.name!r} is a capture; this command needs Kafka"
        )
    return feed.source


@main.command()
@changefeed_argument()
@click.argument("capture", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--limit", type=click.IntRange(min=1), help="Record at most this many records.")
def record(changefeed: str, capture: Path, limit: int | None) -> None:
    """Record the topics of CHANGEFEED into the file CAPTURE (gzip if its name ends in .gz).

    An existing capture is continued.
    """
    from ticdc_assets.source.transfer import record_topic

    lake = lake_of(load_settings(), changefeed)
    count, is_all = record_topic(_kafka_source(lake.changefeed), capture, limit=limit)
    more = "" if is_all else "; there are more"
    click.echo(f"recorded {counted(count, 'record')} of {changefeed} into {capture}{more}")


@main.command()
@click.argument("capture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@changefeed_argument()
@click.option("--limit", type=click.IntRange(min=1), help="Play at most this many records.")
def play(capture: Path, changefeed: str, limit: int | None) -> None:
    """Play the file CAPTURE into the Kafka cluster of CHANGEFEED.

    Topics, partitions, keys, timestamps and order stay the same. Missing topics are created.
    """
    from ticdc_assets.source.transfer import play_capture

    lake = lake_of(load_settings(), changefeed)
    count, is_all, partitions = play_capture(
        CaptureSource(path=capture.resolve()), _kafka_source(lake.changefeed), limit=limit
    )
    topics = ", ".join(f"{name} ({counted(n, 'partition')})" for name, n in partitions.items())
    more = "" if is_all else "; there are more"
    click.echo(f"played {counted(count, 'record')} of {capture} into {topics or 'nothing'}{more}")


@main.command()
@click.argument("capture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "wire_format",
    type=click.Choice(WIRE_FORMATS),
    required=True,
    help="The format of its messages.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "snappy"]),
    default="none",
    show_default=True,
    help="The compression of the values; messages do not say it.",
)
@click.option("--claim-check", metavar="URI", help="Where rows too large for a message are stored.")
@click.option("--raw-value", is_flag=True, help="Claim-check files hold the bare value.")
@click.option("--timezone", help="Show TIMESTAMPs in this zone; by default, as sent.")
def decode(
    capture: Path,
    *,
    wire_format: str,
    compression: str,
    claim_check: str | None,
    raw_value: bool,
    timezone: str | None,
) -> None:
    """Print the events in the file CAPTURE as JSON lines, at least one for every offset.

    Values are canonical text, with the schemas seen so far. A row whose schema was not seen yet has
    "held": true and its values as sent. A record that is not a message becomes a line of type
    "error" with the reason and the position.
    """
    from ticdc_assets.config import ClaimCheck
    from ticdc_assets.model.values.zones import changefeed_zone
    from ticdc_assets.source.capture import CaptureReader
    from ticdc_assets.source.claim_check import ClaimCheckStore
    from ticdc_assets.source.event_lines import CaptureFormat, event_lines
    from ticdc_assets.wire import WireFormat
    from ticdc_assets.wire.compression import Compression, supports

    if timezone is not None:
        changefeed_zone(timezone)
    how = (WireFormat(wire_format), Compression(compression))
    if not supports(*how):
        raise click.UsageError(f"TiCDC does not compress {wire_format}")
    store = None
    if claim_check is not None:
        location = claim_check if "://" in claim_check else str(Path(claim_check).absolute())
        store = ClaimCheckStore(ClaimCheck(location=location, raw_value=raw_value), *how)
    elif raw_value:
        raise click.UsageError("--raw-value needs --claim-check")
    capture_format = CaptureFormat(
        wire_format=how[0], compression=how[1], timezone=timezone, store=store
    )
    with CaptureReader(capture) as records:
        for line in event_lines(records, capture_format):
            print_json(line)
        if records.incomplete_tail:
            note(f"{capture} ends in the middle of a line; that line is left out")
