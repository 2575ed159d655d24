"""The live demo: the shop's changefeed and the mirrors keep running while a person changes rows.

In: a finished demo, with its broker still up. Out, until it is interrupted: a stand-in changefeed
that sends a person's upstream commits, a follow run of Dagster, the Dagster UI on 127.0.0.1, and in
the terminal each new cut with its changed rows. Statements arrive on a port of 127.0.0.1, which
`ticdc-assets --demo upstream` finds in the demo's folder.

The mirrors are synced by the same follow run as `sync --follow`, with shorter pauses. If another
run of the changefeed wants to write, the follow run ends, and a new one starts afterwards.

Everything started here ends with its `with` block, whatever the reason.
"""

import hmac
import json
import math
import os
import secrets
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ticdc_assets.base.errors import BusyError, StatementError
from ticdc_assets.base.names import counted
from ticdc_assets.base.ports import HOST, free_port, port_is_free
from ticdc_assets.config import Settings
from ticdc_assets.delta.lake import Lake
from ticdc_assets.demo.place import CHANGEFEED, Door
from ticdc_assets.demo.simulator.run import SimulatorRun, live_changefeed
from ticdc_assets.demo.simulator.statements import Executed
from ticdc_assets.log.cuts import Cut, MirrorCut, newest_cut
from ticdc_assets.model.tso import to_datetime
from ticdc_assets.observe.wording import visible
from ticdc_assets.orchestration.following import Ending
from ticdc_assets.orchestration.run import run_follow
from ticdc_assets.orchestration.ui import announce_ui, signals_interrupt, ui_server
from ticdc_assets.reading.mirrors import iterate_rows, published_table
from ticdc_assets.spark.jars import Progress

_UI_PORT = 3000
_REST_SECONDS = 0.1
_BUSY_SECONDS = 1.0
_SHOWN_ROWS = 10


def go_on_live(
    settings: Settings,
    directory: Path,
    simulator: SimulatorRun,
    *,
    port: int | None,
    examples: Iterable[str],
    note: Progress,
) -> None:
    """Go on with a demo until it is interrupted.

    Args:
        settings: the demo's.
        directory: its folder.
        simulator: the shop, which is closed; its changefeed goes on.
        port: where the Dagster UI listens; 3000 if None, or a free port where that is in use.
        examples: commands that change rows, as they can be typed.
        note: called with each line of progress.

    Raises:
        PrerequisiteError: something listens on `port`.
        TicdcError: a sync failed with an error that waiting does not fix.
    """
    if port is None:
        port = _UI_PORT if port_is_free(_UI_PORT) else free_port()
    url = f"http://{HOST}:{port}"
    watch = CutWatch(settings, note)
    with (
        signals_interrupt(),
        live_changefeed(simulator, lambda text: note(f"the changefeed has ended: {text}")) as run,
        _open_door(directory, run, url),
        ui_server(settings, port) as server,
    ):
        announce_ui(server, port, lambda url: note(f"the Dagster UI is at {url}"))
        note(
            "live: the broker and the changefeed keep running, and the mirrors follow; stop with "
            "Ctrl-C"
        )
        note("change rows from another terminal, in this folder:")
        for line in examples:
            note(f"  {line}")
        with suppress(KeyboardInterrupt):
            _follow(settings, watch, note)
        note("ending: the follow run, the Dagster UI, the changefeed, the broker")


# The door -----------------------------------------------------------------------------------------


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def _open_door(directory: Path, run: Callable[[str], Executed], ui: str) -> Iterator[None]:
    """Take statements while the block lasts."""
    token = secrets.token_urlsafe(24)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            answer = _answer(self.rfile.readline(), token, run)
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    with _Server((HOST, 0), Handler) as server:
        door = Door(pid=os.getpid(), port=server.server_address[1], token=token, ui=ui)
        threading.Thread(target=server.serve_forever, name="door", daemon=True).start()
        try:
            with door.shown(directory):
                yield
        finally:
            server.shutdown()


def _answer(line: bytes, token: str, run: Callable[[str], Executed]) -> Mapping[str, str]:
    try:
        request = json.loads(line)
        if not hmac.compare_digest(str(request["token"]), token):
            return {"error": "this is the port of another demo"}
        return {"done": run(request["sql"]).text}
    except StatementError as error:
        return {"error": str(error)}
    except (ValueError, KeyError, TypeError) as error:
        return {"error": f"a statement was expected: {error}"}


