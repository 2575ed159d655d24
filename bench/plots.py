"""Plots of what was measured, as SVG: text and lines, a few kB each.

In: runs. Out: files: every goal as a bar beside its bound, how costs grow as small line plots with
logarithmic axes (some in pictures of their own), and of what the time of some pieces of work is
made. They are drawn here, without a library: a document needs them as files, and what draws such
files from plotly needs a browser.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from bench.goals import TARGETS, Reached
from bench.results import GOALS_PLOT, SHARES_PLOT, Report, Series, Shares

_COLOURS = ("#2563a8", "#d97706", "#3f8f5b", "#9d4edd", "#64748b", "#b91c1c")
_INK, _FAINT, _PAPER = "#1f2937", "#d1d5db", "#ffffff"
_MET, _MISSED = "#3f8f5b", "#c2571a"


class _Drawing:
    """An SVG of a size, with the few shapes that are needed."""

    def __init__(self, width: float, height: float) -> None:
        self._root = ET.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {width:g} {height:g}",
                "width": f"{width:g}",
                "height": f"{height:g}",
                "font-family": "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif",
                "font-size": "12",
            },
        )
        self.box(0, 0, width, height, _PAPER)

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self._add("rect", x=x, y=y, width=max(width, 0), height=height, fill=fill)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = _FAINT, dash: str = "none"
    ) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_dasharray=dash)

    def path(self, points: Sequence[tuple[float, float]], stroke: str) -> None:
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add("polyline", points=text, fill="none", stroke=stroke, stroke_width=2)
        for x, y in points:
            self._add("circle", cx=x, cy=y, r=3, fill=stroke)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        fill: str = _INK,
        bold: bool = False,
    ) -> None:
        weight = "600" if bold else "400"
        self._add("text", x=x, y=y, text_anchor=anchor, fill=fill, font_weight=weight).text = text

    def write(self, path: Path) -> None:
        ET.indent(self._root)
        path.write_bytes(ET.tostring(self._root, encoding="utf-8") + b"\n")

    def _add(self, tag: str, **attributes: float | str) -> ET.Element:
        named = {
            name.replace("_", "-"): value if isinstance(value, str) else f"{round(value, 1):g}"
            for name, value in attributes.items()
        }
        return ET.SubElement(self._root, tag, named)


def draw(report: Report, folder: Path) -> list[Path]:
    """Draw what there is to draw into a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    series = [item for run in report.runs for item in run.part.series]
    shares = [item for run in report.runs for item in run.part.shares]
    if reached := report.reached:
        drawn.append(_draw_goals(reached, folder / GOALS_PLOT))
    for picture in dict.fromkeys(item.picture for item in series):
        own = [item for item in series if item.picture == picture]
        drawn.append(_draw_growth(own, folder / picture))
    if shares:
        drawn.append(_draw_shares(shares, folder / SHARES_PLOT))
    return drawn


# Goals ------------------------------------------------------------------------------------------

_ROW = 22


def _draw_goals(reached: Sequence[Reached], path: Path) -> Path:
    """Bars of how far each value is beyond its goal: at the line it is just met."""
    left, width, top = 170.0, 460.0, 50.0
    drawing = _Drawing(left + width + 190, top + _ROW * len(reached) + 34)
    least, most = math.log(0.1), math.log(10)

    def place(ratio: float) -> float:
        clipped = min(max(math.log(max(ratio, 1e-9)), least), most)
        return left + (clipped - least) / (most - least) * width

    drawing.text(8, 18, "Goals: how many times better than asked for (or worse)", bold=True)
    bottom = top + _ROW * len(reached)
    for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10):
        x = place(ratio)
        drawing.line(x, top - 6, x, bottom, _INK if ratio == 1 else _FAINT)
        drawing.text(x, bottom + 18, f"{ratio:g}x", anchor="middle")
    for number, item in enumerate(reached):
        target = TARGETS[item.goal]
        y = top + number * _ROW
        value = max(item.value, 1e-9)
        ratio = target.bound / value if target.at_most else value / target.bound
        start, end = sorted((place(1), place(ratio)))
        met = target.is_met(item.value, target.bound)
        drawing.text(left - 8, y + 14, str(item.goal), anchor="end")
        drawing.box(start, y + 3, max(end - start, 1.5), _ROW - 8, _MET if met else _MISSED)
        if target.stretch is not None:
            wished = target.stretch / target.bound
            x = place(1 / wished if target.at_most else wished)
            drawing.line(x, y + 1, x, y + _ROW - 3, _INK, "2 2")
        drawing.text(left + width + 10, y + 14, target.said(item.value))
    drawing.text(left + width + 10, top - 12, "reached", bold=True)
    drawing.text(left, top - 10, "dashed: stretch")
    drawing.write(path)
    return path


