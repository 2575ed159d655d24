"""Commands on captures, files of Kafka records: `record`, `play` and `decode`."""

import json
from pathlib import Path

import click

from ticdc_assets.cli.base import feed_of, main, note, reported_errors
from ticdc_assets.cli.printing import print_json
from ticdc_assets.config import (
    WIRE_FORMATS,
    CaptureSource,
    Changefeed,
    KafkaSource,
    load_settings,
)
from ticdc_assets.errors import ConfigError


def _kafka_source(feed: Changefeed) -> KafkaSource:
    if not isinstance(feed.source, KafkaSource):
        raise ConfigError(
            f"changefeed {feed.name!r} has a capture as its source; this command needs Kafka"
        )
    return feed.source


@main.command()
@click.argument("changefeed")
@click.argument("capture", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--limit", type=click.IntRange(min=1), help="Record at most so many records.")
@reported_errors
def record(changefeed: str, capture: Path, limit: int | None) -> None:
    """Record the topics of CHANGEFEED into the file CAPTURE (gzip if its name ends in .gz).

    A capture that exists is continued.
    """
    from ticdc_assets.transfer import record_topic

    feed, _ = feed_of(load_settings(), changefeed)
    done = record_topic(_kafka_source(feed), capture, limit=limit)
    more = "" if done.complete else "; there are more"
    click.echo(f"recorded {done.records} records of {changefeed} into {capture}{more}")


@main.command()
@click.argument("capture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("changefeed")
@click.option("--limit", type=click.IntRange(min=1), help="Play at most so many records.")
@reported_errors
def play(capture: Path, changefeed: str, limit: int | None) -> None:
    """Play the file CAPTURE into the Kafka cluster of CHANGEFEED.

    Topics, partitions, keys, timestamps and order are kept; a topic that is missing is made.
    """
    from ticdc_assets.transfer import play_capture

    feed, _ = feed_of(load_settings(), changefeed)
    done = play_capture(
        CaptureSource(path=capture.resolve()),
        _kafka_source(feed),
        limit=limit,
    )
    topics = ", ".join(f"{topic} ({count} partitions)" for topic, count in done.partitions.items())
    more = "" if done.complete else "; there are more"
    click.echo(f"played {done.records} records of {capture} into {topics or 'nothing'}{more}")


@main.command()
@click.argument("capture", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format", "wire_format", type=click.Choice(WIRE_FORMATS), required=True, help="Its format."
)
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "snappy"]),
    default="none",
    show_default=True,
    help="How the values were compressed; messages carry no mark of it.",
)
@click.option("--claim-check", metavar="URI", help="Where rows too large for a message were put.")
@click.option("--raw-value", is_flag=True, help="Claim checks hold the bare value.")
@click.option("--timezone", help="Show TIMESTAMPs in this zone; as they were sent if not set.")
@reported_errors
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

    Values are canonical text as far as the schemas seen up to there tell; a row whose schema was
    not seen yet has "held": true and its values as sent. What is no message is a line of type
    "error" with the reason and the position.
    """
    from ticdc_assets.capture import read_capture
    from ticdc_assets.claim_check import ClaimCheckStore
    from ticdc_assets.config import ClaimCheck
    from ticdc_assets.event_lines import CaptureFormat, event_lines
    from ticdc_assets.values.zones import changefeed_zone
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
        raise click.UsageError("--raw-value says what is in --claim-check, which is not given")
    capture_format = CaptureFormat(
        wire_format=how[0], compression=how[1], timezone=timezone, store=store
    )
    with read_capture(capture) as records:
        for line in event_lines(records, capture_format):
            print_json(json.dumps(line, ensure_ascii=False))
        if records.incomplete_tail:
            note(f"{capture} ends in the middle of a line, which is left out")
