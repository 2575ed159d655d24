"""Tables that are exchanged again and again: the way back is walked once, however long it is."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ticdc_assets.changelog.encoder_damage import damage_caveats
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, earlier_first
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.test_encoder_damage import CREATE, planned

EXCHANGES = 600


def handed_over(givers: Sequence[MirrorPlan], ts: int) -> MirrorPlan:
    """Return the plan of a table that begins at `ts` with the rows of others."""
    first = givers[0]
    parts = tuple(HandoverPart(plan=item, schema=first.schema) for item in givers)
    return replace(first, floor_ts=ts, digest=str(ts), parts=parts, exported=None)


def in_a_chain(first: MirrorPlan) -> MirrorPlan:
    """Return a table with the rows of one that had those of one, and so on."""
    plan = first
    for ts in range(100, 100 + EXCHANGES):
        plan = handed_over([plan], ts)
    return plan


def in_a_lattice(first: MirrorPlan) -> MirrorPlan:
    """Return one of two tables each of which had rows of both, and so on."""
    one, other = first, replace(first, mirror_id="9", digest="other")
    for ts in range(100, 100 + 2 * EXCHANGES, 2):
        one, other = handed_over([one, other], ts), handed_over([other, one], ts + 1)
    return one


@pytest.mark.parametrize("shape", [in_a_chain, in_a_lattice])
def test_the_way_back_is_walked_once(shape: Callable[[MirrorPlan], MirrorPlan]) -> None:
    first = planned(CREATE)
    plan = shape(first)
    found = list(plan.sources())
    assert found[0] is plan
    assert any(item is first for item in found)
    assert len(found) == len({id(item) for item in found}) <= 2 * EXCHANGES + 1
    ordered = earlier_first(plan, lambda item: [part.plan for part in item.parts])
    assert {id(item) for item in ordered} == {id(item) for item in found}
    places = {id(item): place for place, item in enumerate(ordered)}
    assert all(places[id(part.plan)] < places[id(item)] for item in ordered for part in item.parts)
    (caveat,) = damage_caveats(plan, WireFormat.CRAFT)
    assert caveat.since_ts == damage_caveats(first, WireFormat.CRAFT)[0].since_ts


def test_where_it_need_not_be_walked_it_ends() -> None:
    plan = in_a_chain(planned(CREATE))
    (part,) = plan.parts
    assert list(plan.sources(lambda item: item is plan)) == [plan, part.plan]
