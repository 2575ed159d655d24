"""Commands about this machine: `doctor`, `demo`, `upstream`, `ui`, `broker` and `sample`."""

import signal
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ticdc_assets.base.errors import SourceUnavailableError
from ticdc_assets.base.names import counted
from ticdc_assets.base.ports import require_free
from ticdc_assets.cli.base import main, note
from ticdc_assets.cli.printing import print_table
from ticdc_assets.cli.waiting import end_progress_lines, own_lines
from ticdc_assets.config import WIRE_FORMATS, load_settings
from ticdc_assets.demo.place import DIRECTORY, run_upstream, use_demo

if TYPE_CHECKING:
    from ticdc_assets.spark.preflight import Check

DIALECTS = ("ticdc", "tiflow")
"""The names of the dialects (`simulator.message_forms`), which a command line need not import."""

_BROKER_PORT = 9092
_CHECK_SECONDS = 0.2

_FOLDER = click.Path(file_okay=False, path_type=Path)
_PORT = click.IntRange(1, 65535)

_option = partial(click.option, show_default=True)
_DIRECTORY = _option("--directory", type=_FOLDER, default=DIRECTORY, help="The demo's folder.")


@main.command()
@click.option(
    "--machine",
    is_flag=True,
    help="Check only Java, Python and jars, which need no configuration, and make Spark's class "
    "archive, which takes a minute (for image builds).",
)
def doctor(*, machine: bool) -> None:
    """Check Java, Python, jars, configuration, lake, brokers and topics, and say what to type.

    Cheap checks come first, and each is printed as soon as it is known. Jars that Spark needs are
    downloaded if they are missing.

    A line that begins with `warn` is advice: syncs still run. With a `FAIL`, the exit code is 1.
    """
    from ticdc_assets.doctor.checks import check_machine, run_checks

    end_progress_lines()
    checks: list[Check] = []
    for check in (check_machine if machine else run_checks)(progress=note):
        level = "ok  " if check.ok else "FAIL" if check.vital else "warn"
        click.echo(f"{level}  {check.sentence()}")
        checks.append(check)
    total = counted(len(checks), "check")
    failed = sum(not check.ok and check.vital for check in checks)
    if failed:
        raise click.ClickException(f"{failed} of {total} failed")
    warned = sum(not check.ok for check in checks)
    passed = f"{len(checks) - warned} of {total} passed, {warned} warned"
    click.echo(passed if warned else f"all {total} passed")


@main.command()
@_DIRECTORY
@_option(
    "--format",
    "wire_format",
    type=click.Choice(WIRE_FORMATS),
    default=WIRE_FORMATS[0],
    help="The format of the changefeed's messages.",
)
@click.option(
    "--dialect",
    type=click.Choice(DIALECTS),
    help="Whose messages they are: those of the new TiCDC (ticdc, the default) or of the old one "
    "(tiflow, the default of craft, which the new one does not have).",
)
@_option(
    "--transactions",
    type=click.IntRange(min=1),
    default=600,
    help="How many the shop makes at most.",
)
@_option(
    "--seconds", type=click.IntRange(min=1), default=25, help="How long the shop is open at most."
)
@click.option(
    "--live",
    is_flag=True,
    help="Keep running until Ctrl-C: broker, changefeed, mirrors, Dagster UI.",
)
@click.option(
    "--port",
    type=_PORT,
    help="With --live: the port of the Dagster UI; by default 3000 or a free port.",
)
def demo(
    directory: Path,
    wire_format: str,
    dialect: str | None,
    transactions: int,
    seconds: int,
    *,
    live: bool,
    port: int | None,
) -> None:
    """Run a broker, a shop's changefeed and the assets once, and compare the mirrors with the shop.

    All files are in one folder, which is emptied first: an earlier demo is replaced. With --live
    the demo then keeps running: change rows with `upstream`, and see the changes in the mirrors.
    """
    if port is not None:
        if not live:
            raise click.UsageError("--port is the port of the Dagster UI of --live; give both")
        require_free(port)
    from ticdc_assets.spark.preflight import require_java

    require_java()  # before anything of an earlier demo is removed
    lake = directory / "lake"
    if lake.is_dir():
        at = datetime.fromtimestamp(lake.stat().st_mtime, UTC)
        note(f"replacing the demo of {at:%Y-%m-%d %H:%M} UTC in {directory}: its tables and runs")
    from ticdc_assets.demo.run import run_demo
    from ticdc_assets.demo.simulator.message_forms import Dialect
    from ticdc_assets.wire import WireFormat

    lines = own_lines()

    def note_at_the_end(text: str) -> None:
        lines.end()
        note(text)

    same = run_demo(
        directory.resolve(),
        wire_format=WireFormat(wire_format),
        dialect=None if dialect is None else Dialect(dialect),
        transactions=transactions,
        seconds=seconds,
        live=live,
        port=port,
        say=lines.say,
        note=note_at_the_end,
        show=print_table,
    )
    if not same:
        raise click.ClickException("a mirror differs from the simulator's truth")


