"""Commands that bring mirrors on: `sync`, and `redrive` after a fix."""

from collections.abc import Iterable
from typing import Any

import click

from ticdc_assets.cli.base import checked_moment, feed_of, main, note, reported_errors
from ticdc_assets.cli.waiting import end_progress_lines
from ticdc_assets.config import KafkaSource, Settings, load_settings
from ticdc_assets.errors import TicdcError
from ticdc_assets.tso import cut_of

_FOREVER_SECONDS = 10 * 365 * 86_400.0


@main.command()
@click.argument("changefeed", required=False)
@click.option(
    "--until",
    metavar="TSO|TIME",
    callback=checked_moment,
    help="Do not cut beyond this TSO, or time in ISO 8601 (UTC).",
)
@click.option("--max-records", type=click.IntRange(min=1), help="Land at most so many records.")
@click.option("--follow", is_flag=True, help="Go on syncing what arrives, until Ctrl-C.")
@click.option(
    "--seconds", type=click.FloatRange(min=0), help="With --follow: end after so many seconds."
)
@reported_errors
def sync(
    changefeed: str | None,
    until: str | None,
    max_records: int | None,
    follow: bool,
    seconds: float | None,
) -> None:
    """Land, decode, register and apply what is there, once, as a run of the Dagster job.

    With --follow it syncs again whenever the source has more; a sync that is under way is finished
    before it ends. It ends too when another run of the changefeed wants to write.

    Without CHANGEFEED all of them, one after the other. The mirrors are cut at exactly
    min(TSO, global watermark). Where they are beyond TSO already, nothing is changed. A changefeed
    without commit ts (Canal-JSON without the TiDB extension) is cut at all that landed, or a TIME.
    """
    settings = load_settings()
    if seconds is not None and not follow:
        raise click.UsageError("--seconds says how long to --follow; give both")
    if follow:
        if changefeed is None:
            raise click.UsageError("--follow needs the CHANGEFEED to follow")
        if until is not None or max_records is not None:
            raise click.UsageError("--follow syncs all there is; leave out --until, --max-records")
        _follow(settings, changefeed, seconds)
        return
    if changefeed is not None:
        _sync_one(settings, changefeed, until, max_records)
        return
    failed: list[str] = []
    for feed in settings.changefeeds:
        try:
            _sync_one(settings, feed.name, until, max_records)
        except TicdcError as error:
            # One whose broker is down does not keep the others from going on.
            note(f"{feed.name}: {error}")
            failed.append(feed.name)
    if failed:
        raise click.ClickException(f"could not sync {', '.join(failed)}; the reasons stand above")


def _follow(settings: Settings, name: str, seconds: float | None) -> None:
    settings.changefeed(name)
    end_progress_lines()
    from ticdc_assets.defs.run import run_follow

    run_follow(
        settings,
        name,
        seconds=_FOREVER_SECONDS if seconds is None else seconds,
        say=lambda text: click.echo(f"{name}: {text}"),
    )


def _sync_one(settings: Settings, name: str, until: str | None, max_records: int | None) -> None:
    from ticdc_assets.kafka.administration import reach
    from ticdc_assets.pipeline.cuts import newest_cut

    feed, paths = feed_of(settings, name)
    cut = newest_cut(paths)
    if until is not None:
        # A wrong word is told before anything is landed.
        wanted = cut_of(until, es_only=cut is not None and cut.es_only)
        if cut is not None and cut.tso > wanted:
            click.echo(
                f"{name}: the mirrors are at {cut.moment}, beyond {until}; nothing was changed"
            )
            return
    if isinstance(feed.source, KafkaSource):
        # A wrong password or a dead broker is told before Dagster is there, and makes no run.
        reach(feed.source)
    from ticdc_assets.defs.run import run_sync

    for line in sync_lines(name, run_sync(settings, name, until=until, max_records=max_records)):
        click.echo(line)


def sync_lines(name: str, report: Any) -> Iterable[str]:
    """Yield the lines that tell what a sync did."""
    landing, decoding, applying = report.landing, report.decoding, report.applying
    changes = ", ".join(f"{count} {kind}" for kind, count in sorted(decoding.changes.items()))
    yield f"{name}: landed {landing.records} records, {landing.backlog} wait in the source"
    yield f"{name}: decoded {changes or 'nothing'}; quarantined {decoding.quarantined} records"
    yield f"{name}: {applying.outcome}: {applying.reason}"
    for check in report.checks:
        if not check.passed:
            yield f"{name}: check {check.name}: {check.severity}: {check.description}"
    cut = applying.cut
    if cut is None:
        return
    held = sum(item.rows for item in cut.held)
    if held:
        since = min(item.since for item in cut.held)
        yield f"{name}: {held} rows are held for their schema, since {since:%Y-%m-%d %H:%M:%S} UTC"
    if cut.replays or cut.late:
        yield f"{name}: {cut.replays} replayed rows ignored, {cut.late} late rows folded in"
    if cut.unplaced:
        yield f"{name}: {cut.unplaced} rows landed below what is kept and were not applied"
    unknown = sum(item.unknown_deletes for item in cut.mirrors)
    if unknown:
        yield f"{name}: {unknown} deletes of rows that were not there, so far"
    if cut.steps_back:
        yield f"{name}: {cut.steps_back} watermarks stepped back and were ignored, so far"
    for text in applying.repaired:
        yield f"{name}: made again: {text}"
    if applying.renamed:
        yield f"{name}: _ticdc_extra is _rescued_data now in: {', '.join(applying.renamed)}"
    for failure in cut.failed:
        yield f"{name}: failed: {failure.sentence}"
    for account in cut.unaccounted:
        yield f"{name}: not accounted for: {account.sentence}"
    incomplete = [
        f"{item.database}.{item.table}"
        for item in cut.mirrors
        if item.incomplete and not item.failed
    ]
    if incomplete:
        yield f"{name}: incomplete mirrors: {', '.join(incomplete)}"


@main.command()
@click.argument("changefeed")
@reported_errors
def redrive(changefeed: str) -> None:
    """Decode and apply the quarantined records of CHANGEFEED again, after a fix."""
    from ticdc_assets.pipeline.quarantine import count_open

    settings = load_settings()
    _, paths = feed_of(settings, changefeed)
    waiting = count_open(paths)
    if not waiting.decode and not waiting.apply:
        click.echo(f"{changefeed}: nothing is quarantined")
        return
    from ticdc_assets.defs.run import run_redrive

    report = run_redrive(settings, changefeed)
    redriving = report.redriving
    click.echo(
        f"{changefeed}: {redriving.records} quarantined records tried again, "
        f"{redriving.decoded} decoded now, {redriving.still_quarantined} still refused"
    )
    click.echo(f"{changefeed}: {report.applying.outcome}: {report.applying.reason}")