# The mirrors --------------------------------------------------------------------------------------


def _follow(settings: Settings, watch: "CutWatch", say: Progress) -> None:
    """Follow the changefeed until somebody asks to stop."""
    while True:
        try:
            report = run_follow(
                settings,
                CHANGEFEED,
                seconds=math.inf,
                rest_seconds=_REST_SECONDS,
                say=lambda _: watch.look(),
            )
        except BusyError:
            watch.look()
        else:
            if report.followed.ending is Ending.STOPPED:
                return
            say(f"the mirrors are not followed now: {report.followed.other}")
        time.sleep(_BUSY_SECONDS)


class CutWatch:
    """Prints each new cut that changed rows, and these rows.

    Args:
        settings: the demo's.
        say: called with each line.
    """

    def __init__(self, settings: Settings, say: Progress) -> None:
        self._lake = Lake.open(settings.lake, settings.changefeed(CHANGEFEED))
        self._say = say
        self._cut = newest_cut(self._lake.paths)

    def look(self) -> None:
        """Print the newest cut and its changes, if there are any since the last check."""
        before, cut = self._cut, newest_cut(self._lake.paths)
        if cut is None or (before is not None and before.number == cut.number):
            return
        self._cut = cut
        changes = [line for pair in _changed(before, cut) for line in self._lines(*pair)]
        if changes:
            self._say(f"cut {cut.number} at {to_datetime(cut.tso):%H:%M:%S.%f} UTC")
            for line in changes:
                self._say(f"  {line}")

    def _lines(self, before: MirrorCut | None, after: MirrorCut | None) -> Iterator[str]:
        """Yield what is different in a mirror."""
        named = after or before
        assert named is not None
        name = visible(f"{named.database}.{named.table}")
        if after is None or before is None:
            yield f"{name}: {'dropped' if after is None else 'new'}"
            return
        columns = [
            {column.name for column in item.table_schema.columns} for item in (before, after)
        ]
        for words, names in (
            ("no longer has", columns[0] - columns[1]),
            ("now has", columns[1] - columns[0]),
        ):
            for column in sorted(names):
                yield f"{name} {words} the column {visible(column)}"
        old, new = self._rows(before), self._rows(after)
        lines = [
            line
            for key in {**old, **new}
            if (line := _row_line(key, old.get(key), new.get(key))) is not None
        ]
        for line in lines[:_SHOWN_ROWS]:
            yield f"{name} {line}"
        if len(lines) > _SHOWN_ROWS:
            yield f"{name} and {counted(len(lines) - _SHOWN_ROWS, 'more row')}"

    def _rows(self, mirror: MirrorCut) -> dict[tuple[str, ...], dict[str, str | None]]:
        table = published_table(self._lake, mirror)
        rows = (
            json.loads(text) for _, _, text in iterate_rows([table], self._lake.changefeed.timezone)
        )
        key = mirror.table_schema.handle_key
        return {tuple(f"{name}={row[name]}" for name in key): row for row in rows}


def _changed(before: Cut | None, after: Cut) -> Iterator[tuple[MirrorCut | None, MirrorCut | None]]:
    """Yield the mirrors that differ, as they were and as they are."""
    old = {item.mirror_id: item for item in before.mirrors} if before else {}
    new = {item.mirror_id: item for item in after.mirrors}
    for mirror_id in {**old, **new}:
        pair = (old.get(mirror_id), new.get(mirror_id))
        if pair[0] is None or pair[1] is None or pair[0].version != pair[1].version:
            yield pair


def _row_line(
    key: tuple[str, ...],
    old: Mapping[str, str | None] | None,
    new: Mapping[str, str | None] | None,
) -> str | None:
    """Return how a row differs in the columns that it had and has; None if it does not."""
    if old is None or new is None:
        row = old or new or {}
        values = ", ".join(f"{name}={_shown(value)}" for name, value in row.items())
        return f"{'+' if old is None else '-'} {values}"
    changes = ", ".join(
        f"{name}: {_shown(old[name])} -> {_shown(value)}"
        for name, value in new.items()
        if name in old and old[name] != value
    )
    return f"~ {visible(', '.join(key))}: {changes}" if changes else None


def _shown(value: str | None) -> str:
    return "NULL" if value is None else visible(value)
