"""Ports of this machine's loopback address: whether one is free, and a free one.

Both answers may be outdated a moment later, so a program that listens must still expect to be
refused.
"""

import random
import socket

from ticdc_assets.base.errors import PrerequisiteError

HOST = "127.0.0.1"

# Below the range from which systems take the ports of outgoing connections (Linux from 32768), so
# that a server that restarts finds its port as it left it.
_LOWEST, _HIGHEST = 20_000, 32_000


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on `port` of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier server that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def require_free(port: int) -> None:
    """Raise `PrerequisiteError` if something listens on `port` of 127.0.0.1."""
    if not port_is_free(port):
        raise PrerequisiteError(f"port {port} of {HOST} is in use; choose another one with --port")


def free_port(*, other_than: int = 0) -> int:
    """Return a port of 127.0.0.1 on which nothing listens."""
    while True:
        port = random.randrange(_LOWEST, _HIGHEST)
        if port != other_than and port_is_free(port):
            return port
