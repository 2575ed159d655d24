"""The root of the command line, and the behaviour shared by all commands.

A command that fails because of the package's errors, the machine or a damaged table ends with one
sentence and exit code 1. Any other failure is a bug of this package and prints a traceback.
"""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ticdc_assets.base.errors import ConfigError, StoreUnavailableError, TicdcError
from ticdc_assets.base.isolation import RUST_PANIC, Failure, attempted, first_sentence
from ticdc_assets.base.machine import refusal
from ticdc_assets.base.names import split_name
from ticdc_assets.cli.interrupted import EXIT_CODE, ignore_the_next, sentence
from ticdc_assets.cli.waiting import progress_lines
from ticdc_assets.config import Settings, lake_path, load_settings
from ticdc_assets.demo.place import CHANGEFEED, use_demo
from ticdc_assets.model.tso import cut_of
from ticdc_assets.spark.compute import watched
from ticdc_assets.storage.paths import RemotePath

if TYPE_CHECKING:
    from ticdc_assets.delta.lake import Lake


@contextmanager
def in_sentences() -> Iterator[None]:
    """Turn the package's errors and the machine's refusals into one sentence and exit code 1."""
    try:
        with _naming_damage():
            yield
    except TicdcError as error:
        raise click.ClickException(str(error)) from error
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except BaseException as error:
        # Rust code may panic on a full disk, and a panic is not an Exception.
        is_known = isinstance(error, Exception) or type(error).__name__ == RUST_PANIC
        sentence = _refusal(error) if is_known else None
        if sentence is None:
            raise
        raise click.ClickException(sentence) from error


def _refusal(error: BaseException) -> str | None:
    """Return what the machine, a file or a store refused in one sentence; None if it is a bug."""
    folders: list[Path] = []
    # What cannot be known now is in the error itself.
    with suppress(TicdcError, OSError):
        folders.append(Path(tempfile.gettempdir()))
        settings = load_settings()
        folders += [it for it in (settings.lake, settings.home()) if isinstance(it, Path)]
    sentence = refusal(error, folders)
    if sentence is None and isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":
        return (
            f"the output is in {error.encoding}, which does not have all characters of the text; "
            "set PYTHONIOENCODING=utf-8"
        )
    if sentence is not None or not isinstance(error, OSError):
        return sentence
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    with suppress(TicdcError):
        lake = lake_path()
        if isinstance(lake, RemotePath):
            return str(StoreUnavailableError(str(lake), first_sentence(error)))
    return None


_SHORT_HELP = 200


class _ChangefeedCommand(click.Command):
    """A command that prints its progress, and works on the demo without naming its changefeed.

    One that ends well says last where its work ran, if it had any.
    """

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first sentence of its help, whole: click would cut it at the line's end."""
        return super().get_short_help_str(_SHORT_HELP)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.find_root().params.get("demo") and not ctx.resilient_parsing:
            args = self._naming_the_changefeed(ctx, args)
        return super().parse_args(ctx, args)

    def _naming_the_changefeed(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return words with the demo's changefeed if they have all other arguments but none for it.

        The others are all there, or all that a command needs: `verify` takes a table or none.
        """
        arguments = [item for item in self.params if isinstance(item, click.Argument)]
        others = [item for item in arguments if item.name != "changefeed"]
        if len(others) == len(arguments):
            return args
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        given = [
            value for item in arguments if isinstance(value := values.get(item.name or ""), str)
        ]
        names_table = bool(given) and any(item.name == "table" for item in others)
        # One word may name a database and its table.
        count = len(given) + (names_table and split_name(given[-1]) is not None)
        if count not in (len(others), sum(item.required for item in others)):
            return args
        is_first = arguments[0].name == "changefeed"
        return [CHANGEFEED, *args] if is_first else [*args, CHANGEFEED]

    def invoke(self, ctx: click.Context) -> Any:
        with progress_lines(ctx), watched() as ran, in_sentences():
            result = super().invoke(ctx)
        if ran.sentence:
            note(f"ran: {ran.sentence}")
        return result


class _Stopped(click.ClickException):
    exit_code = EXIT_CODE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"\n{self.message}", file=file, err=file is None)


class _Commands(click.Group):
    command_class = _ChangefeedCommand

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ignore_the_next()
            raise _Stopped(sentence(ctx.invoked_subcommand)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ticdc-assets")
@click.option("--demo", is_flag=True, help="Work on the demo in the folder .demo.")
def main(*, demo: bool) -> None:
    """Turn TiCDC changefeeds in Kafka into consistent Delta Lake mirrors.

    TICDC_CHANGEFEEDS names the file that configures changefeeds (default changefeeds.yaml),
    TICDC_LAKE the folder or URI of all tables (default .lake). With --demo, commands use the
    demo's file and tables, and you need not name its one changefeed.
    """
    if demo:
        with in_sentences():
            use_demo()


_USED = "ticdc_assets.cli.used"
"""Where a command stores the tables it works on, to report the damaged ones."""


def lake_of(settings: Settings, name: str) -> "Lake":
    """Return the lake of a changefeed, and record it for `_naming_damage`."""
    # Arrow is imported with it, which takes a while.
    from ticdc_assets.delta.lake import Lake

    lake = Lake.open(settings.lake, settings.changefeed(name))
    click.get_current_context().meta.setdefault(_USED, []).append(lake.paths)
    return lake


@contextmanager
def _naming_damage() -> Iterator[None]:
    """If a command failed because a table is damaged, say which one."""
    try:
        yield
    except Exception:
        used = click.get_current_context().meta.get(_USED)
        if not used:
            raise
        # Only now, because it costs time to import.
        from ticdc_assets.log.damage import damage_told

        with damage_told(*used):
            raise


def failure_of(work: Callable[[], object], name: str) -> str | None:
    """Return why work on the tables of one changefeed failed, None if it did not.

    `lake_of` in it names the changefeed, and the log calls it `name`.
    """
    click.get_current_context().meta.pop(_USED, None)

    def sentence_of() -> str | None:
        try:
            with in_sentences():
                work()
        except click.ClickException as error:
            return error.message
        return None

    outcome = attempted(sentence_of, name)
    return outcome.reason if isinstance(outcome, Failure) else outcome


def end_with(failures: Iterable[object]) -> None:
    """End the command with all failures, a sentence each, if there are any."""
    sentences = list(failures)
    if sentences:
        raise click.ClickException("\n".join(map(str, sentences)))


def note(text: str) -> None:
    """Print a line of progress."""
    click.echo(text, err=True)


class FiniteRange(click.FloatRange):
    """A range of numbers; click itself takes NaN for a number of any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or refuse a text that is none, or one beyond the range."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, got {value}", param, ctx)
        return number


def checked_moment(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> str | None:
    """Refuse a text that is neither a TSO nor a time as wrong usage, before any work."""
    if text is not None:
        try:
            cut_of(text, es_only=False)
        except ConfigError as error:
            raise click.BadParameter(str(error)) from error
    return text


AS_OF_HELP = "Read as of this TSO, or time in ISO 8601 (UTC), at or below the newest cut."
