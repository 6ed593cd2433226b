"""Policies that anybody may have written: their mistakes are one line that names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relaygen import PolicyError, Relay, UsageError
from relaygen._sessions import check_decision, check_policy
from relaygen._task import Thinking
from relaygen.engines.scripted import ScriptedEngine
from relaygen.policies import HandOff, Insert, LargeOnly, Probe, Stay
from relaygen.policies.base import STAY
from relaygen.profiles import POLICIES, load, make_policy

from .support import PLAIN, THINKING, Run, run


class Mine:
    """A policy and its session; what it is told replaces its parts."""

    name = "mine"
    first = "large"
    roles: Any = frozenset(("large", "small"))
    margins: Any = frozenset()

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)

    def start(self, start: Any) -> Any:
        return self

    def begin(self, *_: Any) -> None:
        pass

    def feed(self, token: Any) -> Any:
        return STAY

    def probed(self, piece: Any) -> Any:
        return STAY

    def answer(self, on_duty: Any) -> Any:
        return on_duty


def ran(script: str = THINKING, /, **parts: Any) -> Run:
    return run(Mine(**parts), script)  # type: ignore[arg-type]


def at_fifth(decision: Any) -> Callable[[Any], Any]:
    return lambda token: decision if token.index == 4 else STAY


WRONG: list[tuple[Any, str]] = [
    (None, "feed must return Stay, HandOff, Probe or Insert, not None"),
    (Stay, "feed must return Stay, HandOff, Probe or Insert, not <class"),
    ("delegate", "feed must return Stay, HandOff, Probe or Insert, not 'delegate'"),
    (Stay(-1), "Stay holds a number of tokens, 0 or more, not -1"),
    (Stay(0.5), "Stay holds a number of tokens, 0 or more, not 0.5"),  # type: ignore[arg-type]
    (HandOff(4, "delgate", "x"), "the kind of a HandOff is 'delegate' or 'lead', not 'delgate'"),  # type: ignore[arg-type]
    (HandOff("4", "lead", "x"), "the k of a HandOff is a number, not '4'"),  # type: ignore[arg-type]
    (HandOff(4, "lead", None), "why and cue of a HandOff are texts, not (None, '')"),  # type: ignore[arg-type]
    (HandOff(4, "lead", "x", 1), "why and cue of a HandOff are texts, not ('x', 1)"),  # type: ignore[arg-type]
    (Probe("smal"), "the role of a Probe is one of its roles, not 'smal'"),  # type: ignore[arg-type]
    (Probe("small", 0), "the candidates of a Probe are 1 or more, not 0"),
    (Insert("end"), "the marker of an Insert is 'end_of_thinking', not 'end'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("decision", "said"), WRONG, ids=lambda each: str(each)[:30])
def test_what_is_no_decision_is_refused(decision: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        ran(feed=at_fifth(decision))
    assert str(caught.value).startswith(f"policy 'mine': {said}")
    assert "\n" not in str(caught.value)
    assert "docs/policies.md" in caught.value.hint


def test_what_is_refused_is_refused_before_it_acts() -> None:
    engine = ScriptedEngine(PLAIN)
    with pytest.raises(UsageError):
        run(Mine(feed=at_fifth(HandOff(4, "delgate", "x"))), PLAIN, small=engine)  # type: ignore
    assert engine.requests == []
    assert len(engine.released) == 1


@pytest.mark.parametrize("decision", [Probe("small"), None, 3])
def test_a_probe_is_answered_with_no_other_probe(decision: Any) -> None:
    with pytest.raises(UsageError, match="probed must return Stay or HandOff, not"):
        ran(feed=at_fifth(Probe("small")), probed=lambda piece: decision)


def test_a_probe_of_an_engine_that_is_out_does_not_go_round_in_circles() -> None:
    small = ScriptedEngine(context=4)
    with pytest.raises(UsageError, match="probed must return"):
        run(
            Mine(feed=at_fifth(Probe("small")), probed=lambda piece: Probe("small")),  # type: ignore
            PLAIN,
            small=small,
        )


def test_who_has_one_role_has_nothing_to_decide() -> None:
    fed: list[Any] = []
    made = ran(feed=fed.append, roles=frozenset(("large",)))
    assert made.generation.text == THINKING
    assert fed == []


@pytest.mark.parametrize("answer", [None, "relay", "big", 1])
def test_an_answer_is_a_role(answer: Any) -> None:
    with pytest.raises(UsageError, match="policy 'mine': answer must return 'large' or 'small'"):
        ran(answer=lambda on_duty: answer)


@pytest.mark.parametrize("hints", [None, "Thus", (1,)])
def test_hints_are_texts(hints: Any) -> None:
    policy: Any = Mine(hints=lambda: hints)
    with Relay(ScriptedEngine(PLAIN), ScriptedEngine(PLAIN), policy=policy) as pair:
        with pytest.raises(UsageError, match="policy 'mine': its hints must be a tuple of texts"):
            pair.generate("?")
        policy.hints = lambda: ["Thus"]
        assert pair.generate("?").answer == PLAIN


@pytest.mark.parametrize("method", ["start", "begin", "feed", "answer"])
def test_what_a_policy_raises_is_one_line_that_names_the_place(method: str) -> None:
    def broken(*_: Any) -> Any:
        return 1 // 0

    with pytest.raises(UsageError) as caught:
        ran(**{method: broken})
    assert str(caught.value).startswith(
        f"policy 'mine': its {method} raised ZeroDivisionError: integer division or modulo by "
        "zero (test_sessions.py, line "
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "RELAYGEN_DEBUG" in caught.value.hint


def test_what_a_policy_raises_at_a_probe() -> None:
    with pytest.raises(UsageError, match="its probed raised TypeError"):
        ran(feed=at_fifth(Probe("small")), probed=lambda: STAY)


def test_a_method_with_other_parameters() -> None:
    with pytest.raises(UsageError, match=r"its begin raised TypeError: .*takes 1 positional"):
        ran(begin=lambda role: None)


def test_an_error_of_ours_stays_what_it_is() -> None:
    def refuse(token: Any) -> Any:
        raise UsageError("no", hint="yes")

    with pytest.raises(UsageError, match=r"^no$") as caught:
        ran(feed=refuse)
    assert caught.value.hint == "yes"


class Silent(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")

    __repr__ = __str__


def test_what_a_policy_raises_need_not_have_words() -> None:
    def broken(*_: Any) -> Any:
        raise Silent

    with pytest.raises(PolicyError, match=r"its feed raised Silent \(test_sessions\.py, line"):
        ran(feed=broken)


def test_what_a_policy_answers_need_not_be_shown() -> None:
    with pytest.raises(PolicyError, match=r"feed must return .*, not a Silent, which cannot be"):
        ran(feed=lambda token: Silent())
    with pytest.raises(PolicyError, match=r"answer must return .*, not a Silent, which cannot be"):
        ran(answer=lambda on_duty: Silent())
    with pytest.raises(PolicyError, match="must be a text, not a Silent, which cannot be shown"):
        ran(name=Silent())


@pytest.mark.parametrize("part", ["name", "first", "roles", "margins", "start"])
def test_a_property_that_raises(part: str) -> None:
    class Raising(Mine):
        pass

    def broken(self: Any) -> Any:
        raise OSError(part)

    setattr(Raising, part, property(broken))
    method = "attributes" if part != "start" else "start"
    named = "of type Raising" if part == "name" else "'mine'"
    said = rf"policy {named}: its {method} raised OSError: {part} \(test_sessions\.py, line"
    policy: Any = Raising()
    with pytest.raises(PolicyError, match=said):  # noqa: SIM117
        with Relay(ScriptedEngine(), ScriptedEngine(), policy=policy) as pair:
            pair.generate("?")


def test_hand_offs_without_end_are_the_policys_mistake() -> None:
    with pytest.raises(PolicyError, match="hands over and over without a token kept"):
        ran(PLAIN, feed=lambda token: HandOff(-1, "lead", "no"))


@pytest.mark.parametrize("session", [None, object(), 3])
def test_a_session_must_be_whole(session: Any) -> None:
    with pytest.raises(UsageError) as caught:
        ran(start=lambda start: session)
    assert str(caught.value) == (
        f"policy 'mine': its start returned a {type(session).__name__}, "
        "which lacks answer, begin, feed, probed"
    )
    assert "relaygen.policies.Session" in caught.value.hint


NO_POLICY: list[tuple[Any, str]] = [
    (object(), "of type object, which lacks first, margins, name, roles, start"),
    (LargeOnly, "the policy is the class LargeOnly"),
    (Mine(name=""), "the name of a policy must be a text"),
    (Mine(roles=["large", "small"]), "its roles must be a set of 'large' and 'small'"),
    (Mine(roles=frozenset()), "its first must be one of its roles, not 'large'"),
    (Mine(roles={"large", "smal"}), "its roles must be a set of"),
    (Mine(first="big"), "its first must be one of its roles, not 'big'"),
    (Mine(margins=("small",)), "its margins must be a set of"),
    (Mine(margins={"small"}, roles={"large"}), "its margins must be among its roles"),
    (Mine(candidates=lambda role, kind: None), "its candidates must be a number of 0 or more"),
    (Mine(candidates=lambda role, kind: -1), "its candidates must be a number of 0 or more"),
    (Mine(candidates=lambda role: 1), "its attributes raised TypeError"),
    (Mine(suppressed="Wait"), "its suppressed must be a set of texts"),
    (Mine(suppressed={1}), "its suppressed must be a set of texts"),
]


@pytest.mark.parametrize(("policy", "said"), NO_POLICY, ids=lambda each: str(each)[:30])
def test_what_is_no_policy_is_refused_before_anything_starts(policy: Any, said: str) -> None:
    large = ScriptedEngine(PLAIN)
    with pytest.raises(UsageError) as caught:
        Relay(large, ScriptedEngine(PLAIN), policy=policy)
    assert said in str(caught.value)
    with Relay(large, ScriptedEngine(PLAIN)) as pair:
        with pytest.raises(UsageError) as again:
            pair.generate("?", policy=policy)
        assert str(again.value) == str(caught.value)
    assert large.requests == []


def test_every_policy_of_the_table_is_one() -> None:
    profile = load("embedded")
    options = {"margin": ":0.9:0.3", "random": ":0.3", "entropy": ":step:1.0"}
    for name in POLICIES:
        check_policy(make_policy(name + options.get(name, ""), profile))


@pytest.mark.parametrize(
    "decision",
    [
        STAY,
        Stay(3),
        HandOff(-1, "lead", "x"),
        HandOff(4, "delegate", "x", "Thus"),
        Probe("large", 5),
    ],
)
def test_what_is_right_passes(decision: Any) -> None:
    check_decision(Mine(), "feed", decision)  # type: ignore[arg-type]
    check_decision(Mine(), "feed", Insert("end_of_thinking"))  # type: ignore[arg-type]


# Where a policy may say something.


@pytest.mark.parametrize("script", [PLAIN, THINKING, "é" + PLAIN])
@pytest.mark.parametrize("kind", ["delegate", "lead"])
@pytest.mark.parametrize("stage", ["reasoning", "answer"])
def test_a_hand_off_at_every_token_writes_the_script(script: str, kind: str, stage: str) -> None:
    def feed(token: Any) -> Any:
        return HandOff(token.index, kind, "on") if token.stage == stage else STAY  # type: ignore

    made = ran(script, feed=feed)
    assert made.generation.text == script
    assert made.generation.finish == "stop"


def test_a_hand_off_at_the_first_token_that_keeps_nothing() -> None:
    given = iter((True,))

    def feed(token: Any) -> Any:
        return HandOff(-1, "lead", "no") if next(given, False) else STAY

    made = ran(PLAIN, feed=feed)
    assert made.roles() == [("small", PLAIN)]


def test_the_thinking_closes_at_an_insertion_only_where_there_is_some() -> None:
    made = run(
        Mine(feed=lambda token: Insert("end_of_thinking")),  # type: ignore[arg-type]
        PLAIN,
        thinking=Thinking(),
    )
    assert made.generation.text == PLAIN
