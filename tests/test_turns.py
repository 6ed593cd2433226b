"""Failures, gates and least lengths: who goes on when not everything goes well."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relaygen import (
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
    FellBack,
    Generation,
    UsageError,
    _retry,
)
from relaygen._gate import Breaker, PayGate, RoundTrip
from relaygen._hints import HintIds
from relaygen._types import Kind, Role, Sampling
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.policies import HandOff, LargeOnly, Policy, RelayPolicy, SmallOnly, Token
from relaygen.policies.base import STAY, Decision
from relaygen.relay import Generating

from .support import CUES, PLAIN, THINKING, arun, limits, run, task, tokens

RELAY = RelayPolicy.of(CUES)
RESET = EngineUnreachableError("reset by the test")
GARBAGE = EngineReplyError("garbage by the test")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retry, "_FIRST_S", 0.0)


class Closed:
    """A gate that blocks delegates and remembers what it was told."""

    def __init__(self, *, also_leads: bool = False) -> None:
        self.leads = also_leads
        self.told: list[str] = []

    def blocked(self, kind: Kind) -> str:
        return "closed" if kind == "delegate" or self.leads else ""

    def refused(self) -> None:
        self.told.append("refused")

    def began(self) -> None:
        self.told.append("began")

    def failed(self) -> None:
        self.told.append("failed")

    def succeeded(self) -> None:
        self.told.append("succeeded")

    def returned(self, trip: RoundTrip) -> None:
        self.told.append(f"returned {trip.tokens}")


class Open(Closed):
    def blocked(self, kind: Kind) -> str:
        return ""


def test_a_closed_gate_leaves_the_large_model_on_duty() -> None:
    gate = Closed()
    made = run(RELAY, PLAIN, gates=(gate,))
    assert made.roles() == [("large", PLAIN)]
    assert made.generation.usage.paused == "closed"
    assert gate.told == ["refused", "refused"]


def test_a_gate_for_delegates_lets_the_answer_through() -> None:
    made = run(RELAY, THINKING, gates=(Closed(),))
    assert [segment.role for segment in made.generation.segments] == ["large", "small"]
    assert made.generation.text == THINKING
    both = run(RELAY, THINKING, gates=(Closed(also_leads=True),))
    assert both.generation.usage.small_tokens == 0


class Opening(Closed):
    """Lets the third wish through, and from then on everything."""

    def blocked(self, kind: Kind) -> str:
        return "closed" if self.told.count("refused") < 2 else ""


def hinting(
    policy: Policy, script: str, gate: Closed
) -> tuple[Generation, ScriptedEngine, ScriptedEngine]:
    large, small = ScriptedEngine(script), ScriptedEngine(script)
    engines: dict[Role, ScriptedEngine] = {"large": large, "small": small}
    tables = {role: HintIds(engine) for role, engine in engines.items()}
    described = task(policy, thinking=None, gates=(gate,))
    made = asyncio.run(Generating(engines, described, hints=tables).whole())
    return made, large, small


@pytest.mark.parametrize(
    ("gate", "hinted"),
    [(Open(), [True, True, True, True]), (Closed(), [False]), (Opening(), [False, True])],
    ids=["open", "closed", "opening"],
)
def test_no_engine_stops_at_a_cue_that_a_gate_blocks(gate: Closed, hinted: list[bool]) -> None:
    script = "We add. Thus it is. So it goes. Now we stop. Done."
    made, large, _ = hinting(RELAY, script, gate)
    assert made.text == script
    assert [bool(request.stop_ids) for request in large.requests] == hinted
    assert made.usage.large.hint_stops == 0


def test_a_gate_is_no_matter_to_who_hands_back() -> None:
    class Back:
        name, first, margins = "back", "small", frozenset[Role]()
        roles = frozenset[Role](("large", "small"))

        def start(self, start: object) -> Any:
            return self

        def begin(self, *_: object) -> None:
            pass

        def feed(self, token: Token) -> Decision:
            return HandOff(token.index, "lead", "word") if token.text == " Thus" else STAY

        def hints(self) -> tuple[str, ...]:
            return (" Thus",)

        def probed(self, piece: object) -> Decision:
            return STAY

        def answer(self, on_duty: Role) -> Role:
            return on_duty

    made, large, small = hinting(Back(), PLAIN, Closed(also_leads=True))  # type: ignore[arg-type]
    assert made.text == PLAIN
    assert [bool(request.stop_ids) for request in small.requests] == [True]
    assert [bool(request.stop_ids) for request in large.requests] == [False]


def test_an_open_gate_hears_of_every_delegation() -> None:
    gate = Open()
    made = run(
        RELAY,
        PLAIN,
        large=ScriptedEngine(PLAIN, token_ms=1),
        small=ScriptedEngine(PLAIN),
        gates=(gate,),
    )
    assert made.generation.usage.paused == ""
    sizes = [s.tokens for s in made.generation.segments if s.role == "small"]
    expected = [x for size in sizes for x in ("began", "succeeded", f"returned {size}")]
    assert gate.told == expected
    assert len(sizes) == 2


def test_a_breaker_stops_delegation_and_the_text_is_whole() -> None:
    breaker = Breaker(failures=1, cooldown=1000.0)
    small = ScriptedEngine(PLAIN, failures=[Failure(RESET, request=None, token=1)])
    made = run(RELAY, PLAIN, small=small, gates=(breaker,))
    assert made.generation.text == PLAIN
    assert len(small.requests) == 1
    assert breaker.state == "open"
    assert made.generation.usage.fallbacks == 1
    assert made.generation.usage.paused == "the small engine keeps failing"
    again = run(RELAY, PLAIN, gates=(breaker,))
    assert again.small.requests == []


def test_a_breaker_closes_when_a_trial_goes_well() -> None:
    now = [0.0]
    breaker = Breaker(failures=1, cooldown=1.0, clock=lambda: now[0])
    breaker.failed()
    now[0] = 2.0
    made = run(RELAY, PLAIN, gates=(breaker,))
    assert breaker.state == "closed"
    assert made.generation.usage.small_tokens > 0


def test_with_a_gate_garbage_does_not_end_all_delegation() -> None:
    small = ScriptedEngine(PLAIN, failures=[Failure(GARBAGE, request=0, token=1)])
    made = run(RELAY, PLAIN, small=small, gates=(Breaker(failures=5),))
    assert made.generation.text == PLAIN
    assert len(small.requests) == 2
    alone = ScriptedEngine(PLAIN, failures=[Failure(GARBAGE, request=0, token=1)])
    run(RELAY, PLAIN, small=alone)
    assert len(alone.requests) == 1


def test_a_request_that_the_small_engine_does_not_take_says_nothing_of_the_engine() -> None:
    refused = EngineReplyError("no such schema", refused=True)
    gate = Open()
    small = ScriptedEngine(PLAIN, failures=[Failure(refused, request=None)])
    made = run(RELAY, PLAIN, small=small, gates=(gate,))
    assert made.generation.text == PLAIN
    assert "failed" not in gate.told
    assert len(small.requests) == 1  # it is not asked again in this generation


def test_delegation_that_does_not_pay_is_paused() -> None:
    script = "Start. " + "Thus it is so. We go. " * 8
    made = run(
        RELAY,
        script,
        large=ScriptedEngine(script, token_ms=1),
        small=ScriptedEngine(script, ttft_ms=200),
        gates=(PayGate(least=1, skip=100),),
    )
    assert made.generation.text == script
    assert sum(s.role == "small" for s in made.generation.segments) == 2
    assert "did not pay" in made.generation.usage.paused


def test_the_large_engine_is_asked_again_before_its_first_token() -> None:
    large = ScriptedEngine(PLAIN, failures=[Failure(RESET, request=0), Failure(RESET, request=1)])
    made = run(RELAY, PLAIN, large=large, retries=2)
    assert made.generation.text == PLAIN
    assert made.generation.usage.large.retries == 2
    assert made.of(FellBack) == []


@pytest.mark.parametrize(
    "failure", [Failure(RESET, request=0, token=2), Failure(GARBAGE, request=0)]
)
def test_what_has_begun_or_cannot_help_is_not_repeated(failure: Failure) -> None:
    large = ScriptedEngine(PLAIN, failures=[failure])
    with pytest.raises(EngineError):
        run(RELAY, PLAIN, large=large, retries=2)
    assert len(large.requests) == 1


def test_the_small_engine_is_not_repeated_beside_a_large_one() -> None:
    small = ScriptedEngine(PLAIN, failures=[Failure(RESET, request=0)])
    made = run(RELAY, PLAIN, small=small, retries=2)
    assert made.generation.usage.fallbacks == 1
    assert made.generation.usage.small.retries == 0
    lone = ScriptedEngine(PLAIN, failures=[Failure(RESET, request=0)])
    assert run(SmallOnly(), PLAIN, small=lone, retries=2).generation.text == PLAIN


def test_the_small_model_finishes_where_that_is_wanted() -> None:
    large = ScriptedEngine(THINKING, failures=[Failure(RESET, request=0, token=6)])
    made = run(RELAY, THINKING, large=large, rescue=True)
    assert made.generation.text == THINKING
    assert [segment.role for segment in made.generation.segments[:2]] == ["large", "small"]
    assert {segment.role for segment in made.generation.segments[1:]} == {"small"}
    (fallback,) = made.of(FellBack)
    assert fallback.role == "large"
    assert "large model failed" in made.generation.notes[0]


def test_a_rescuer_that_fails_too_is_an_error() -> None:
    large = ScriptedEngine(PLAIN, failures=[Failure(RESET, request=0, token=3)])
    small = ScriptedEngine(PLAIN, failures=[Failure(GARBAGE, request=None, token=1)])
    with pytest.raises(EngineReplyError, match="garbage"):
        run(RELAY, PLAIN, large=large, small=small, rescue=True)


def test_no_model_ends_before_the_least_length() -> None:
    cut = tokens("We add 2 and 2.")
    large = ScriptedEngine(PLAIN, ends_at=[cut])
    short = run(LargeOnly(), PLAIN, large=large)
    assert short.generation.text == "We add 2 and 2."
    large = ScriptedEngine(PLAIN, ends_at=[cut])
    made = run(LargeOnly(), PLAIN, large=large, limits=limits(min_tokens=cut + 1))
    assert made.generation.text == PLAIN


def test_the_least_length_counts_what_was_written_before_and_spares_delegates() -> None:
    made = run(RELAY, PLAIN, limits=limits(min_tokens=20))
    kept = 0
    for request in made.large.requests:
        assert request.min_tokens == max(0, 20 - kept)
        kept = sum(s.tokens for s in made.generation.segments[:2])
        break
    assert all(request.min_tokens == 0 for request in made.small.requests)
    assert made.large.requests[1].min_tokens == 20 - kept


def test_a_least_length_above_the_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="min_tokens must be between 0 and max_tokens"):
        limits(min_tokens=5000)


@pytest.mark.parametrize(
    "values", [{"presence_penalty": 0.5}, {"frequency_penalty": 1.0}, {"repetition_penalty": 1.1}]
)
def test_penalties_are_for_one_model(values: dict[str, Any]) -> None:
    sampling = Sampling(**values)
    with pytest.raises(UsageError, match="penalties need a policy with one model"):
        task(RELAY, thinking=None, sampling=sampling)
    assert run(LargeOnly(), PLAIN, sampling=sampling).large.requests[0].sampling == sampling


@pytest.mark.parametrize(
    "values",
    [{"presence_penalty": 2.5}, {"frequency_penalty": -3.0}, {"repetition_penalty": 0.0}],
)
def test_penalties_out_of_range(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(values))):
        Sampling(**values)


def test_gates_are_told_of_a_small_engine_that_cannot_be_met() -> None:
    class Absent(ScriptedEngine):
        async def info(self) -> Any:
            raise RESET

    gate = Open()
    made = run(RELAY, PLAIN, small=Absent(), gates=(gate,))
    assert made.generation.text == PLAIN
    assert gate.told == ["failed"]


def test_nobody_waits_for_an_engine_that_keeps_failing() -> None:
    class Silent(ScriptedEngine):
        async def info(self) -> Any:
            await asyncio.sleep(60)

    breaker = Breaker(failures=1, cooldown=1000.0)
    breaker.failed()
    made = run(RELAY, PLAIN, small=Silent(), gates=(breaker,))
    assert made.generation.text == PLAIN
    assert "keeps failing" in made.generation.notes[0]


def test_nobody_waits_for_a_stalled_engine_whose_own_prompt_is_needed() -> None:
    class Stalled(ScriptedEngine):
        async def render(self, conversation: Any) -> Any:
            await asyncio.sleep(60)

    breaker = Breaker(failures=1, cooldown=1000.0)
    breaker.failed()
    small = Stalled(PLAIN, vocabulary="another")
    made = run(RELAY, PLAIN, small=small, gates=(breaker,))
    assert made.generation.text == PLAIN
    assert any("keeps failing" in note for note in made.generation.notes)


def test_an_engine_that_nobody_waits_for_has_not_failed_again() -> None:
    now = [0.0]
    breaker = Breaker(failures=1, cooldown=1.0, clock=lambda: now[0])
    breaker.failed()

    class Silent(ScriptedEngine):
        async def info(self) -> Any:
            await asyncio.sleep(60)

    for _ in range(3):  # in an hour of steady traffic the trial must come
        now[0] += 0.3
        run(RELAY, PLAIN, small=Silent(PLAIN), gates=(breaker,))
    now[0] += 0.15
    assert breaker.state == "half-open"
    gate = Closed(also_leads=True)
    run(RELAY, PLAIN, small=Silent(PLAIN), gates=(gate,))
    assert "failed" not in gate.told


def test_one_waits_for_an_engine_on_trial_and_the_others_do_not() -> None:
    now = [0.0]
    breaker = Breaker(failures=1, cooldown=1.0, clock=lambda: now[0])
    breaker.failed()
    now[0] = 2.0

    class Slow(ScriptedEngine):
        async def info(self) -> Any:
            await asyncio.sleep(0.3)
            raise RESET

    async def both() -> list[Any]:
        first = asyncio.ensure_future(arun(RELAY, PLAIN, small=Slow(PLAIN), gates=(breaker,)))
        await asyncio.sleep(0.15)
        second = await arun(RELAY, PLAIN, small=Slow(PLAIN), gates=(breaker,))
        return [(await first).generation.notes, second.generation.notes]

    waited, spared = asyncio.run(both())
    assert "reset by the test" in waited[0]
    assert "keeps failing" in spared[0]


def test_a_small_engine_that_cannot_render_is_not_asked_again() -> None:
    class Broken(ScriptedEngine):
        asked = 0

        async def render(self, conversation: Any) -> Any:
            self.asked += 1
            raise RESET

    small = Broken(PLAIN, vocabulary="another")
    assert run(RELAY, PLAIN, small=small, retries=2).generation.text == PLAIN
    assert small.asked == 1


def test_a_context_that_could_not_be_caught_up_is_tried_again() -> None:
    class Hiccup(ScriptedEngine):
        failed = 0

        async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
            if not special and not self.failed:
                self.failed = 1
                raise RESET
            return await super().tokenize(text, special=special)

    large = Hiccup(PLAIN)
    small = ScriptedEngine(PLAIN, vocabulary="another")
    made = run(RELAY, PLAIN, large=large, small=small, retries=1)
    assert made.generation.text == PLAIN
    assert large.failed
    assert made.of(FellBack) == []


def test_a_small_engine_that_is_set_up_wrongly_fails_no_request() -> None:
    class Wrong(ScriptedEngine):
        async def render(self, conversation: Any) -> Any:
            raise UsageError("http://host has no chat template")

    gate = Open()
    made = run(RELAY, PLAIN, small=Wrong(PLAIN, vocabulary="another"), gates=(gate,))
    assert made.generation.text == PLAIN
    assert "no chat template" in made.generation.notes[0]
    assert "failed" not in gate.told
    with pytest.raises(UsageError):
        run(RELAY, PLAIN, large=Wrong(PLAIN))
