"""What a calibration selected, on the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from relaygen.calibrate._outcome import Calibration, Level, Steered
from relaygen.cli._selection_table import show_selection

NAN = float("nan")


def shown(
    capsys: pytest.CaptureFixture[str],
    *levels: Level,
    policy: Literal["relay", "margin"] = "relay",
) -> list[str]:
    """The table of levels and what is below it, white space made even."""
    show_selection(Calibration((), NAN, "paper", False, None, levels, (), None, 0), policy)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    first = next(at for at, line in enumerate(lines) if line.startswith("level policy"))
    return [line for line in lines[first:] if line]


def steered(utilization: float) -> Steered:
    return Steered(("Thus", "So"), 0.8, 0.25, utilization, 31.5, 0.93, 0.942, True)


def test_both_policies_of_a_level_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    own = steered(0.7012)
    lines = shown(
        capsys,
        Level("careful", ("Thus",), 0.81, 20.5, 0.91, False),
        Level("fast", ("Thus", "So"), 0.76, 40.5, 0.87, True, NAN, NAN, 0.7, 0.83, own, own),
    )
    rows = [line for line in lines if "%" in line]
    assert rows == [
        "careful relay 1 81 % 20.5 0.91 –",
        "fast relay 2 76 % 40.5 0.87 83 %",
        "margin:0.80:0.25 2 70 % 31.5 0.93 94 %",
        "fast: unproven, misses its 70 %",
    ]


def test_levels_of_the_margin_policy_are_told_with_their_best_cues(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = replace(steered(0.7012), unproven=False)
    best = replace(steered(0.6), stay=0.9, cues=("Thus",))
    level = Level("fast", ("Thus", "So"), 0.7, 40.5, 0.87, False, NAN, NAN, 0.7, 0.83, own, best)
    lines = shown(capsys, level, policy="margin")
    assert [line for line in lines if "%" in line] == [
        "fast relay 2 70 % 40.5 0.87 83 %",
        "margin:0.90:0.25 1 60 % 31.5 0.93 94 %",
        "fast, margin:0.90:0.25: unproven, misses its 70 %",
    ]


@pytest.mark.parametrize(
    ("utilization", "missed"), [(0.74, False), (0.76, True), (0.66, False), (0.64, True)]
)
def test_a_level_far_from_its_target_says_so(
    capsys: pytest.CaptureFixture[str], utilization: float, missed: bool
) -> None:
    own = steered(utilization)
    level = Level("fast", ("Thus",), 0.7, 40.5, 0.87, False, NAN, NAN, 0.7, 0.83, own, own)
    text = " ".join(shown(capsys, level))
    assert ("fast, margin:0.80:0.25: misses its 70 %" in text) == missed
    assert "fast: " not in text
