"""The door of a live demo, as a client meets it."""

import socket
from pathlib import Path

import pytest

from ticdc_assets.base.errors import ConfigError, StatementError
from ticdc_assets.demo import place


def test_a_demo_that_is_busy_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_TIMEOUT_SECONDS", 0.2)
    busy = socket.create_server(("127.0.0.1", 0))
    with place.Door(pid=1, port=busy.getsockname()[1], token="t", ui="").shown(tmp_path):
        with busy, pytest.raises(StatementError, match=r"gave no answer .*may have been run"):
            place.run_upstream(tmp_path, "DELETE FROM shop.orders")
        with pytest.raises(ConfigError, match="no live demo runs"):
            place.run_upstream(tmp_path, "DELETE FROM shop.orders")
