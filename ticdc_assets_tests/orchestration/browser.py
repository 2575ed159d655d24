"""A headless Chromium and the few things a test asks of it, over its debugging protocol.

No driver program stands between: the browser opens a WebSocket on the loopback address, and a page
is steered by JSON messages. Texts are those a reader sees (`innerText`), not the markup.
"""

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_SECONDS = 60.0

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1440,900",
)


class Page:
    """One page of the browser."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(100)
        self._events: list[dict[str, Any]] | None = None

    def open(self, url: str) -> None:
        """Go to `url`; what it shows comes later."""
        self._call("Page.navigate", url=url)

    def resize(self, width: int, height: int) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def watch(self) -> None:
        """Keep from now on what pages ask of the network, and what they complain of."""
        self._events = []
        for domain in ("Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since `watch`, but for files and inline ones."""
        self._call("Runtime.evaluate", expression="0")
        urls = [
            event["params"]["request"]["url"]
            for event in self._events or ()
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("file:", "data:", "blob:", "about:"))]

    def complaints(self) -> list[str]:
        """Return errors and warnings of pages since `watch`."""
        self._call("Runtime.evaluate", expression="0")
        found: list[str] = []
        for event in self._events or ():
            params = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(params["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                    found.append(json.dumps(params["args"]))
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(json.dumps(params["entry"]))
                case _:
                    pass
        return found

    def prefer(self, scheme: str) -> None:
        self._call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def in_zone(self, zone: str) -> None:
        self._call("Emulation.setTimezoneOverride", timezoneId=zone)

    def press(self, key: str) -> None:
        codes = {"Tab": (9, ""), "Enter": (13, "\r")}
        code, text = codes[key]
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    def text(self) -> str:
        """Return the text that a reader sees now."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for(self, *texts: str, seconds: float = 90.0) -> str:
        """Return the page's text once all of `texts` are in it, or fail with what is there."""
        deadline = time.monotonic() + seconds
        while True:
            seen = self.text()
            missing = [text for text in texts if text not in seen]
            if not missing:
                return seen
            if time.monotonic() > deadline:
                raise AssertionError(f"not on the page: {missing}; on it:\n{seen}")
            time.sleep(0.2)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def click(self, text: str) -> None:
        """Click the innermost element whose whole text is `text`."""
        found = self.evaluate(
            "(() => { const all = [...document.querySelectorAll('*')].filter("
            f"e => e.innerText && e.innerText.trim() === {json.dumps(text)});"
            "if (!all.length) return false; all[all.length - 1].click(); return true; })()"
        )
        assert found, f"nothing on the page says {text!r}"

    def screenshot(self, path: Path) -> None:
        answer = self._call("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return _call(self._socket, next(self._numbers), method, params, self._session, self._events)


@contextmanager
def open_browser() -> Iterator[Page]:
    """Start the browser with a profile of its own and yield an empty page; skip without one."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no chromium here; on Debian: apt-get install chromium")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as browser,
    ):
        try:
            with connect(_address(browser), max_size=None, proxy=None) as socket:
                target = _call(socket, 1, "Target.createTarget", {"url": "about:blank"})
                attached = _call(
                    socket,
                    2,
                    "Target.attachToTarget",
                    {"targetId": target["targetId"], "flatten": True},
                )
                yield Page(socket, attached["sessionId"])
        finally:
            browser.terminate()
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()


def _address(browser: "subprocess.Popen[str]") -> str:
    assert browser.stderr is not None
    lines: list[str] = []
    for line in browser.stderr:
        lines.append(line)
        if line.startswith("DevTools listening on "):
            return line.removeprefix("DevTools listening on ").strip()
    raise AssertionError(f"the browser ended at once: {''.join(lines)}")


def _call(
    socket: ClientConnection,
    number: int,
    method: str,
    params: dict[str, Any],
    session: str | None = None,
    events: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    message: dict[str, Any] = {"id": number, "method": method, "params": params}
    if session is not None:
        message["sessionId"] = session
    socket.send(json.dumps(message))
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        answer = json.loads(socket.recv(timeout=max(0.1, deadline - time.monotonic())))
        if answer.get("id") == number:
            assert "error" not in answer, f"{method}: {answer['error']}"
            return answer["result"]
        if events is not None and "method" in answer:
            events.append(answer)
