"""The arguments that name a changefeed and a mirror, which the shell can complete.

In: the words typed so far. Out: possible next names, of configured changefeeds and of the tables in
their newest cut. Completing reads the configuration and one small file of the lake, and writes
nothing; if they cannot be read, it completes nothing.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import click

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.names import split_name
from ticdc_assets.config import load_settings
from ticdc_assets.demo.place import CHANGEFEED, use_demo
from ticdc_assets.storage.lake_paths import LakePaths

_Command = TypeVar("_Command", bound=Callable[..., object])


def _completed(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    is_demo = bool(context.find_root().params.get("demo"))
    words = [context.params.get(name) for name in ("changefeed", "database")]
    before = [word for word in words if isinstance(word, str)]
    if parameter.name == "changefeeds":
        before = []
    try:
        if is_demo:
            use_demo()
            # The demo's one changefeed need not be named.
            if before[:1] != [CHANGEFEED] and (before or parameter.name == "changefeed"):
                before = [CHANGEFEED, *before]
        settings = load_settings()
        if not before:
            names = sorted(feed.name for feed in settings.changefeeds)
        else:
            paths = LakePaths(root=settings.lake, changefeed=settings.changefeed(before[0]).name)
            mirrors = json.loads(paths.by_name.read_bytes())["mirrors"]
            if len(before) == 1:
                names = sorted({mirror["database"] for mirror in mirrors})
            else:
                names = sorted(it["table"] for it in mirrors if it["database"] == before[1])
    except (TicdcError, OSError, ValueError, LookupError, TypeError):
        return []
    # The shell splits at blanks, and a terminal must not get control characters.
    return [
        name
        for name in names
        if name.startswith(typed) and name.isprintable() and not any(map(str.isspace, name))
    ]


_argument = partial(click.argument, shell_complete=_completed)


def changefeed_argument(*, required: bool = True) -> Callable[[_Command], _Command]:
    """Give a command the argument `changefeed`."""
    return _argument("changefeed", required=required)


def changefeeds_argument() -> Callable[[_Command], _Command]:
    """Give a command the argument `changefeeds`: any number of them."""
    return _argument("changefeeds", metavar="[CHANGEFEED]...", nargs=-1)


def table_arguments(*, required: bool = True) -> Callable[[_Command], _Command]:
    """Give a command the arguments `database` and `table`, after that of the changefeed.

    A person may write both as one, `database.table`, as commands print them.
    """
    metavar = "TABLE" if required else "[TABLE]"

    def parted(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        database: str | None = context.params.get("database")
        name = None if value is not None or database is None else split_name(database)
        if name is not None:
            context.params["database"], value = name
        if value is None and required:
            raise click.MissingParameter(ctx=context, param=parameter)
        return value

    def decorate(command: _Command) -> _Command:
        table = _argument("table", required=False, metavar=metavar, callback=parted)
        return _argument("database", required=required)(table(command))

    return decorate
