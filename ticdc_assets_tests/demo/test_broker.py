"""The port of the local broker, which clients are configured with; `e2e` starts real ones."""

from pathlib import Path

import pytest

from ticdc_assets.base.ports import HOST, free_port
from ticdc_assets.demo import run
from ticdc_assets.demo.broker import LocalBroker
from ticdc_assets.demo.run import run_demo


def left(folder: Path) -> int:
    """Make a folder look like that of a broker that ran; return its port."""
    port = free_port()
    folder.mkdir(parents=True)
    settings = f"listeners=BROKER://{HOST}:{port},CONTROLLER://{HOST}:1\n"
    (folder / "server.properties").write_text(settings, encoding="utf-8")
    return port


@pytest.mark.parametrize("has_run", [True, False])
def test_the_first_port_is_that_of_the_first_start(has_run: bool, tmp_path: Path) -> None:
    last = left(tmp_path / "broker") if has_run else None
    first = free_port(other_than=last or 0)
    broker = LocalBroker(tmp_path / "broker", first_port=first)
    broker._choose_ports()
    assert broker.port == (last or first)


def test_a_demo_that_runs_again_keeps_the_port_of_its_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = tmp_path / "demo"
    last = left(demo / "broker")
    (demo / run._MARKER).touch()
    ports: list[int] = []

    def start(broker: LocalBroker) -> LocalBroker:
        assert not broker.directory.exists(), "the demo begins without anything of the last one"
        broker._choose_ports()
        ports.append(broker.port)
        raise InterruptedError

    monkeypatch.setattr(LocalBroker, "start", start)
    monkeypatch.setattr(run, "_start_spark", lambda _: None)
    with pytest.raises(InterruptedError):
        run_demo(demo, transactions=1, seconds=1, say=print, note=print, show=print)
    assert ports == [last]
