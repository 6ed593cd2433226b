"""The playground's colours and names: one palette, that of the reports; nothing that is unused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from relaygen.serve._labels import REASONS
from relaygen.serve._playground import FOLDER

PACKAGE = files("relaygen")
FILES = {file.name: file.read_text("utf-8") for file in PACKAGE.joinpath("serve", FOLDER).iterdir()}
LOOK, STYLE, PAGE = FILES["look.css"], FILES["style.css"], FILES["index.html"]
CODE = "".join(text for name, text in FILES.items() if name.endswith(".js"))
SCHEMES = {"light": 0, "dark": 1}
REPORTS = {"large": "violet", "small": "accent", "bad": "other"}
"""By name here: the reports' name for it, where that is another."""

# What people without one of the three kinds of cones see of linear red, green and blue: table 1 of
# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision
# deficiency" (2009), at severity 1.
MISSING = {
    "red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
            (-0.003882, -0.048116, 1.051998)),
    "green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
              (-0.011820, 0.042940, 0.968881)),
    "blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
             (0.004733, 0.691367, 0.303900)),
}  # fmt: skip

Triple = tuple[float, float, float]


def palette() -> dict[str, tuple[str, str]]:
    """By name: light and dark."""
    found = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\);", LOOK)
    return {name: (light, dark) for name, light, dark in found}


def report() -> Iterator[dict[str, str]]:
    """The colours of the evaluation report: light, then dark."""
    templates = ("templates/page.html.j2", "evaluate/templates/report.html.j2")
    texts = [PACKAGE.joinpath(*name.split("/")).read_text("utf-8") for name in templates]
    blocks = [re.findall(r":root\s*{([^}]*)}", text)[:2] for text in texts]
    for scheme in zip(*blocks, strict=True):
        yield dict(re.findall(r"--([\w-]+): (#\w{6});", "".join(scheme)))


def linear(colour: str) -> Triple:
    def one(start: int) -> float:
        value = int(colour[start : start + 2], 16) / 255
        return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)

    return one(1), one(3), one(5)


def luminance(colour: Triple) -> float:
    """Of WCAG."""
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def contrast(one: Triple, other: Triple) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: Triple) -> Triple:
    """CIE L*a*b* under D65."""
    red, green, blue = (min(1.0, max(0.0, value)) for value in colour)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.0888

    def root(value: float) -> float:
        return float(value ** (1 / 3)) if value > 0.008856 else 7.787 * value + 16 / 116

    return 116 * root(y) - 16, 500 * (root(x) - root(y)), 200 * (root(y) - root(z))


def distance(one: Triple, other: Triple) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(lab(one), lab(other), strict=True)) ** 0.5)


# Colours.


def test_the_colours_are_those_of_the_evaluation_report() -> None:
    for at, theirs in enumerate(report()):
        ours = {name: colours[at] for name, colours in palette().items()}
        assert ours == {name: theirs[REPORTS.get(name, name)] for name in ours}
    assert {"large", "small", "bg", "text"} <= set(palette())


def test_the_icon_has_the_colours_of_the_models() -> None:
    fills = re.findall(r'fill="(#\w{6})"', FILES["icon.svg"])[1:]
    large, small = palette()["large"][0], palette()["small"][0]
    assert fills == [large, small, large, small]


def test_colours_are_written_down_in_one_place() -> None:
    named = re.compile(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|\bhsla?\(|\blight-dark\(")
    for name, text in FILES.items():
        if name not in ("look.css", "icon.svg"):
            assert not named.search(text), name
    used = set(re.findall(r"var\(--(\w+)\)", LOOK + STYLE + CODE))
    assert set(palette()) <= used


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("ground", ["bg", "card"])
@pytest.mark.parametrize("name", ["text", "muted", "large", "small", "warn", "bad"])
def test_every_text_has_the_contrast_of_wcag_aa(name: str, ground: str, scheme: str) -> None:
    one, other = (palette()[each][SCHEMES[scheme]] for each in (name, ground))
    assert contrast(linear(one), linear(other)) >= 4.5


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("cone", MISSING)
def test_the_models_differ_for_those_who_lack_a_kind_of_cones(cone: str, scheme: str) -> None:
    def seen(name: str) -> Triple:
        colour = linear(palette()[name][SCHEMES[scheme]])
        red, green, blue = (
            sum(weight * value for weight, value in zip(row, colour, strict=True))
            for row in MISSING[cone]
        )
        return red, green, blue

    assert distance(seen("large"), seen("small")) > 20


# Names.


def styled(kind: str) -> set[str]:
    """The classes (".") or ids ("#") that the style sheets name."""
    text = re.sub(r"/\*.*?\*/|{[^{}]*}", " ", LOOK + STYLE, flags=re.DOTALL)
    return set(re.findall(rf"{re.escape(kind)}([a-z]\w*)", text))


def test_no_rule_is_for_something_that_is_not_there() -> None:
    ids = set(re.findall(r'\bid="(\w+)"', PAGE))
    written = {word for value in re.findall(r'\bclass="([^"]*)"', PAGE) for word in value.split()}
    made = set(re.findall(r"\w+", " ".join(re.findall(r'["`][^"`]*["`]', CODE))))
    models = {"large", "small", "inserted"}
    assert styled("#") <= ids
    assert styled(".") <= written | made | models


def test_every_id_that_a_script_asks_for_is_in_the_page() -> None:
    ids = re.findall(r'\bid="(\w+)"', PAGE)
    assert len(ids) == len(set(ids))
    asked = set(re.findall(r'\bat\("(\w+)"\)', CODE))
    assert asked
    assert asked <= set(ids)


def test_every_export_is_imported() -> None:
    for name in re.findall(r"export (?:async )?(?:function\*?|class) (\w+)", CODE):
        assert re.search(rf"import {{[^}}]*\b{name}\b[^}}]*}}", CODE), name


def test_the_page_has_words_for_every_reason_of_a_handoff() -> None:
    table = re.search(r"const WHY = {(.*?)};", FILES["words.js"], re.DOTALL)
    assert table is not None
    assert set(re.findall(r"^  (\w+):", table[1], re.MULTILINE)) == set(REASONS)
