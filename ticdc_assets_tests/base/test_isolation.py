"""Isolation: what failed of many pieces is told, each piece with all that was wrong with it."""

import pytest

from ticdc_assets.base.errors import BusyError, NotFoundError, UnfinishedError
from ticdc_assets.base.isolation import Failure, Failures, attempted


def failing(error: Exception) -> None:
    raise error


def test_all_reasons_of_a_piece_are_kept_each_once() -> None:
    failures = Failures("maintenance")
    failures.require_none()
    for name, text in (("a", "no file"), ("a", "no log; sync"), ("a", "no log; sync"), ("b", "no")):
        failures.attempted(lambda text=text: failing(NotFoundError(text)), name)
    failures.add("b", "no file")
    assert failures.attempted(lambda: 7, "c") == 7
    assert failures.reasons == {"a": "no file; no log; sync", "b": "no; no file"}
    with pytest.raises(UnfinishedError, match="2 failed") as told:
        failures.require_none()
    assert "a: no file; no log; sync; b: no; no file" in str(told.value)


def test_what_waiting_may_help_against_is_of_no_piece() -> None:
    failures = Failures("maintenance")
    with pytest.raises(BusyError):
        failures.attempted(lambda: failing(BusyError("busy")), "a")
    with pytest.raises(BusyError):
        attempted(lambda: failing(BusyError("busy")), "a", alone=True)
    assert failures.reasons == {}
    assert attempted(lambda: failing(BusyError("busy")), "a") == Failure(reason="busy")
    found = attempted(lambda: failing(ValueError()), "a", alone=True)
    assert found == Failure(reason="ValueError")
