"""Where the tables of a changefeed are: the only place that knows.

Landed records are in the changefeed's folder, with the published cuts. Everything built from them
is below it, in a *generation*: a folder that the cuts name. A generation that is built next to the
published one (`verify`, `rebuild`) is *apart*: it has cuts of its own until it is published.

Paths are built from the changefeed's name (restricted by the configuration to [a-z0-9_]), from
names of generations (`generation_name`) and from table ids, and never from a name in a message.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import cast
from uuid import uuid4

from ticdc_assets.storage.paths import LOG, AnyPath, names_in

MIRRORS, HISTORIES = "mirrors", "histories"
"""Names of the folders that hold the tables of mirrors and of histories."""

GENERATIONS = "generations"
"""Name of the folder that holds the generations of a changefeed."""

FIRST_GENERATION = "1"
"""The generation that a changefeed begins with."""

_TABLES = (
    *("raw_messages", "seeds", "snapshot_rows", "landings", "change_log", "change_groups"),
    *("quarantine", "checksums", "ddl_history", "schema_conflicts", "schema_registry", "cuts"),
)


class _Below:
    """A path below a folder of a changefeed, of the attribute's name if no other one is given."""

    def __init__(self, folder: str, name: str = "") -> None:
        self._folder, self._name = folder, name

    def __set_name__(self, _: type, name: str) -> None:
        self._name = self._name or name

    def __get__(self, paths: "LakePaths", _: type | None = None) -> AnyPath:
        return cast("AnyPath", getattr(paths, self._folder)) / self._name


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePaths:
    """The tables of one changefeed below the lake's root, in one generation (`delta.lake`).

    If no published cut names the generation, it is `apart` and has cuts of its own, too.
    """

    root: AnyPath
    changefeed: str
    generation: str = FIRST_GENERATION
    apart: bool = False

    raw_messages = _Below("home")
    """Landed Kafka records."""
    seeds = _Below("home")
    """The tables that were seeded from exports, and how to read each export."""
    snapshot_rows = _Below("home")
    """Rows of exports as they are in their files."""
    landings = _Below("home")
    """What each landing saw: partitions, offsets, records."""
    change_log = _Below("generation_folder")
    """Decoded changes."""
    change_groups = _Below("generation_folder")
    """The change log in numbers: per partition and per cited schema."""
    quarantine = _Below("generation_folder")
    """Records that could not be decoded or did not fit their schema."""
    checksums = _Below("generation_folder")
    """Row checksums compared, per batch of the change log."""
    ddl_history = _Below("generation_folder")
    """Every DDL."""
    schema_conflicts = _Below("generation_folder")
    """Different structures claimed for one schema version."""
    schema_registry = _Below("generation_folder")
    """Every version of every table's schema."""
    cuts = _Below("base")
    """Published cuts."""

    accepted_gaps = _Below("home")
    """Gaps of landing that were accepted."""
    report = _Below("home", "report/index.html")
    """Page about the changefeed, for people; not a table."""
    by_name = _Below("base", "by_name.json")
    """The newest cut's mirrors by their names, for other programs; not a table."""
    lock = _Below("home", "writer.lock")
    """Lock file of the one writer."""
    workers = _Below("home", "workers.lock")
    """Lock file that all processes hold together that work on a run of the changefeed."""
    side_lock = _Below("home", "verify.lock")
    """Lock file of the process that builds a generation next to the published one."""
    lease = _Below("home")
    """Who holds the changefeed, where locks of files do not reach: numbered files."""
    side_lease = _Below("home", "verify_lease")
    """The same for the process that builds a generation next to the published one."""

    @property
    def home(self) -> AnyPath:
        """Folder of the changefeed."""
        return self.root / self.changefeed

    @property
    def base(self) -> AnyPath:
        """Folder of the changefeed, or of a generation that is apart."""
        return self.generation_folder if self.apart else self.home

    @property
    def generations(self) -> AnyPath:
        """Folder of the generations."""
        return self.home / GENERATIONS

    @property
    def generation_folder(self) -> AnyPath:
        """Folder of the generation: everything that is built from the landed records."""
        return self.generations / _named(self.generation)

    def of(self, generation: str) -> "LakePaths":
        """Return the same changefeed with another published generation."""
        return replace(self, generation=generation, apart=False)

    def beside(self) -> "LakePaths":
        """Return a new generation of the changefeed, apart."""
        return replace(self, generation=generation_name(), apart=True)

    @property
    def tables(self) -> tuple[AnyPath, ...]:
        """All tables but mirrors and histories, each before those that are built from it."""
        return tuple(getattr(self, name) for name in _TABLES)

    @property
    def row_folders(self) -> tuple[AnyPath, AnyPath]:
        """The folders of mirrors and of histories."""
        return self.generation_folder / MIRRORS, self.generation_folder / HISTORIES

    def mirror_below(self, mirror_id: str) -> str:
        """Return where a mirror's table is below `home`, as other programs read it.

        The id of the mirror is a table id's digits and a counter.
        """
        return f"{GENERATIONS}/{_named(self.generation)}/{MIRRORS}/{_checked(mirror_id)}"

    def mirror(self, mirror_id: str) -> AnyPath:
        """Table of one mirror."""
        return self.home / self.mirror_below(mirror_id)

    def history(self, mirror_id: str) -> AnyPath:
        """Table of the history of one mirror."""
        return self.generation_folder / HISTORIES / _checked(mirror_id)


def changefeeds_in(root: AnyPath) -> list[str]:
    """Return the names of the changefeeds with landed records in a lake, sorted."""
    return sorted(
        name
        for name in names_in(root)
        if (LakePaths(root=root, changefeed=name).raw_messages / LOG).is_dir()
    )


def generation_name() -> str:
    """Return the name of a new generation: its time, and a part that no other has.

    Spark caches what it knows of a table by its path, so no path is used again.
    """
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"


def _named(generation: str) -> str:
    if not generation or set(generation) - _IN_NAMES:
        raise ValueError(f"generation {generation!r} is not made of hexadecimal digits, T and -")
    return generation


_IN_NAMES = frozenset("0123456789abcdefT-")


def _checked(mirror_id: str) -> str:
    if not mirror_id.replace("-", "").isdigit():
        raise ValueError(f"mirror id {mirror_id!r} is not made of digits")
    return mirror_id