@main.command()
@click.argument("statement")
@_DIRECTORY
def upstream(statement: str, directory: Path) -> None:
    """Run one SQL STATEMENT on the upstream of the live demo, and commit it.

    STATEMENT is INSERT, UPDATE or DELETE, CREATE, DROP, TRUNCATE or RENAME TABLE, or ALTER TABLE
    on columns, as for MySQL; name tables `database.table`. The demo's changefeed
    sends the commit to its broker, and the mirrors follow.
    """
    click.echo(run_upstream(directory, statement))


@main.command()
@_option("--port", type=_PORT, default=3000, help="The port on 127.0.0.1.")
@click.option(
    "--demo", "demo_directory", type=_FOLDER, help="Use the demo in this folder, with its broker."
)
def ui(port: int, demo_directory: Path | None) -> None:
    """Run the Dagster UI on 127.0.0.1, with its daemon, until Ctrl-C, and print its URL."""
    end_progress_lines()
    from ticdc_assets.orchestration.ui import serve_ui

    if demo_directory is None and click.get_current_context().find_root().params.get("demo"):
        demo_directory = Path(DIRECTORY)
    with ExitStack() as stack:
        if demo_directory is None:
            # A wrong entry is a failing check there, and the other changefeeds are synced.
            settings = load_settings(partly=True)
            for mistake in (text for entry in settings.wrong for text in entry.mistakes):
                note(f"{settings.path}: {mistake}")
        else:
            from ticdc_assets.demo.run import demo_broker, demo_lock

            folder = demo_directory.resolve()
            settings = use_demo(folder)
            stack.enter_context(demo_lock(folder))
            stack.enter_context(demo_broker(folder, note=note))
        status = serve_ui(settings, port, note)
    if status:
        raise click.ClickException(f"the Dagster UI ended with exit code {status}")


@main.command()
@_option(
    "--directory",
    type=_FOLDER,
    default=".broker",
    help="Where the broker keeps its topics, settings and log.",
)
@click.option(
    "--port",
    type=_PORT,
    help="The port on 127.0.0.1; by default that of the last start (at the first start "
    f"{_BROKER_PORT}), or a free port if it is in use.",
)
def broker(directory: Path, port: int | None) -> None:
    """Run a Kafka broker on 127.0.0.1 and print its address, until Ctrl-C.

    It needs Java and no installation of Kafka. It is for trials, not for production: one node, and
    no authentication. The topics stay in --directory; a second start continues with them.
    """
    end_progress_lines()
    from ticdc_assets.delta.lock import held_lock
    from ticdc_assets.demo.broker import LocalBroker

    if port is not None:
        require_free(port)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where a script started it in the background, with SIGINT ignored.
        signal.signal(number, signal.default_int_handler)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with held_lock(directory / "broker.lock", f"a broker in {directory}"):
            running = LocalBroker(directory, port=port, first_port=_BROKER_PORT, progress=note)
            usual = port or running.port or _BROKER_PORT
            with running:
                click.echo(running.bootstrap_servers)
                if running.port != usual:
                    note(f"port {usual} is in use: write this address into changefeeds.yaml")
                note("the broker runs until Ctrl-C")
                while running.running:
                    time.sleep(_CHECK_SECONDS)
            raise SourceUnavailableError(f"the broker has ended; its log is {running.log_path}")
    except KeyboardInterrupt:
        note(f"\nthe broker is stopped; its topics stay in {directory}: run it again to continue")


@main.command()
@click.argument("folder", type=_FOLDER, default=".")
def sample(folder: Path) -> None:
    """Write a small changefeed's files into FOLDER (by default the current one).

    They are what a cluster gives you: `changefeeds.yaml`, `export` (the table as Dumpling exports
    it), `topic.jsonl.gz` (the changes after the export, as TiCDC sends them to Kafka) and `later`
    (an export after those changes). Existing files are never replaced.
    """
    from ticdc_assets.demo.simulator.sample import write_sample

    for path in write_sample(folder):
        click.echo(path)
    note(
        "next, in that folder and with a broker running (ticdc-assets broker): "
        "ticdc-assets play topic.jsonl.gz mine"
    )
