"""Commands for a first try without a cluster: `broker` and `sample`."""

import signal
import time
from pathlib import Path

import click

from ticdc_assets.base.errors import SourceUnavailableError
from ticdc_assets.cli.base import main, note, reported_errors
from ticdc_assets.cli.waiting import end_progress_lines

_PORT = 9092
_CHECK_SECONDS = 0.2


@main.command()
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=".broker",
    show_default=True,
    help="Where the broker keeps its topics, settings and log.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The port on 127.0.0.1; by default that of the last start (at the first start "
    f"{_PORT}), or a free port if it is in use.",
)
@reported_errors
def broker(directory: Path, port: int | None) -> None:
    """Run a Kafka broker on 127.0.0.1 and print its address, until Ctrl-C.

    It needs Java and no installation of Kafka. It is for trials, not for production: one node, and
    no authentication. The topics stay in --directory; a second start continues with them.
    """
    end_progress_lines()
    from ticdc_assets.base.ports import require_free
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
            running = LocalBroker(directory, port=port, first_port=_PORT, progress=note)
            usual = port or running.port or _PORT
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
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@reported_errors
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
