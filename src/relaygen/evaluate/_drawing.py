"""Drawing with matplotlib: one look, the same bytes each time, colours that a page can change."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEXT, MUTED, GRID, PLAIN = "#1d1c1a", "#6e6a63", "#ebe9e4", "#a6a19a"
ACCENT, CARD, AMBER = "#0d7a6f", "#ffffff", "#d97706"
_VARIABLES = {
    TEXT: "var(--text)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PLAIN: "var(--plain)",
    ACCENT: "var(--accent)",
    CARD: "var(--card)",
    AMBER: "rgb(var(--amber))",
}
"""By colour of the drawing: what a page that may be dark has for it."""

_STYLE: Any = {  # whose keys matplotlib lists one by one
    "svg.fonttype": "none",
    "svg.hashsalt": "relaygen",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11.0,
    "text.color": TEXT,
    "text.parse_math": False,
    "axes.edgecolor": PLAIN,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "figure.facecolor": CARD,
    "grid.color": GRID,
}
_WIDTH = 11.0  # inches
_DPI = 144
_MOST_NAME = 24
_LETTER, _TALL = 14.0, 28.0  # pixels that a letter of a label takes
_SIDES = [(side * 18.0, up) for up in (26.0, -26.0, 0.0, 52.0, -52.0) for side in (1, -1)]

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot, or why there is none.

    Attributes:
        name: of its files.
        title: what it shows.
        told: how to read it; where it was left out, why.
        svg: a file of its own; "" where it was left out.
        png: the same as an image.
    """

    name: str
    title: str
    told: str
    svg: str = ""
    png: bytes = b""

    @property
    def inline(self) -> str:
        """The SVG for inside a page: in the page's colours, without addresses, ids of its own."""
        text = self.svg[self.svg.index("<svg") :]
        text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r"""\sxmlns(?::\w+)?="[^"]*"|\sversion="[^"]*\"""", "", text)
        text = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", text, count=2)
        text = text.replace("xlink:href", "href")
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", text)
        for color, variable in _VARIABLES.items():
            text = text.replace(color, variable)
        return text.replace("<svg", '<svg aria-hidden="true"', 1).strip()


def drawn(name: str, title: str, told: str, height: float, draw: Callable[[Figure], None]) -> Plot:
    """A plot as `draw` makes it, `height` inches tall.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    svg, png = io.StringIO(), io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with _figure(height) as figure:
        draw(figure)
        figure.savefig(svg, format="svg", metadata=nothing)
        figure.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
    return Plot(name, title, told, svg.getvalue(), png.getvalue())


@contextmanager
def _figure(height: float) -> Iterator[Figure]:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", extra="eval") from None
    with matplotlib.rc_context(_STYLE):
        yield Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")


def dot(axes: Axes, x: float, y: float, *, filled: bool) -> None:
    """One mark, hollow or filled."""
    face = ACCENT if filled else CARD
    axes.plot(
        [x],
        [y],
        "o",
        color=face,
        markeredgecolor=ACCENT,
        markersize=8,
        markeredgewidth=1.8,
        zorder=3,
        clip_on=False,
    )


def short(name: str) -> str:
    """A name that leaves room for the drawing."""
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"


Box = tuple[float, float, float, float]
"""Left, bottom, right and top, in pixels."""


def label(
    figure: Figure,
    axes: Axes,
    places: Sequence[Place],
    names: Sequence[str],
    others: Sequence[Place] = (),
) -> None:
    """Names beside their dots, on the first side where they cover neither a dot nor a name.

    Args:
        figure, axes: what is drawn so far.
        places, names: of the dots.
        others: dots without a name.
    """
    figure.draw_without_rendering()  # only then are places on the canvas known
    dots = [(float(x), float(y)) for x, y in map(axes.transData.transform, (*places, *others))]
    points = dots[: len(places)]
    taken: list[Box] = [(x - 9, y - 9, x + 9, y + 9) for x, y in dots]
    edge = axes.get_window_extent()
    for (x, y), place, name in zip(points, places, names, strict=True):
        text = short(name)
        sides = {_box(x, y, dx, dy, len(text)): (dx, dy) for dx, dy in _SIDES}
        inside = [
            box
            for box in sides
            if edge.x0 <= box[0] and box[2] <= edge.x1 and edge.y0 <= box[1] and box[3] <= edge.y1
        ]
        free = [box for box in inside if not any(_overlap(box, other) for other in taken)]
        chosen = next(iter((*free, *inside, *sides)))
        taken.append(chosen)
        dx, dy = sides[chosen]
        axes.annotate(
            text,
            place,
            xytext=(dx * 72 / _DPI, dy * 72 / _DPI),
            textcoords="offset points",
            ha="left" if dx > 0 else "right",
            va="center",
            color=TEXT,
        )


def _box(x: float, y: float, dx: float, dy: float, letters: int) -> Box:
    left = x + dx - (0.0 if dx > 0 else _LETTER * letters)
    return left, y + dy - _TALL / 2, left + _LETTER * letters, y + dy + _TALL / 2


def _overlap(one: Box, two: Box) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]
