"""Where the tables of a changefeed are: the only place that knows.

Paths are built from the changefeed's name (restricted by the configuration to [a-z0-9_]) and from
table ids. No name from a message ever becomes part of a path.
"""

from dataclasses import dataclass

from ticdc_assets.storage.paths import LOG, AnyPath, names_in

MIRRORS, HISTORIES = "mirrors", "histories"
"""Names of the folders that hold the tables of mirrors and of histories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePaths:
    """The tables of one changefeed below the lake's root.

    Attributes:
        root: the lake: a folder, or a URI.
        changefeed: name of the changefeed.
        side: name of a side place, if this is one: all tables but `raw_messages` and
            `accepted_gaps` are in it.
    """

    root: AnyPath
    changefeed: str
    side: str | None = None

    @property
    def base(self) -> AnyPath:
        """Folder of the changefeed, or of its side place."""
        return self.root / self.changefeed if self.side is None else self.side_places / self.side

    @property
    def raw_messages(self) -> AnyPath:
        """Landed Kafka records; a side place has none of its own."""
        return self.root / self.changefeed / "raw_messages"

    @property
    def accepted_gaps(self) -> AnyPath:
        """Gaps of landing that were accepted; a side place has none of its own."""
        return self.root / self.changefeed / "accepted_gaps"

    @property
    def side_places(self) -> AnyPath:
        """Folder of side places, in which mirrors are made again to be compared."""
        return self.root / self.changefeed / "verify"

    def side_place(self, name: str) -> "LakePaths":
        """Return the side place `name`, which is made of hexadecimal digits."""
        if not name or set(name) - set("0123456789abcdef"):
            raise ValueError(f"side place {name!r} is not made of hexadecimal digits")
        return LakePaths(root=self.root, changefeed=self.changefeed, side=name)

    @property
    def seeds(self) -> AnyPath:
        """The tables that were seeded from exports, and how each export is to be read."""
        return self.base / "seeds"

    @property
    def snapshot_rows(self) -> AnyPath:
        """Rows of exports as they are in their files."""
        return self.base / "snapshot_rows"

    @property
    def landings(self) -> AnyPath:
        """What each landing saw: partitions, offsets, records."""
        return self.base / "landings"

    @property
    def change_log(self) -> AnyPath:
        """Decoded changes."""
        return self.base / "change_log"

    @property
    def change_groups(self) -> AnyPath:
        """The change log in numbers: per partition and per cited schema."""
        return self.base / "change_groups"

    @property
    def quarantine(self) -> AnyPath:
        """What could not be decoded or did not fit its schema."""
        return self.base / "quarantine"

    @property
    def schema_registry(self) -> AnyPath:
        """Every version of every table's schema."""
        return self.base / "schema_registry"

    @property
    def ddl_history(self) -> AnyPath:
        """Every DDL."""
        return self.base / "ddl_history"

    @property
    def schema_conflicts(self) -> AnyPath:
        """Different structures claimed for one schema version."""
        return self.base / "schema_conflicts"

    @property
    def cuts(self) -> AnyPath:
        """Published cuts."""
        return self.base / "cuts"

    @property
    def checksums(self) -> AnyPath:
        """Row checksums compared, per batch of the change log."""
        return self.base / "checksums"

    @property
    def tables(self) -> tuple[AnyPath, ...]:
        """All tables but mirrors and histories, each before those that are made from it."""
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
        """Page about the changefeed, for people; no table."""
        return self.base / "report" / "index.html"

    @property
    def by_name(self) -> AnyPath:
        """The newest cut's mirrors by their names, for other programs; no table."""
        return self.base / "by_name.json"

    @property
    def lock(self) -> AnyPath:
        """Lock file of the one writer."""
        return self.base / "writer.lock"

    @property
    def workers(self) -> AnyPath:
        """Lock file that all processes hold together that work on a run of the changefeed."""
        return self.base / "workers.lock"

    @property
    def side_lock(self) -> AnyPath:
        """Lock file of the one that makes side places."""
        return self.root / self.changefeed / "verify.lock"

    @property
    def lease(self) -> AnyPath:
        """Who holds the changefeed, where locks of files do not reach; its commits say it."""
        return self.base / "lease"

    @property
    def side_lease(self) -> AnyPath:
        """The same for the one that makes side places."""
        return self.root / self.changefeed / "verify_lease"

    @property
    def row_folders(self) -> tuple[AnyPath, AnyPath]:
        """The folders of mirrors and of histories."""
        return self.base / MIRRORS, self.base / HISTORIES

    def mirror_below(self, mirror_id: str) -> str:
        """Return where a mirror's table is below `base`, as other programs are told.

        Args:
            mirror_id: id of the mirror, made of a table id's digits and a counter.
        """
        return f"{MIRRORS}/{_checked(mirror_id)}"

    def mirror(self, mirror_id: str) -> AnyPath:
        """Table of one mirror."""
        return self.base / self.mirror_below(mirror_id)

    def history(self, mirror_id: str) -> AnyPath:
        """Table of the history of one mirror."""
        return self.base / HISTORIES / _checked(mirror_id)


def changefeeds_in(root: AnyPath) -> list[str]:
    """Return the names of the changefeeds that a lake has landed something of, sorted."""
    return sorted(
        name
        for name in names_in(root)
        if (LakePaths(root=root, changefeed=name).raw_messages / LOG).is_dir()
    )


def _checked(mirror_id: str) -> str:
    if not mirror_id.replace("-", "").isdigit():
        raise ValueError(f"mirror id {mirror_id!r} is not made of digits")
    return mirror_id
