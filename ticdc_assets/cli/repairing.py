"""Commands that repair tables, or keep them small.

`rewind`, `backfill`, `rebuild`, `accept-gap` and `maintain`. Each takes the writer's lock, itself
or in the Dagster job that it runs, so none of them runs during a sync.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import click

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.names import counted, user_at_host
from ticdc_assets.cli.base import checked_moment, lake_of, main, note
from ticdc_assets.cli.completing import changefeed_argument
from ticdc_assets.cli.printing import shown_text
from ticdc_assets.cli.syncing import applied_lines, sync_lines
from ticdc_assets.config import load_settings
from ticdc_assets.model.tso import cut_of


@main.command()
@changefeed_argument()
@click.option(
    "--to",
    "moment",
    metavar="TSO|TIME",
    callback=checked_moment,
    help="Go back to the newest kept cut at or below this TSO, or time in ISO 8601 (UTC).",
)
@click.option("--cut", "number", type=click.IntRange(min=1), help="Go back to this cut.")
def rewind(changefeed: str, moment: str | None, number: int | None) -> None:
    """Make an older cut of CHANGEFEED the newest one again; syncs continue from there.

    Use it after a wrong cut, for example from a watermark far in the future. Events further ahead
    than `max_ahead_seconds` are first moved from the change log to quarantine, so that they no
    longer count. The cuts in between become void: they are no longer read.
    """
    if (moment is None) == (number is None):
        raise click.UsageError("give the cut to go back to: --to TSO, or --cut NUMBER")
    from ticdc_assets.log.cuts import require_cut
    from ticdc_assets.repair.rewinding import rewind as rewound

    lake = lake_of(load_settings(), changefeed)
    with lake.writing():
        es_only = require_cut(lake.paths).es_only
        done = rewound(
            lake,
            by=user_at_host(),
            tso=None if moment is None else cut_of(moment, es_only=es_only),
            number=number,
        )
    if done.quarantined:
        ahead = counted(done.quarantined, "event too far ahead was", "events too far ahead were")
        click.echo(f"{changefeed}: {ahead} moved to quarantine")
    if done.cut is done.before:
        click.echo(
            f"{changefeed}: cut {done.older.number} at {done.older.moment} is already the newest "
            "one; nothing was rewound"
        )
        return
    click.echo(
        f"{changefeed}: cut {done.cut.number} is cut {done.older.number} again, at "
        f"{done.older.moment}; the cuts since, up to {done.before.number} at "
        f"{done.before.moment}, are void"
    )
    click.echo(f"{changefeed}: run `ticdc-assets sync {changefeed}` if no sensor does")


_day = partial(click.option, type=click.DateTime(formats=["%Y-%m-%d"]), metavar="YYYY-MM-DD")


@main.command()
@changefeed_argument()
@_day("--day", "days", multiple=True, help="Landing day (UTC) to decode again.")
@_day("--from", "first", help="First of several landing days; needs --to.")
@_day("--to", "last", help="Last of the days; needs --from.")
@click.option(
    "--table",
    "tables",
    metavar="DATABASE.TABLE",
    multiple=True,
    help="Table to fold again from the change log.",
)
@click.option(
    "--accept-losses", is_flag=True, help="Let rows go whose record is refused now; needs days."
)
def backfill(
    changefeed: str,
    days: Sequence[datetime],
    first: datetime | None,
    last: datetime | None,
    tables: Sequence[str],
    *,
    accept_losses: bool,
) -> None:
    """Decode landing days of CHANGEFEED again, or fold tables again, while syncs go on.

    A day's records are decoded again and compared with the change log. If they differ, the day is
    replaced there, and the tables that differ are folded again. A table is folded again from the
    whole change log, at the newest cut.
    """
    if (first is None) != (last is None):
        raise click.UsageError("--from and --to need each other")
    if bool(tables) == bool(days or first):
        raise click.UsageError("give either days (--day, or --from and --to) or tables (--table)")
    if accept_losses and tables:
        raise click.UsageError("--accept-losses needs days: a table is folded again without losses")
    from ticdc_assets.orchestration.run import backfill_days, backfill_tables, days_between

    settings = load_settings()
    if tables:
        cut, mirrors = backfill_tables(settings, changefeed, tables)
        for item in mirrors:
            click.echo(
                f"{changefeed}: {shown_text(item.database)}.{shown_text(item.table)}: folded "
                f"again, {counted(item.rows, 'row')} at {cut.moment}"
            )
        return
    wanted = {day.date() for day in days}
    if first is not None and last is not None:
        wanted.update(days_between(first.date(), last.date()))
    for redecoding in backfill_days(settings, changefeed, wanted, accept_losses=accept_losses):
        for day in redecoding.days:
            click.echo(f"{changefeed}: {day.sentence()}")
        if redecoding.applying is not None:
            click.echo(f"{changefeed}: {redecoding.applying.reason}")


@main.command()
@changefeed_argument()
@click.option(
    "--accept-losses",
    is_flag=True,
    help="Publish the rebuilt tables although they lack something that the published ones have.",
)
def rebuild(changefeed: str, *, accept_losses: bool) -> None:
    """Make all tables of CHANGEFEED again from what landed, and put them in place of the old ones.

    Use it for damaged tables that `backfill --table` does not repair. The new mirrors are compared
    with the published ones, and what differs is printed. Readers have the old mirrors until the new
    ones are published, all at once; older cuts stay readable until maintenance removes them.
    """
    from ticdc_assets.log.sources import see_source
    from ticdc_assets.orchestration.run import run_rebuild, run_redrive, run_sync
    from ticdc_assets.repair.rebuilding import keeps_landings

    settings = load_settings()
    lake = lake_of(settings, changefeed)
    if not keeps_landings(lake.paths):
        # Without its partitions nothing can be published: the source has to say them.
        for gap in see_source(lake).gaps:
            raise gap.error
    done = run_rebuild(settings, changefeed, accept_losses=accept_losses)
    for line in done.lines():
        click.echo(f"{changefeed}: {shown_text(line)}")
    if done.cut is not None:
        return
    try:
        lines = sync_lines(changefeed, run_sync(settings, changefeed))
    except TicdcError as error:
        # It may be the source's. What else it may be ends this run too.
        report = run_redrive(settings, changefeed, quarantined=False)
        lines = applied_lines(changefeed, report)
        note(f"{changefeed}: nothing new was landed: {error}")
    for line in lines:
        click.echo(line)


@main.command()
@changefeed_argument()
@click.option("--dry-run", is_flag=True, help="Only count what would be removed.")
def maintain(changefeed: str, *, dry_run: bool) -> None:
    """Remove old data of CHANGEFEED; compact and vacuum its tables.

    The setting `retention` says how long data is kept. No row of a mirror changes, and every kept
    cut stays readable.
    """
    settings = load_settings()
    lake = lake_of(settings, changefeed)
    if dry_run:
        from ticdc_assets.repair.maintenance import maintain as maintained

        with lake.writing():
            done = maintained(lake, dry_run=True)
        retaining = done.retaining
        click.echo(
            f"{changefeed}: would remove {counted(retaining.changes, 'row')} of change_log, "
            f"{counted(retaining.records, 'record')} of raw_messages and "
            f"{counted(retaining.cuts, 'cut')}"
        )
    else:
        from ticdc_assets.orchestration.run import run_maintenance

        done = run_maintenance(settings, changefeed)
    for line in done.lines():
        click.echo(f"{changefeed}: {shown_text(line)}")


@main.command("accept-gap")
@changefeed_argument()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
def accept_gap(changefeed: str, topic: str, partition: int) -> None:
    """Let landing of CHANGEFEED continue after the gap in PARTITION of TOPIC.

    The records of the gap are lost. The lake records who accepted it, when, and its offsets.
    Mirrors that may lack changes are marked until their table is created or truncated again. The
    next sync lands from the first record that exists.
    """
    from ticdc_assets.log.sources import accept, see_source

    lake = lake_of(load_settings(), changefeed)
    with lake.writing():
        gap = accept(lake, topic, partition)
        left = see_source(lake).gaps
    click.echo(f"{changefeed}: accepted the loss of {shown_text(gap.sentence)}")
    click.echo(
        f"{changefeed}: run `ticdc-assets sync {changefeed}` if no sensor does: it lands from "
        f"offset {gap.to_offset} on, and marks mirrors that may lack changes"
    )
    for other in left:
        click.echo(f"{changefeed}: another {shown_text(str(other.error))}")


@main.command("accept-loss")
@changefeed_argument()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
def accept_loss(changefeed: str, topic: str, partition: int, offset: int) -> None:
    """Give up one record of CHANGEFEED that is in quarantine and cannot be decoded.

    Such a record may have changes of any table, so retention removes nothing that landed after it.
    Use this if no decoder will ever read the record; `quarantine` lists its place. The lake records
    who gave it up, when, and why. Mirrors that may lack changes are marked until their table is
    created or truncated again.
    """
    from ticdc_assets.repair.redriving import give_up

    lake = lake_of(load_settings(), changefeed)
    with lake.writing():
        gap = give_up(lake, topic, partition, offset, by=user_at_host())
    click.echo(f"{changefeed}: accepted the loss of {shown_text(gap.sentence)}")
    click.echo(
        f"{changefeed}: run `ticdc-assets sync {changefeed}` if no sensor does: it marks mirrors "
        "that may lack changes"
    )