# Growth -----------------------------------------------------------------------------------------


def _draw_growth(series: Sequence[Series], path: Path) -> Path:
    titles = list(dict.fromkeys(item.plot for item in series))
    wide, columns = 400, min(2, len(titles))
    most = max(sum(item.plot == title for item in series) for title in titles)
    high = 244 + 16 * most
    rows = -(-len(titles) // columns)
    drawing = _Drawing(wide * columns, high * rows)
    for number, title in enumerate(titles):
        x, y = number % columns * wide, number // columns * high
        _draw_lines(drawing, x, y, wide, high, [item for item in series if item.plot == title])
    drawing.write(path)
    return path


def _draw_lines(
    drawing: _Drawing, x: float, y: float, wide: float, high: float, series: Sequence[Series]
) -> None:
    # The names of the lines stand above what is drawn.
    left, right, top, bottom = x + 62, x + wide - 22, y + 44 + 16 * len(series), y + high - 48
    xs = [point[0] for item in series for point in item.points]
    ys = [point[1] for item in series for point in item.points]
    across, up = _Axis(xs, left, right), _Axis(ys, bottom, top)
    drawing.text(left, y + 20, series[0].plot, bold=True)
    drawing.text((left + right) / 2, bottom + 38, series[0].x, anchor="middle")
    drawing.text(left, y + 38, series[0].y, fill="#4b5563")
    for value in up.ticks():
        drawing.line(left, up.place(value), right, up.place(value))
        drawing.text(left - 6, up.place(value) + 4, _short(value), anchor="end")
    for value in across.ticks():
        drawing.line(across.place(value), top, across.place(value), bottom)
        drawing.text(across.place(value), bottom + 18, _short(value), anchor="middle")
    for number, item in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        drawing.path([(across.place(a), up.place(b)) for a, b in item.points], colour)
        named = [item.name] if len(series) > 1 else []
        fit = item.fit
        if fit is not None:
            ends = [(across.place(end), up.place(fit.at(end))) for end in (fit.least, fit.most)]
            drawing.line(*ends[0], *ends[1], colour, "5 4")
            named.append(f"power {fit.power:.2f}, limit {item.limit:g}")
        if named:
            place = y + 20 + 16 * (number + 1)
            fill = colour if item.is_within else _MISSED
            drawing.text(right, place, ", ".join(named), anchor="end", fill=fill, bold=True)


class _Axis:
    """A logarithmic axis from `begin` to `end` that holds all values."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self._least, self._most = math.log10(min(positive)), math.log10(max(positive))
        span = self._most - self._least
        # What hardly differs must not look as if it did.
        spare = max(0.08 * span, (0.8 - span) / 2)
        self._least, self._most = self._least - spare, self._most + spare
        self._begin, self._end = begin, end

    def place(self, value: float) -> float:
        """Return where a value is."""
        log = math.log10(value) if value > 0 else self._least
        share = (log - self._least) / (self._most - self._least)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """Return round values on the axis: powers of ten, and more where there are few."""
        powers = range(math.floor(self._least) - 1, math.ceil(self._most) + 1)
        found: list[float] = []
        for factors in ((1,), (1, 3), (1, 2, 5)):
            found = [
                factor * 10.0**power
                for power in powers
                for factor in factors
                if self._least <= math.log10(factor * 10.0**power) <= self._most
            ]
            if len(found) >= 3:
                return found
        return found


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    if value >= 1e3:
        return f"{value / 1e3:g}k"
    return f"{value:g}"


# Shares -----------------------------------------------------------------------------------------


def _draw_shares(shares: Sequence[Shares], path: Path) -> Path:
    left, width, top, high = 230.0, 420.0, 66.0, 34
    drawing = _Drawing(left + width + 90, top + high * len(shares) + 10)
    names = list(dict.fromkeys(name for item in shares for name, _ in item.seconds))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    drawing.text(8, 18, "Where the time of a sync goes (shares of wall time)", bold=True)
    x = left
    for name in names:
        drawing.box(x, 32, 12, 12, colours[name])
        drawing.text(x + 17, 42, name)
        x += 34 + 7 * len(name)
    for number, item in enumerate(shares):
        y = top + number * high
        whole = sum(seconds for _, seconds in item.seconds) or 1.0
        drawing.text(left - 8, y + 17, item.what, anchor="end")
        x = left
        for name, seconds in item.seconds:
            part = seconds / whole * width
            drawing.box(x, y, part, high - 10, colours[name])
            if part > 34:
                middle = x + part / 2
                drawing.text(middle, y + 16, f"{seconds / whole:.0%}", anchor="middle", fill=_PAPER)
            x += part
        drawing.text(left + width + 8, y + 17, f"{whole:.1f} s")
    drawing.write(path)
    return path
