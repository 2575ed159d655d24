"""The documents agree with the code: they name things that exist, tables have the columns.

Compared are paths, modules, commands and make targets in code spans, imports in snippets, the
columns of docs/tables.md. `mkdocs build --strict`, of `make lint`, checks the links. No test can
check that a sentence is true.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import ticdc_assets
from ticdc_assets.cli import main
from ticdc_assets_tests.test_readme import blocks_of

HEADINGS = ["Context", "Options", "Decision", "Status", "Consequences"]

MADE_LATER = {"defs.yaml", ".venv", ".lake", ".demo", ".dagster_home", ".venv-uv", "generations"}
"""What commands and users make: it is named and not in a clone."""


def documents(root: Path) -> list[Path]:
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("bench/*.md")])


def spans(text: str) -> Iterator[str]:
    """Code spans outside fenced blocks."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for match in re.finditer(r"`([^`\n]+)`", outside):
        yield match[1]


def anchors(text: str) -> set[str]:
    """What the headings of a document are called in links to it."""
    return {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


# Decisions --------------------------------------------------------------------------------------


def decisions(root: Path) -> list[Path]:
    found = sorted((root / "docs" / "decisions").glob("[0-9]*.md"))
    assert found
    return found


def test_decisions_are_numbered_and_listed(root: Path) -> None:
    names = [path.name for path in decisions(root)]
    # A decision that another one took the place of is gone, and its number is not given again.
    numbers = [int(name[:4]) for name in names]
    assert numbers == sorted(set(numbers))
    listed = (root / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d{4}-[^)]+)\)", listed) == names


def test_decisions_have_their_five_headings_and_fit_a_page(root: Path) -> None:
    for path in decisions(root):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {path.name[:4]}. "), path.name
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS, path.name
        sections = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
        assert all(section.strip() for section in sections), path.name
        assert len(text.split()) <= 550, f"{path.name} is longer than a page"


# What is named ----------------------------------------------------------------------------------


def test_paths_that_are_named_exist(root: Path) -> None:
    for document in documents(root):
        for span in spans(document.read_text(encoding="utf-8")):
            if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?|[\w.-]+\.(py|md|yaml|toml)", span) is None:
                continue
            looks_like_path = re.search(r"(\.(py|md|yaml|toml)|/)$", span) or span.startswith(
                ("docs/", "ticdc_assets/", "ticdc_assets_tests/", "bench/")
            )
            if not looks_like_path or span.split("/")[0] in MADE_LATER:
                continue
            # Modules are also named from the package, or from the folder of a module named before.
            assert any(
                place.exists()
                for place in (root / span, root / "ticdc_assets" / span, document.parent / span)
            ) or list((root / "ticdc_assets").rglob(span)), f"{document.name}: {span}"


def test_tests_that_are_named_exist(root: Path) -> None:
    """The table of docs/reliability.md says which test makes each fault."""
    there = {
        name
        for path in (root / "ticdc_assets_tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named: set[str] = set()
    for span in spans((root / "docs" / "reliability.md").read_text(encoding="utf-8")):
        path, _, name = span.rpartition("::")
        if path:
            assert (root / path).is_file(), span
        if name.startswith("test_"):
            named.add(name)
    assert len(named) > 30
    assert not named - there


def test_snippets_import_only_the_public_api(root: Path) -> None:
    imported: set[str] = set()
    for document in documents(root):
        for block in blocks_of(document.read_text(encoding="utf-8")):
            for module, names in re.findall(
                r"^\s*(?:from|import) (ticdc_assets[\w.]*)(?: import (.+))?$", block.text, re.M
            ):
                assert module == "ticdc_assets", f"{document.name}: {module}"
                imported |= {name.strip() for name in names.split(",")}
    assert imported == set(ticdc_assets.__all__) - {"ChangefeedComponent"}


def test_the_public_api_can_be_imported() -> None:
    for name in ticdc_assets.__all__:
        assert getattr(ticdc_assets, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ticdc_assets.nothing


def test_modules_that_are_named_exist(root: Path) -> None:
    for document in documents(root):
        text = document.read_text(encoding="utf-8")
        for name in set(re.findall(r"\bticdc_assets(?:_tests)?(?:\.[a-z_]+)+\b", text)):
            if name.endswith((".egg", ".py")) or hasattr(ticdc_assets, name.split(".", 1)[1]):
                continue
            assert importlib.util.find_spec(name) is not None, f"{document.name}: {name}"


def test_commands_that_are_named_exist(root: Path) -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    context = click.Context(main)
    for document in documents(root):
        text = document.read_text(encoding="utf-8")
        for command in re.findall(
            r"(?:`|^|^    )ticdc-assets (?:--demo )?([a-z-]+)", text, re.MULTILINE
        ):
            assert main.get_command(context, command) is not None, f"{document.name}: {command}"
        for target in re.findall(r"(?:`|^(?:    )?)make ([a-z-]+)", text, re.MULTILINE):
            assert target in targets, f"{document.name}: make {target}"


# Tables -----------------------------------------------------------------------------------------


