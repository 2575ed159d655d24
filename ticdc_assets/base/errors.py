"""The error tree of the package.

Every error answers the caller's two questions by attributes: `retriable` (could the same call
succeed later?) and `quarantine` (is one piece of input bad, so that it is set aside and the rest
continues?). Data is on the error, `__str__` builds the text, and every error survives pickling,
because errors cross from Spark workers to the driver.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class TicdcError(Exception):
    """Root of all errors this package raises on purpose."""

    retriable: bool = False
    quarantine: bool = False

    def __post_init__(self) -> None:
        # Errors with data are dataclasses; pickle makes them again from these.
        self.args = tuple(vars(self).values())


class ConfigError(TicdcError):
    """A configuration file or environment variable is missing or wrong; the text names the key."""


class PrerequisiteError(TicdcError):
    """The machine lacks something a command needs (Java, jar, port, broker)."""


@dataclass(eq=False, repr=False)
class LandingGapError(TicdcError):
    """Records between the landed position and the source are gone; landing never skips them.

    Attributes:
        landed: next offset that should be landed.
        available: first offset the source still has (or its end, if that is lower than `landed`).
        cause: one clause with the cause.
        fix: one clause that says how to continue, if that is possible.
    """

    topic: str
    partition: int
    landed: int
    available: int
    cause: str
    fix: str = ""

    @property
    def finding(self) -> str:
        """What happened, without the fix."""
        return (
            f"gap in topic {self.topic!r} partition {self.partition}: next offset to land is "
            f"{self.landed}, the source offers {self.available} ({self.cause})"
        )

    def __str__(self) -> str:
        more = f"; {self.fix}" if self.fix else ""
        return f"{self.finding}; nothing was skipped{more}"


@dataclass(eq=False, repr=False)
class SourceUnavailableError(TicdcError):
    """The source (broker, capture file) cannot be reached or read now; the fix is one clause."""

    retriable = True

    reason: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.fix}" if self.fix else self.reason


class SourceRefusedError(SourceUnavailableError):
    """The source answers and refuses: a wrong password, certificate, protocol or right.

    Waiting does not help.
    """

    retriable = False


@dataclass(eq=False, repr=False)
class StoreUnavailableError(TicdcError):
    """The store of a lake does not answer, or refuses a request: what it or the client reported."""

    retriable = True

    lake: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.lake} cannot be reached: {self.reason}; check TICDC_LAKE, the block "
            "`storage` of the changefeeds file and the credentials; `ticdc-assets doctor` tries "
            "them"
        )


@dataclass(eq=False, repr=False)
class BusyError(TicdcError):
    """Another writer holds the changefeed.

    Attributes:
        text: the sentence.
        holder: who holds it, for a sentence: `"process 123 (ticdc-assets sync)"`; "" if unknown.
    """

    retriable = True

    text: str
    holder: str = ""

    def __str__(self) -> str:
        return self.text


class LeaseLostError(BusyError):
    """The lease that this process wrote under has ended, or may have."""


class NotFoundError(TicdcError):
    """The requested changefeed, mirror or table does not exist."""


class LossError(TicdcError):
    """Work would lose rows or changes of the tables, and nobody accepted the loss."""


class StatementError(TicdcError):
    """A statement for the demo's upstream that cannot be run there; it changed nothing."""


@dataclass(eq=False, repr=False)
class LakeDamagedError(TicdcError):
    """A table of the lake is damaged: some of its files are missing, torn or foreign.

    Attributes:
        changefeed: the changefeed of the table.
        table: the table in words: `cuts of changefeed 'shop'`.
        path: its folder.
        finding: one clause that says what is damaged.
        repair: one clause that says what to type.
    """

    changefeed: str
    table: str
    path: str
    finding: str
    repair: str

    def __str__(self) -> str:
        return f"{self.table} is damaged: {self.finding} (in {self.path}); {self.repair}"


class LakeLayoutError(LakeDamagedError):
    """A changefeed's tables have the layout of a version before the first release.

    Its arguments are those of `LakeDamagedError`; it is raised and reported in the same places.
    """

    def __str__(self) -> str:
        return f"{self.table} have another layout: {self.finding}; {self.repair}"


UNREADABLE = (LakeDamagedError, StoreUnavailableError)
"""Errors of tables that cannot be read; nothing is known of the lake then."""


@dataclass(eq=False, repr=False)
class UnfinishedError(TicdcError):
    """Work, in words, succeeded for all pieces but some: a sentence by their name."""

    work: str
    failures: Mapping[str, str]

    def __str__(self) -> str:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.failures.items())
        return f"{self.work}: {len(self.failures)} failed, all others are done: {reasons}"


@dataclass(eq=False, repr=False)
class PartitionError(TicdcError):
    """The rows of a partition cannot be computed exactly.

    The reason is one clause for people, e.g. `"partitioned by KEY over a DECIMAL"`.
    """

    reason: str


@dataclass(eq=False, repr=False)
class InputError(TicdcError):
    """One piece of input does not fit: where, what was expected, what was there.

    Attributes:
        reason: stable lower-case slug for grouping, e.g. `"invalid_json"`.
        position: where in the input: a JSON path (`$.data.id`), a byte offset (`byte 17`) or a
            column (`after.id`).
        expected: what would have been accepted.
        got: what was there, shortened by the raiser to at most 200 characters.
    """

    quarantine = True

    reason: str
    position: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.reason} at {self.position}: expected {self.expected}, got {self.got}"


class WireError(InputError):
    """Bytes that are not a message of the format."""


class UnsupportedVersionError(WireError):
    """A message of a version this package does not know."""


class ClaimCheckError(InputError):
    """A large message that is missing at its claim check's location, or is wrong."""


class ImageError(InputError):
    """A row image that does not fit the schema version it cites."""


class CastError(InputError):
    """A stored value that the new column type of a DDL cannot hold."""


def shorten(value: Any, limit: int = 80) -> str:
    """Return `repr(value)` cut to `limit` characters, for the `got` of an `InputError`."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class MirrorCaveatWarning(UserWarning):
    """The rows of a table may differ from the upstream's; the text names the table and says why.

    `read_mirror` warns of each caveat; Python shows equal texts from one place once.
    """
