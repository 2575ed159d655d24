"""Where the tables of a changefeed are: the only place that knows.

Landed records are in the changefeed's folder, with the published cuts. Everything built from them
is below it, in a *generation*: a folder that the cuts name. A generation that is built next to the
published one (`verify`, `rebuild`) is *apart*: it has cuts of its own until it is published.

Paths are built from the changefeed's name (restricted by the configuration to [a-z0-9_]), from
names of generations (`generation_name`) and from table ids. No name from a message ever becomes
part of a path.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import uuid4

from ticdc_assets.storage.paths import LOG, AnyPath, names_in

MIRRORS, HISTORIES = "mirrors", "histories"
"""Names of the folders that hold the tables of mirrors and of histories."""

GENERATIONS = "generations"
"""Name of the folder that holds the generations of a changefeed."""

FIRST_GENERATION = "1"
"""The generation that a changefeed begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePaths:
    """The tables of one changefeed below the lake's root.

    Attributes:
        root: the lake: a folder, or a URI.
        changefeed: name of the changefeed.
        generation: the generation whose tables these are; `delta.generations` knows the published
            one.
        apart: whether no published cut names it; then it has cuts of its own, too.
    """

    root: AnyPath
    changefeed: str
    generation: str = FIRST_GENERATION
    apart: bool = False

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
    def raw_messages(self) -> AnyPath:
        """Landed Kafka records."""
        return self.home / "raw_messages"

    @property
    def accepted_gaps(self) -> AnyPath:
        """Gaps of landing that were accepted."""
        return self.home / "accepted_gaps"

    @property
    def seeds(self) -> AnyPath:
        """The tables that were seeded from exports, and how to read each export."""
        return self.home / "seeds"

    @property
    def snapshot_rows(self) -> AnyPath:
        """Rows of exports as they are in their files."""
        return self.home / "snapshot_rows"

    @property
    def landings(self) -> AnyPath:
        """What each landing saw: partitions, offsets, records."""
        return self.home / "landings"

    @property
    def change_log(self) -> AnyPath:
        """Decoded changes."""
        return self.generation_folder / "change_log"

    @property
    def change_groups(self) -> AnyPath:
        """The change log in numbers: per partition and per cited schema."""
        return self.generation_folder / "change_groups"

    @property
    def quarantine(self) -> AnyPath:
        """Records that could not be decoded or did not fit their schema."""
        return self.generation_folder / "quarantine"

    @property
    def schema_registry(self) -> AnyPath:
        """Every version of every table's schema."""
        return self.generation_folder / "schema_registry"

    @property
    def ddl_history(self) -> AnyPath:
        """Every DDL."""
        return self.generation_folder / "ddl_history"

    @property
    def schema_conflicts(self) -> AnyPath:
        """Different structures claimed for one schema version."""
        return self.generation_folder / "schema_conflicts"

    @property
    def cuts(self) -> AnyPath:
        """Published cuts."""
        return self.base / "cuts"

    @property
    def checksums(self) -> AnyPath:
        """Row checksums compared, per batch of the change log."""
        return self.generation_folder / "checksums"

    @property
    def tables(self) -> tuple[AnyPath, ...]:
        """All tables but mirrors and histories, each before those that are built from it."""
        return (
            self.raw_messages,
            self.seeds,
            self.snapshot_rows,
            self.landings,
            self.change_log,
            self.change_groups,
            self.quarantine,
            self.checksums,
            self.ddl_history,
            self.schema_conflicts,
            self.schema_registry,
            self.cuts,
        )

    @property
    def report(self) -> AnyPath:
        """Page about the changefeed, for people; not a table."""
        return self.home / "report" / "index.html"

    @property
    def by_name(self) -> AnyPath:
        """The newest cut's mirrors by their names, for other programs; not a table."""
        return self.base / "by_name.json"

    @property
    def lock(self) -> AnyPath:
        """Lock file of the one writer."""
        return self.home / "writer.lock"

    @property
    def workers(self) -> AnyPath:
        """Lock file that all processes hold together that work on a run of the changefeed."""
        return self.home / "workers.lock"

    @property
    def side_lock(self) -> AnyPath:
        """Lock file of the process that builds a generation next to the published one."""
        return self.home / "verify.lock"

    @property
    def lease(self) -> AnyPath:
        """Who holds the changefeed, where locks of files do not reach: numbered files."""
        return self.home / "lease"

    @property
    def side_lease(self) -> AnyPath:
        """The same for the process that builds a generation next to the published one."""
        return self.home / "verify_lease"

    @property
    def row_folders(self) -> tuple[AnyPath, AnyPath]:
        """The folders of mirrors and of histories."""
        return self.generation_folder / MIRRORS, self.generation_folder / HISTORIES

    def mirror_below(self, mirror_id: str) -> str:
        """Return where a mirror's table is below `home`, as other programs read it.

        Args:
            mirror_id: id of the mirror, a table id's digits and a counter.
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
