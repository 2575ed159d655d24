"""The command line's root, and what every command does alike.

A command that fails because of the package's errors, the machine or a broken table ends with one
sentence and exit code 1; anything else is a traceback, because it is a fault of this package.
"""

import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ticdc_assets.cli.waiting import progress_lines
from ticdc_assets.config import Changefeed, Settings, load_settings
from ticdc_assets.demo_place import CHANGEFEED, use_demo
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import ConfigError, TicdcError
from ticdc_assets.isolation import RUST_PANIC
from ticdc_assets.machine import refusal
from ticdc_assets.tso import cut_of

_Command = TypeVar("_Command", bound=Callable[..., Any])


def reported_errors(command: _Command) -> _Command:
    """Turn the package's errors and the machine's refusals into one sentence and exit code 1."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with _damage_told():
                return command(*args, **kwargs)
        except TicdcError as error:
            raise click.ClickException(str(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            sentence = _refusal(error)
            if sentence is None and isinstance(error, OSError) and error.filename is not None:
                sentence = f"{error.filename}: {error.strerror}"
            if sentence is None:
                raise
            raise click.ClickException(sentence) from error
        except BaseException as error:
            # Rust code that meets a full disk may panic, and that is no Exception.
            sentence = _refusal(error) if type(error).__name__ == RUST_PANIC else None
            if sentence is None:
                raise
            raise click.ClickException(sentence) from error

    return run  # pyright: ignore[reportReturnType]  # wraps keeps the signature


def _refusal(error: BaseException) -> str | None:
    """Return what the machine refused, in one sentence, or None if it is about something else."""
    folders = [Path(tempfile.gettempdir())]
    try:
        settings = load_settings()
    except TicdcError:
        return refusal(error, folders)
    home = os.environ.get("DAGSTER_HOME")
    folders += [settings.lake, *([Path(home)] if home else [])]
    return refusal(error, folders)


class _ChangefeedCommand(click.Command):
    """A command that says how far it is, and works on the demo without naming its changefeed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.find_root().params.get("demo"):
            return super().parse_args(ctx, args)
        try:
            return super().parse_args(ctx, list(args))
        except click.MissingParameter:
            return super().parse_args(ctx, [CHANGEFEED, *args])

    def invoke(self, ctx: click.Context) -> Any:
        with progress_lines(ctx):
            return super().invoke(ctx)


class _Commands(click.Group):
    """The commands."""

    command_class = _ChangefeedCommand


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ticdc-assets")
@click.option("--demo", is_flag=True, help="Work on what `demo` left in the folder .demo.")
@reported_errors
def main(*, demo: bool) -> None:
    """TiCDC changefeeds in Kafka, as consistent Delta Lake mirrors.

    Changefeeds are configured in the file named by TICDC_CHANGEFEEDS (default changefeeds.yaml),
    tables are below the folder named by TICDC_LAKE (default .lake). With --demo they are those of
    the demo, and its one changefeed need not be named.
    """
    if demo:
        use_demo()


_USED = "ticdc_assets.cli.used"
"""Where a command keeps whose tables it works on, for when one of them is broken."""


def feed_of(settings: Settings, name: str) -> tuple[Changefeed, LakePaths]:
    """Return a changefeed with its tables, and keep for `_damage_told` that it is at work."""
    changefeed = settings.changefeed(name)
    paths = LakePaths(root=settings.lake, changefeed=name)
    click.get_current_context().meta.setdefault(_USED, []).append(paths)
    return changefeed, paths


@contextmanager
def _damage_told() -> Iterator[None]:
    """Say which table is broken where a command failed because one is."""
    try:
        yield
    except Exception:
        used = click.get_current_context().meta.get(_USED)
        if not used:
            raise
        # Only now, because it costs time to import.
        from ticdc_assets.pipeline.damage import damage_told

        with damage_told(*used):
            raise


def end_with(failures: Iterable[object]) -> None:
    """End the command with what is wrong, a sentence each, if anything is."""
    found = list(failures)
    if found:
        raise click.ClickException("\n".join(map(str, found)))


def note(text: str) -> None:
    """Print a line of progress."""
    click.echo(text, err=True)


def checked_moment(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> str | None:
    """Refuse what is neither a TSO nor a time as wrong usage, before anything is done."""
    if text is not None:
        try:
            cut_of(text, es_only=False)
        except ConfigError as error:
            raise click.BadParameter(str(error)) from error
    return text


AS_OF_HELP = "As it was at this TSO, or time in ISO 8601 (UTC), at or below the newest cut."
