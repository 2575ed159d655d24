"""Commands that bring mirrors up to date: `sync`, and `redrive` after a fix."""

import gc
import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import tell
from ticdc_assets.cli.base import (
    FiniteRange,
    checked_moment,
    end_with,
    failure_of,
    lake_of,
    main,
    note,
)
from ticdc_assets.cli.completing import changefeed_argument
from ticdc_assets.cli.interrupted import ignore_the_next, sentence
from ticdc_assets.cli.printing import backlog_text
from ticdc_assets.cli.waiting import end_progress_lines
from ticdc_assets.config import KafkaSource, Settings, load_settings
from ticdc_assets.model.tso import cut_of, moment_text
from ticdc_assets.observe.wording import listed

if TYPE_CHECKING:
    from ticdc_assets.log.cuts import Cut
    from ticdc_assets.observe.status import Status


@main.command()
@changefeed_argument(required=False)
@click.option(
    "--until",
    metavar="TSO|TIME",
    callback=checked_moment,
    help="Do not cut beyond this TSO, or time in ISO 8601 (UTC).",
)
@click.option("--max-records", type=click.IntRange(min=1), help="Land at most this many records.")
@click.option("--follow", is_flag=True, help="Keep syncing new records, until Ctrl-C.")
@click.option(
    "--seconds", type=FiniteRange(min=0), help="With --follow: end after this many seconds."
)
def sync(
    changefeed: str | None,
    until: str | None,
    max_records: int | None,
    follow: bool,
    seconds: float | None,
) -> None:
    """Land, decode, register and apply the records of the source, as one run of the Dagster job.

    With --follow it syncs again whenever the source has more records, and prints a line for each
    cut. Ctrl-C ends it after the sync under way, and a second Ctrl-C at once. It also ends when
    another run of the changefeed wants to write.

    If another process writes to the changefeed's tables, it waits for up to 10 minutes.

    Without CHANGEFEED it syncs all of them, one after the other. The mirrors are cut at exactly
    min(TSO, global watermark). If they are already beyond TSO, nothing is changed. A changefeed
    without commit ts (Canal-JSON without the TiDB extension) is cut after everything that landed,
    or at a TIME.
    """
    settings = load_settings()
    if seconds is not None and not follow:
        raise click.UsageError("--seconds needs --follow")
    if follow:
        if changefeed is None:
            raise click.UsageError("--follow needs a CHANGEFEED")
        if until is not None or max_records is not None:
            raise click.UsageError("--follow excludes --until and --max-records")
        _follow(settings, changefeed, seconds)
        return
    if changefeed is not None:
        _sync_one(settings, changefeed, until, max_records)
        return
    failed: list[str] = []
    for feed in settings.changefeeds:
        # A changefeed whose broker is down, or whose folder is another user's, stops no other.
        failure = failure_of(
            partial(_sync_one, settings, feed.name, until, max_records), f"sync of {feed.name}"
        )
        if failure is not None:
            note(f"{feed.name}: {failure}")
            failed.append(feed.name)
    if failed:
        raise click.ClickException(f"could not sync {', '.join(failed)}; see the reasons above")


def _follow(settings: Settings, name: str, seconds: float | None) -> None:
    """Follow until Ctrl-C, whenever that comes, or until the time is over."""
    source = settings.changefeed(name).source
    if isinstance(source, KafkaSource):
        shown = f"{source.topics_shown} at {source.bootstrap_servers}"
    else:
        shown = str(source.path)
    click.echo(f"{name}: following {shown} until Ctrl-C")

    def say(text: str) -> None:
        # From here on the run itself says what it does.
        end_progress_lines()
        click.echo(f"{name}: {text}")

    try:
        lake = lake_of(settings, name)
        from ticdc_assets.log.cuts import newest_cut
        from ticdc_assets.orchestration.run import run_follow

        report = run_follow(
            settings, name, seconds=math.inf if seconds is None else seconds, say=say
        )
        is_stopped = report.followed.is_stopped
        failures = list(account_failures(name, newest_cut(lake.paths)))
    except KeyboardInterrupt:
        is_stopped, failures = True, []
    if is_stopped:
        ignore_the_next()
        click.echo(f"{name}: {sentence('sync')}")
        return
    end_with(failures)


def _sync_one(settings: Settings, name: str, until: str | None, max_records: int | None) -> None:
    from ticdc_assets.log.cuts import newest_cut
    from ticdc_assets.source.kafka.administration import Administration

    lake = lake_of(settings, name)
    cut = newest_cut(lake.paths)
    if until is not None:
        # A wrong word is an error before anything is landed.
        wanted = cut_of(until, es_only=cut is not None and cut.es_only)
        if cut is not None and cut.tso > wanted:
            until = moment_text(wanted, es_only=cut.es_only)
            click.echo(
                f"{name}: the mirrors are at {cut.moment}, after {until}; nothing was changed"
            )
            return
    source = lake.changefeed.source
    if isinstance(source, KafkaSource):
        # A wrong password or a dead broker is an error before Dagster is imported, without a run.
        tell(f"asking {source.bootstrap_servers}")
        Administration(source).topics_of(source)
    last = None
    if until is None and max_records is None:
        from ticdc_assets.cli.quiet_sync import LastSync

        last = LastSync(settings, lake)
        last.look()
        quiet = last.quiet()
        if quiet is not None:
            reason, status = quiet
            for line in quiet_lines(name, reason, status):
                click.echo(line)
            end_with(account_failures(name, status.cut))
            return
    from ticdc_assets.orchestration.run import run_sync

    gc.freeze()  # what imports made
    report = run_sync(
        settings,
        name,
        until=until,
        max_records=max_records,
        say=lambda text: note(f"{name}: {text}"),
    )
    for line in sync_lines(name, report):
        click.echo(line)
    if last is not None:
        last.keep(None if report.applying.cut is None else report.applying.cut.number)
    end_with(sync_failures(name, report))


