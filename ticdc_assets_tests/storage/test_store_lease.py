"""The lease of a lake in a store: processes that share nothing but the store."""

import json
import signal

import pytest

from ticdc_assets.base.errors import BusyError
from ticdc_assets.config import Writer
from ticdc_assets.delta.commits import newest_version
from ticdc_assets.delta.control import read_rows
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.delta.libraries import lease_of
from ticdc_assets_tests.delta.test_lease import assert_one_writes, holding, line, stated
from ticdc_assets_tests.stores import StoreLake

pytestmark = pytest.mark.timeout(300)


def env_of(lake: StoreLake) -> dict[str, str]:
    storage = lake.path.store.storage
    return {"LAKE_STORAGE": json.dumps({name: getattr(storage, name) for name in storage.given})}


def test_of_many_processes_one_writes(store_lake: StoreLake) -> None:
    paths = LakePaths(root=store_lake.path, changefeed="shop")
    assert_one_writes(paths, 10, "ab", env=env_of(store_lake))


def test_a_living_holder_is_told_and_a_stalled_one_is_refused(store_lake: StoreLake) -> None:
    paths = LakePaths(root=store_lake.path, changefeed="shop")
    env = env_of(store_lake)
    with holding(paths, 3, pause=0.01, machine="far", env=env) as stalled:
        assert line(stalled).startswith("held")
        told = pytest.raises(
            BusyError,
            match=r"another sync of changefeed 'shop'.*process \d+ \(-c\) has had lease 1 since",
        )
        with told, writer_lock(paths, Writer()):
            pass
        stalled.send_signal(signal.SIGSTOP)
        with writer_lock(paths, Writer()):
            assert stated(paths) == (2, True, 60)
            rows = len(read_rows(paths.cuts))
            # The tables refuse the old one from here on.
            assert lease_of(paths.cuts, newest_version(paths.cuts)) == 2
            stalled.send_signal(signal.SIGCONT)
            end = stalled.communicate(timeout=60)[0].splitlines()[-1]
        assert end.startswith("LeaseLostError"), end
        assert len(read_rows(paths.cuts)) == rows
