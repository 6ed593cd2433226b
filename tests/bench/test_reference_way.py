"""The reference's way of working, as the benchmark imitates it: its texts are the trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import httpx
import pytest

from relaygen._types import ROLES, Role
from relaygen.bench import Figures, played
from relaygen.mock import MockConfig, Trace, load_trace, serving
from relaygen.profiles import load

from ..scripts import loaded

TRACE = load_trace("short")


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with loaded("benchmarks/reference_way.py") as module:
        yield module


class Rig:
    """Two fast mock engines and the reference's way over them."""

    def __init__(self, script: ModuleType, trace: Trace, cues: tuple[str, ...]) -> None:
        self._stack = ExitStack()
        config = MockConfig(trace=trace, token_ms=0.05, prefill_ms=0, max_stops=30)
        self.urls: dict[Role, str] = {
            role: self._stack.enter_context(serving(config)) for role in ROLES
        }
        self.reference: Any = script.Reference(self.urls, cues)

    def log(self, role: Role) -> list[dict[str, Any]]:
        return list(httpx.get(f"{self.urls[role]}/mock/log").json())

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *error: object) -> None:
        self.reference.close()
        self._stack.close()


def test_a_text_by_stop_strings_is_the_trace(script: ModuleType) -> None:
    with Rig(script, TRACE, load("qwen3-32b+1.7b").cues) as rig:
        written = rig.reference.by_stop_strings("How?")
        small = rig.log("small")
        entries = rig.log("large") + small
    assert written.text == TRACE.text
    assert written.handoffs > 2
    assert min(written.tokens.values()) > 0
    assert written.requests == 2 * len(entries)  # a listing and a call for each segment
    *sizes, _ = [entry["received_bytes"] for entry in small]  # the answer has no stop strings
    assert sizes == sorted(set(sizes))  # the whole text is sent again
    assert sizes[-1] - sizes[0] > len(TRACE.text) / 3


def test_a_stop_string_ends_a_segment_inside_a_word(script: ModuleType) -> None:
    words = ("<think>", "\n", "I", " see", " it", " all", " know", "n", ".", " Yes", ".", "\n")
    trace = Trace.of([*words, "</think>", "\n\n", "Done", "."])
    with Rig(script, trace, ("now",)) as rig:
        written = rig.reference.by_stop_strings("How?")
        small = rig.log("small")
    assert written.text == trace.text
    assert small[0]["start"] == 7  # behind "know", of which nothing is left
    assert written.handoffs == 3  # "know", its sentence's end, the answer


def test_too_early_a_cue_is_not_seen(script: ModuleType) -> None:
    words = ("<think>", "\n", "So ", "it", " is", " here", ".", "\n", "</think>", "\n\n", "Done")
    with Rig(script, Trace.of(words), ("So ",)) as rig:
        written = rig.reference.by_stop_strings("How?")
    assert written.text == "".join(words)
    assert written.handoffs == 1  # the answer's


def test_our_points_give_our_shares(script: ModuleType) -> None:
    generation = played(TRACE)
    figures = Figures.of(generation)
    segments = [(segment.role, segment.tokens) for segment in generation.segments]
    with Rig(script, TRACE, ()) as rig:
        written = rig.reference.by_lengths("How?", segments)
    assert written.text == TRACE.text
    assert written.tokens == {"large": figures.large, "small": figures.small}
    assert written.handoffs == figures.handoffs