def sync_failures(name: str, report: Any) -> Iterable[str]:
    """Yield why a sync that ended well is a failure all the same, a sentence each."""
    landing, decoding = report.landing, report.decoding
    if landing.records and decoding.quarantined and not sum(decoding.changes.values()):
        yield (
            f"{name}: everything that landed, {counted(landing.records, 'record')}, went to "
            "quarantine: `format`, "
            "`compression` or `claim_check` of the changefeed may be wrong. Run `ticdc-assets "
            f"doctor`, correct the changefeeds file, and run: ticdc-assets redrive {name}"
        )
    yield from account_failures(name, report.applying.cut)


def account_failures(name: str, cut: "Cut | None") -> Iterable[str]:
    """Yield that row changes of a cut are not accounted for, if some are not."""
    tables = [] if cut is None else cut.unaccounted
    if tables:
        count = sum(item.unaccounted for item in tables)
        names = listed(joined_name(item.database, item.table) for item in tables)
        verb = "is" if count == 1 else "are"
        yield (
            f"{name}: {counted(count, 'row change')} of {names} {verb} in no mirror, neither held "
            f"nor in quarantine: see check changes_accounted in `ticdc-assets status {name}`"
        )


def quiet_lines(name: str, reason: str, status: "Status") -> Iterable[str]:
    """Yield the lines of a sync with nothing to do."""
    from ticdc_assets.observe.verdicts import Check, Level

    yield f"{name}: landed 0 records, {backlog_text(status.backlog)}"
    yield f"{name}: decoded nothing; quarantined 0 records"
    yield f"{name}: unchanged: {reason}"
    for check, verdict in status.verdicts.items():
        # Nothing came into quarantine since the sync before looked.
        if verdict.level is not Level.OK and check is not Check.QUARANTINE_GROWTH:
            yield f"{name}: check {check}: {verdict.level.word}: {verdict.sentence}"
    if status.cut is not None:
        yield from _cut_lines(name, status.cut)


def sync_lines(name: str, report: Any) -> Iterable[str]:
    """Yield the lines that report a sync."""
    landing = report.landing
    landed = counted(landing.records, "record")
    yield f"{name}: landed {landed}, {backlog_text(landing.backlog)}"
    yield from applied_lines(name, report)


def applied_lines(name: str, report: Any) -> Iterable[str]:
    """Yield the lines that report what a run did with landed records."""
    from ticdc_assets.orchestration.verdicts import commands_named, level_of

    decoding, applying = report.decoding, report.applying
    changes = ", ".join(f"{count:,} {kind}" for kind, count in sorted(decoding.changes.items()))
    quarantined = counted(decoding.quarantined, "record")
    yield f"{name}: decoded {changes or 'nothing'}; quarantined {quarantined}"
    yield f"{name}: {applying.outcome}: {applying.reason}"
    for check in report.checks:
        if not check.passed:
            sentence = commands_named(check.description or "")
            yield f"{name}: check {check.check_name}: {level_of(check).word}: {sentence}"
    for text in applying.repaired:
        yield f"{name}: made again: {text}"
    if applying.cut is not None:
        yield from _cut_lines(name, applying.cut)


def _cut_lines(name: str, cut: Any) -> Iterable[str]:
    for created, what in ((True, "their schema"), (False, "a table that no message created")):
        held = [item for item in cut.held if (item.mirror_id is not None) == created]
        if held:
            since = min(item.since for item in held)
            names = listed(dict.fromkeys(joined_name(it.database, it.table) for it in held))
            rows = counted(sum(item.rows for item in held), "row waits", "rows wait")
            yield f"{name}: {rows} for {what}, since {since:%Y-%m-%d %H:%M:%S} UTC: {names}"
    if cut.replays or cut.late:
        replays, late = counted(cut.replays, "replayed row"), counted(cut.late, "late row")
        yield f"{name}: ignored {replays}, folded in {late}"
    if cut.unplaced:
        unplaced = counted(cut.unplaced, "row")
        yield f"{name}: not applied: {unplaced} that landed below the truncation"
    unknown = sum(item.unknown_deletes for item in cut.mirrors)
    if unknown:
        yield f"{name}: {counted(unknown, 'delete')} of missing rows, so far"
    if cut.steps_back:
        yield f"{name}: ignored {counted(cut.steps_back, 'watermark')} that went back, so far"
    for failure in cut.failed:
        yield f"{name}: failed: {failure.sentence}"
    for account in cut.unaccounted:
        yield f"{name}: not accounted for: {account.sentence}"
    incomplete = [
        joined_name(item.database, item.table)
        for item in cut.mirrors
        if item.incomplete and not item.failed
    ]
    if incomplete:
        yield f"{name}: incomplete mirrors: {listed(incomplete)}"


@main.command()
@changefeed_argument()
def redrive(changefeed: str) -> None:
    """Decode and apply the quarantined records of CHANGEFEED again, after a fix."""
    from ticdc_assets.log.quarantine import count_open

    settings = load_settings()
    lake = lake_of(settings, changefeed)
    waiting = count_open(lake.paths)
    if not waiting.decode and not waiting.apply:
        click.echo(f"{changefeed}: nothing is quarantined")
        return
    from ticdc_assets.orchestration.run import run_redrive

    report = run_redrive(settings, changefeed)
    redriving = report.redriving
    click.echo(
        f"{changefeed}: tried {counted(redriving.records, 'quarantined record')} again: "
        f"{redriving.decoded} decoded, {redriving.still_quarantined} still refused"
    )
    click.echo(f"{changefeed}: {report.applying.outcome}: {report.applying.reason}")
