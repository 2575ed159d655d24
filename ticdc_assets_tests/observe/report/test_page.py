"""The page: texts are never markup, and every part says what it leaves out."""

import html
import json
import re
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs_version

from ticdc_assets.config import Changefeed
from ticdc_assets.delta.lake import Lake
from ticdc_assets.observe.overview import FeedOverview, read_overview
from ticdc_assets.observe.report.page import TABLES_SHOWN, environment, headlines, page
from ticdc_assets.observe.report.plots import COLOURS, SCHEMES, plots, timeline_plot
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.observe.wording import duration, plot_text, rate_text, visible
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.observe.report.small_lake import (
    ODD_NAMES,
    cut_of,
    mirror_of,
    small_lake,
)
from ticdc_assets_tests.statuses import NOW, ago, changefeed, publish_with_tables


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    feed, paths = small_lake(tmp_path_factory.mktemp("lake"))
    return Lake(changefeed=feed, paths=paths)


@pytest.fixture(scope="module")
def overview(lake: Lake) -> FeedOverview:
    return read_overview(lake, now=NOW)


@pytest.fixture(scope="module")
def text(overview: FeedOverview) -> str:
    return page([overview])


class Elements(HTMLParser):
    """What a browser would find: elements with attributes, and texts outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.scripts.append(data)
        else:
            self.texts.append(data)


def empty(folder: Path) -> FeedOverview:
    paths = LakePaths(root=folder, changefeed="new")
    feed = changefeed(folder / "none.jsonl", "new")
    return read_overview(Lake(changefeed=feed, paths=paths), now=NOW)


# Texts ------------------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(), max_size=60) | st.sampled_from(ODD_NAMES)


PLACES = environment().from_string(
    '{% import "parts.html" as parts %}'
    '<div><td title="{{ text }}">{{ text }}</td>{{ parts.name(text, text) }}</div>'
)
JSON = environment().from_string('<script type="application/json">{{ value|tojson }}</script>')


@given(text=ANY_TEXT)
def test_text_in_an_element_is_text(text: str) -> None:
    found = Elements(PLACES.render(text=text))
    assert [tag for tag, _ in found.elements] == ["div", "td", "bdi", "bdi"]
    assert found.elements[1][1] == {"title": visible(text)}
    assert "".join(found.texts) == f"{visible(text)}{visible(text)}.{visible(text)}"


def test_no_template_takes_a_text_for_markup(root: Path) -> None:
    made = environment()
    assert made.autoescape is True
    for name in made.list_templates():
        templates = root / "ticdc_assets" / "observe" / "report" / "templates"
        source = (templates / name).read_text("utf-8")
        assert not re.search(r"\|\s*safe|autoescape|Markup", source), name


@given(text=ANY_TEXT)
def test_what_is_shown_can_be_written_and_steers_no_display(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x1f\x7f]", shown)


@given(text=ANY_TEXT)
def test_json_in_the_page_ends_where_it_should(text: str) -> None:
    found = Elements(JSON.render(value={"a": text}))
    assert [tag for tag, _ in found.elements] == ["script"]
    assert json.loads("".join(found.scripts)) == {"a": text}


@given(text=ANY_TEXT)
def test_a_label_of_a_plot_has_no_markup(text: str) -> None:
    label = plot_text(text)
    assert "<" not in label
    assert html.unescape(label) == f"\u2068{visible(text)}\u2069"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0.0 s"), (119.9, "119.9 s"), (120, "2.0 min"), (7200, "2.0 h"), (200_000, "2.3 days")],
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told
    assert duration(-seconds if seconds else 0) == (f"-{told}" if seconds else told)


def test_rates_have_a_unit_that_says_something() -> None:
    texts = [rate_text(rate) for rate in (0, 0.05, 2, 1234.5)]
    assert texts == ["0.0/s", "3.0/min", "2.0/s", "1,234/s"]


# The page ---------------------------------------------------------------------------------------


def test_the_page_is_small_and_its_script_is_of_plotlys_version(text: str) -> None:
    assert len(text.encode()) < 1_500_000
    said = re.search(r"plotly\.js \(basic - minified\) v(\d+)\.", text)
    assert said is not None
    assert said[1] == get_plotlyjs_version().split(".")[0]


def test_the_page_is_well_formed_and_has_every_part(text: str) -> None:
    found = Elements(text)
    assert found.open == []
    shown = " ".join(found.texts)
    for heading in (
        *("Replication lag", "Throughput", "Backlog in the source", "Held rows"),
        *("Open quarantine", "Tables", "DDL", "Schemas", "Quarantine", "Topics and partitions"),
        "Cuts",
    ):
        assert heading in shown
    identities = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    links = [str(item["href"]) for tag, item in found.elements if tag == "a"]
    assert links
    assert {link[1:] for link in links} <= set(identities)


HOSTILE = """</td></script><img src=x onerror='window.hit=1'>{{ 7 * 7 }}" onload="1\u202e"""


def hostile(value: Any) -> Any:
    """Return `value` with `HOSTILE` in place of every text of it but words of ours."""
    if type(value) is str:
        return HOSTILE
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(hostile, value))
    if type(value) is dict:
        return {key: hostile(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type | Changefeed | LakePaths):
        known = {item.name: getattr(value, item.name) for item in fields(value) if item.init}
        return replace(value, **{key: hostile(item) for key, item in known.items()})
    return value


def test_a_page_of_nothing_but_hostile_texts_has_the_elements_of_any_page(
    overview: FeedOverview, text: str
) -> None:
    found = Elements(page([hostile(overview)]))
    usual = Elements(text)
    assert found.open == []
    assert "img" not in {tag for tag, _ in found.elements}
    assert {key for _, attributes in found.elements for key in attributes} <= {
        key for _, attributes in usual.elements for key in attributes
    }
    shown = "".join(found.texts)
    assert visible(HOSTILE) in shown
    usually = "".join(usual.texts)
    assert all(visible(name) in usually for name in ODD_NAMES)
    assert "\u202e" not in shown
    run = [item for tag, item in found.elements if tag == "script" and item.get("type") is None]
    assert len(run) == 2


def test_nothing_of_a_record_is_in_the_page(text: str) -> None:
    assert "a secret of a record" not in text
    assert "shop/0 offset 11 " not in text, "it was re-driven"
    assert "<b>$.x</b>" in html.unescape(text)


def test_the_policy_allows_nothing_but_what_is_inside(text: str) -> None:
    (policy,) = [
        str(item["content"])
        for tag, item in Elements(text).elements
        if item.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert policy.count("'sha256-") == 2
    assert "http" not in policy
    assert not re.search(r"<(?:link|script)[^>]+(?:href|src)=", text)


def test_an_empty_lake_has_a_page(tmp_path: Path) -> None:
    overview = empty(tmp_path)
    found = Elements(page([overview]))
    shown = " ".join(found.texts)
    assert "no cut yet" in shown
    assert "Nothing has landed yet." in shown
    assert overview.status.level is Level.WARN
    assert all(plot.figure is None for plot in (*plots(overview), timeline_plot(overview)))
    assert not (tmp_path / "new").exists(), "reading makes nothing"


def test_several_changefeeds_share_a_page(overview: FeedOverview, tmp_path: Path) -> None:
    both = page([overview, empty(tmp_path)])
    found = Elements(both)
    identities = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert {"overview", "feed-shop", "feed-new"} <= set(identities)
    assert len(both) < len(page([overview])) + 50_000, "plotly is in it once"


def test_thousands_of_tables_are_listed_by_search(lake: Lake, tmp_path: Path) -> None:
    paths = LakePaths(root=tmp_path, changefeed="shop")
    mirrors = tuple(
        mirror_of("big", f"table_{number}", mirror_id=str(number), changes=number)
        for number in range(1500)
    )
    publish_with_tables(paths, cut_of(1, ago(5), 1, mirrors=mirrors), with_mirrors=False)
    text = page([read_overview(lake.at(paths), now=NOW)])
    found = Elements(text)
    assert "All 1,500 tables, with a search" in found.texts
    listed = [item for item in found.scripts if item.startswith('[[["')]
    assert len(json.loads(listed[0])) == 1500
    assert text.count("<bdi>big</bdi>") == TABLES_SHOWN
    assert "table_1499" in "".join(found.texts), "what changed most is shown"
    assert len(text) < 6_000_000


def test_plots_have_a_template_for_both_schemes(overview: FeedOverview) -> None:
    for plot in (*plots(overview), timeline_plot(overview)):
        assert plot.figure is not None
        assert plot.templates is not None
        assert set(plot.templates) == {"light", "dark"}
        assert plot.summary
        traces = len(plot.figure["data"])
        for template in plot.templates.values():
            assert len(template["data"]["scatter"]) == traces, plot.name
        assert "color" not in json.dumps(plot.figure["data"]), "colours are the template's"


def test_ddl_that_is_not_understood_is_marked(overview: FeedOverview) -> None:
    figure = timeline_plot(overview).figure
    assert figure is not None
    assert [trace["name"] for trace in figure["data"]] == ["alter", "not understood"]
    (unclear,) = figure["data"][1]["text"]
    assert "WHIRL" in unclear
    assert "<i>" not in unclear


def test_schema_changes_are_told_with_their_renames(text: str) -> None:
    plain = re.sub("<[^>]+>", "", html.unescape(re.sub("</?(?:code|bdi)>", "", text)))
    assert "a renamed to b" in plain
    assert "b: int -> bigint" in plain
    assert "added (varchar(10))" in plain


def test_topics_are_listed_with_what_they_are_to_the_watermark(text: str) -> None:
    (rows,) = re.findall('<table[^>]+aria-label="Topics">.*?</table>', text, re.DOTALL)
    plain = [re.sub("<[^>]+>", " ", row).split() for row in rows.split("<tr>")[2:]]
    assert [(row[0], row[2], row[3]) for row in plain] == [
        ("idle", "empty", "no"),
        ("shop", "live", "yes"),
    ]


# Verdicts ---------------------------------------------------------------------------------------


def test_the_headlines_of_a_lake_with_some_of_everything(overview: FeedOverview) -> None:
    assert [(item.label, item.value, item.level) for item in headlines(overview)] == [
        ("Replication lag", "18.0 s", Level.OK),
        ("Global watermark", "15.0 s old", Level.OK),
        ("Tables behind", "2 of 11", Level.WARN),
        ("Held rows", "6", Level.OK),
        ("Quarantine", "2", Level.WARN),
    ]
    assert not any(item.is_complete for item in overview.tables[:2]), "they come first"


# Contrast ---------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_plots_can_be_read_in_both_schemes(scheme: int) -> None:
    for role in ("text", "muted", "blue", "orange", "green", "purple", "red", "teal"):
        assert contrast(COLOURS[role][scheme], COLOURS["surface"][scheme]) >= 4.5, role


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_of_the_page_can_be_read_in_both_schemes(scheme: str, root: Path) -> None:
    style = (root / "ticdc_assets" / "observe" / "report" / "page.css").read_text(encoding="utf-8")
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    given = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", light if scheme == "light" else dark))
    for ground in ("ground", "surface"):
        for name in ("text", "muted", "link"):
            assert contrast(given[name], given[ground]) >= 4.5, (name, ground)
    for level in Level:
        assert contrast(given[level.word], given[f"{level.word}-ground"]) >= 4.5, level