def columns_of(root: Path, table: str) -> dict[str, str]:
    text = (root / "docs" / "tables.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {table}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None, table
    assert re.search(r"^One row per ", section[1], re.MULTILINE), f"{table} does not say its grain"
    rows = re.findall(r"^\| `(\w+)` \| (\S.*?) \| .+ \|$", section[1], re.MULTILINE)
    assert len(dict(rows)) == len(rows)
    return dict(rows)


@pytest.fixture(scope="module")
def code_columns() -> dict[str, dict[str, str]]:
    """The columns of each table by their Spark types, in the order of docs/tables.md."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from ticdc_assets.log import (
        accepted_gaps,
        change_files,
        change_statistics,
        checksums,
        cuts,
        landing,
        landing_files,
        quarantine,
        schema_tables,
        seed_landing,
        seeds,
    )

    schemas = {
        "raw_messages": landing_files.RAW_SCHEMA,
        "landings": landing._LANDINGS_SCHEMA,
        "accepted_gaps": accepted_gaps.ACCEPTED_GAPS_SCHEMA,
        "snapshot_rows": seed_landing.SNAPSHOT_SCHEMA,
        "seeds": seeds.SEEDS_SCHEMA,
        "change_log": change_files.CHANGE_LOG_SCHEMA,
        "change_groups": change_statistics.GROUPS_SCHEMA,
        "quarantine": quarantine.FAULT_SCHEMA,
        "schema_registry": schema_tables.REGISTRY_SCHEMA,
        "ddl_history": schema_tables.DDL_SCHEMA,
        "schema_conflicts": schema_tables.CONFLICT_SCHEMA,
        "checksums": checksums.CHECKSUMS_SCHEMA,
        "cuts": cuts.CUT_SCHEMA,
    }
    return {
        table: {field.name: field.dataType.simpleString() for field in from_arrow_schema(schema)}
        for table, schema in schemas.items()
    }


def test_tables_have_the_columns_that_are_described(
    root: Path, code_columns: dict[str, dict[str, str]]
) -> None:
    for table, there in code_columns.items():
        assert list(columns_of(root, table).items()) == list(there.items()), table


def test_mirrors_have_the_columns_that_are_described(root: Path) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    from ticdc_assets.model.schemas import TableSchema
    from ticdc_assets.rows.mirror_rows import MirrorLayout

    layout = MirrorLayout(
        schema=TableSchema(database="d", table="t", table_id=1, version=1, columns=(), indexes=())
    )
    stored = from_arrow_schema(layout.arrow)
    ours = {field.name: field.dataType.simpleString() for field in stored.fields}
    assert columns_of(root, "mirrors") == ours
    assert stored.names == [layout.commit_ts, layout.rescued]


def test_histories_have_the_columns_that_are_described(root: Path) -> None:
    from ticdc_assets.model.schemas import TableSchema
    from ticdc_assets.rows.history_layout import HistoryLayout, version_schema

    schema = TableSchema(database="d", table="t", table_id=1, version=1, columns=(), indexes=())
    layout = HistoryLayout(schema=schema)
    versions = version_schema(schema)
    names = {"int64": "bigint", "map<string, string>": "map<string,string>"}
    types = [str(versions.field(place).type) for place in layout.places]
    ours = dict(zip(layout.names, [names.get(item, item) for item in types], strict=True))
    assert columns_of(root, "histories") == ours


def test_every_table_is_described(root: Path, code_columns: dict[str, dict[str, str]]) -> None:
    text = (root / "docs" / "tables.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [*code_columns, "mirrors", "histories"]


def test_caveats_are_explained(root: Path) -> None:
    """Each reason for a caveat is in docs/limitations.md, as the code begins it."""
    modules = ("planning", "lineages", "lineage_plans")
    plan = "".join(
        (root / "ticdc_assets" / "changelog" / f"{name}.py").read_text(encoding="utf-8")
        for name in modules
    )
    mirrors = (root / "ticdc_assets" / "mirrors" / "applying.py").read_text(encoding="utf-8")
    damage = root / "ticdc_assets" / "changelog" / "encoder_damage.py"
    gaps = (root / "ticdc_assets" / "log" / "accepted_gaps.py").read_text(encoding="utf-8")
    reasons = [
        *re.findall(r'reason = f"([^"{]+)', damage.read_text(encoding="utf-8")),
        *re.findall(r'_REASON = "([^"]+)"', plan),
        *re.findall(r'\.add_caveat\(\s*f?"([^"{]+)', plan),
        *re.findall(r'reason=f?"([^"{]+)', plan),
        *re.findall(r'reason = \(\s*"([^"]+)"', plan),
        *re.findall(r'caveats\.append\("([^"]+)"', mirrors),
        *re.findall(r'reason=f"([^:]+:)', gaps),
    ]
    assert len(reasons) >= 8
    explained = (root / "docs" / "limitations.md").read_text(encoding="utf-8")
    for reason in reasons:
        beginning = re.split(r": a|, replays|: $", reason)[0].strip()
        assert f"| {beginning}" in explained, reason


def test_known_differences_are_those_of_the_tests(root: Path) -> None:
    """docs/limitations.md and the tables of the tests give the same reasons, none less or more."""
    from ticdc_assets_tests import golden
    from ticdc_assets_tests.source import test_event_lines_golden

    text = (root / "docs" / "limitations.md").read_text(encoding="utf-8")
    section = re.search(r"^### Differences from the truth\n(.*?)^###", text, re.M | re.S)
    assert section is not None
    told = re.findall(r"^\|(?:[^|]+\|){3} ([^|]+) \|$", section[1], re.M)
    assert sorted(told[1:]) == sorted(
        {
            *(reason for _, reason in golden.LOST_BY_THE_FORMAT.values()),
            *(difference.reason for difference in test_event_lines_golden.DIFFERENCES),
        }
    )
