"""Scripted engines that answer numbered questions, each model in words of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from relaygen import Relay
from relaygen._profile import Profile
from relaygen._types import Delta, SegmentRequest
from relaygen.engines.scripted import Failure, ScriptedEngine, ScriptedTokenizer
from relaygen.evaluate._arms import parse_arms
from relaygen.evaluate._folder import Folder, Settings, hash_of
from relaygen.evaluate._job import Evaluation
from relaygen.evaluate._questions import Item
from relaygen.evaluate._schedule import Decoding
from relaygen.profiles import load

Tick = Callable[[], None]

PLAIN: Decoding = ("none", "none")

STEPS = 6


def nothing() -> None:
    """Does not count."""


def sentence(name: str, number: int, place: int, right: bool) -> str:
    """One model's sentence at a place of its answer; every second one begins with a cue."""
    if place == STEPS:
        return f"The answer is \\boxed{{{2 * number if right else -1}}}."
    opening = "Thus" if (number + place) % 2 else "And"
    return f"{opening} {name} takes step {place} of {number}. "


class Answerer(ScriptedEngine):
    """Continues any text sentence by sentence; the last one says twice the question's number.

    Args:
        name: of the model; it is in what it writes.
        wrong: of which numbers its answer is wrong.
        thinks: everything but the answer is in tags.
        tick: called at each delta.
        ms: per token.
        failures: planted faults; requests are counted over the engine's life.
    """

    def __init__(
        self,
        name: str,
        *,
        wrong: Callable[[int], bool] = lambda number: False,
        thinks: bool = False,
        tick: Tick = nothing,
        ms: float = 0.0,
        failures: tuple[Failure, ...] = (),
    ) -> None:
        super().__init__(vocabulary="same", failures=failures)
        self._name, self._wrong, self._thinks = name, wrong, thinks
        self._tick, self._ms = tick, ms
        self.writing = self.most = 0

    def _following(self, number: int) -> Callable[[str], str]:
        def free(text: str) -> str:
            if self._thinks and "</think>" not in text:
                if len(text) < len("<think>\n"):
                    return "<think>\n"[len(text) :]
                text = text.removeprefix("<think>\n")
            elif self._thinks:
                text = text.partition("</think>")[2].lstrip("\n")
                last = sentence(self._name, number, STEPS, not self._wrong(number))
                return last[len(text) :] if last.startswith(text) else ""
            place, rest = text.count(". "), text.rpartition(". ")[2]
            if self._thinks and place == STEPS:
                return "</think>\n\n"
            if place == STEPS and rest.endswith("."):
                return ""
            own = sentence(self._name, number, place, not self._wrong(number))
            if own.startswith(rest):
                return own[len(rest) :]
            return f"{2 * number}}}." if place == STEPS else "so on. "

        return free

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """Each request has a script of its own: several may run at once."""
        tokens = ScriptedTokenizer()
        asked, mark, _ = b"".join(map(tokens.data, request.ids)).decode().partition("<assistant>")
        found = re.search(r"Number (\d+)", asked)
        one = ScriptedEngine(
            free=self._following(int(found.group(1)) if found else 0),
            vocabulary="same",
            token_ms=self._ms,
        )
        one._prompts[tokens.encode(asked + mark)] = None
        number = len(self.requests)
        one._failures = tuple(
            replace(each, request=0) for each in self._failures if each.request in (None, number)
        )
        self.requests.append(request)
        self.writing += 1
        self.most = max(self.most, self.writing)
        try:
            async with aclosing(one.stream(request)) as deltas:
                async for delta in deltas:
                    self._tick()
                    yield delta
        finally:
            self.writing -= 1


def small_is_wrong(number: int) -> bool:
    """On every third question."""
    return number % 3 == 0


def pair(*, tick: Tick = nothing, thinks: bool = False, **small: Any) -> dict[Decoding, Relay]:
    """A large model that is always right and a small one that is not; options are the small's."""
    profile = tagged() if thinks else load("embedded")
    engines = (
        Answerer("Anna", tick=tick, thinks=thinks),
        Answerer("Ben", **{"tick": tick, "thinks": thinks, "wrong": small_is_wrong, **small}),
    )
    return {PLAIN: Relay(*engines, profile=profile, policy="large")}


def tagged() -> Profile:
    """A profile whose models think."""
    return replace(load("embedded"), name="tagged", thinking="tags", answer_role="small")


def items(n: int) -> list[Item]:
    """Questions with gold answers."""
    return [
        Item(f"q{k}", f"Number {k} ?", f"Number {k} ? Box it in \\boxed{{}}.", str(2 * k), "math")
        for k in range(n)
    ]


def evaluation(
    folder: Path,
    arms: str = "large,small,relay,random",
    *,
    n: int = 4,
    profile: Profile | None = None,
    at_once: int = 1,
    questions: list[Item] | None = None,
    **changes: Any,
) -> Evaluation:
    """An evaluation in ``folder/out``; further options are `Settings`'."""
    profile = profile or load("embedded")
    parsed = parse_arms(arms.split(","))
    settings = Settings(
        profile=profile.name,
        profile_sha256=hash_of(profile),
        level="",
        large="large.gguf",
        small="small.gguf",
        data="numbers",
        preset="",
        seed=3,
        sampling={**asdict(profile.sampling), "logit_bias": {}},
        max_tokens=400,
        ctx=4096,
        devices=1,
        n=n,
        arms=tuple(arm.name for arm in parsed),
    )
    return Evaluation(
        Folder(folder / "out"),
        replace(settings, **changes),
        profile,
        items(n) if questions is None else questions,
        parsed,
        at_once=at_once,
    )
