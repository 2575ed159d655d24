"""How many examples a property test runs: by a profile, in proportion for those that cost more.

In: the profile that `--hypothesis-profile` names, `dev` by default. Out: settings for a test.
"""

from collections.abc import Collection
from typing import Final

from hypothesis import Phase, settings

PROFILES: Final = {"quick": 10, "dev": 50, "deep": 500}
"""Each profile's examples of a property that does not say how many it wants."""


def register_profiles() -> None:
    """Make the profiles known, and `dev` the one of this run until another is named."""
    for name, number in PROFILES.items():
        settings.register_profile(name, max_examples=number, deadline=None)
    settings.load_profile("dev")


def examples(number: int, *, phases: Collection[Phase] = tuple(Phase)) -> settings:
    """Return settings for so many examples in `dev`, and for their share in other profiles.

    Call it where a test is defined: the profile of the run is loaded by then.
    """
    share = settings.default.max_examples / PROFILES["dev"]
    return settings(max_examples=max(1, round(number * share)), phases=phases)
