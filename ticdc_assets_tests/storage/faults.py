"""An HTTP proxy before a store, which loses requests and answers as networks and stores do."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ticdc_assets.base.ports import HOST

_Server = TypeVar("_Server", bound=ThreadingHTTPServer)

LOST_REQUEST = "the request does not arrive"
LOST_ANSWER = "the request arrives, its answer does not"
LATE_500 = "the request is carried out, and the answer is 500"
CONFLICT = "409: another conditional request is under way; nothing is written"

_CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code></Error>"


class FaultyProxy(ThreadingHTTPServer):
    """Forwards requests to a store; see the module.

    Attributes:
        faults: what happens to the next requests, by method, the first one first; None lets one
            pass. A list that ends lets all others pass.
        seen: the methods of all requests so far.
    """

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__((HOST, 0), _Handler)
        self.target = urlsplit(target).netloc
        self.faults: dict[str, list[str | None]] = {}
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients go away here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(self.command)
        faults = self.server.faults.get(self.command)
        fault = faults.pop(0) if faults else None
        self.close_connection = fault is not None
        if fault == LOST_REQUEST:
            return
        if fault == CONFLICT:
            self._answer(409, {}, _CONFLICT)
            return
        answer = self._forward(body)
        if fault == LATE_500:
            self._answer(500, {}, b"")
        elif fault != LOST_ANSWER:
            self._answer(*answer)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _any

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.target)
        # The host is signed, so it stays that of the proxy.
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(server: _Server) -> Iterator[_Server]:
    """Run a server within this block."""
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
