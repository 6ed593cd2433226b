"""The policy that suppresses words, without the loop and in it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relaygen import NoWaitPolicy, Relay, Sampling, UsageError
from relaygen._types import SegmentRequest
from relaygen.engines.scripted import ScriptedEngine, ScriptedTokenizer
from relaygen.policies import LargeOnly
from relaygen.policies.base import suppressed
from tests.support import run

from .support import play, words

SCRIPT = "We add. Wait, but 2 and 2 make 4."


def ids(texts: Sequence[str]) -> set[int]:
    encoded = [ScriptedTokenizer().encode(text) for text in texts]
    return {each[0] for each in encoded if len(each) == 1}


class Obeying(ScriptedEngine):
    """Writes another word where the one of the script is suppressed."""

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        self.asked = (*getattr(self, "asked", ()), text)
        return await super().tokenize(text, special=special)

    def _next(self, written: tuple[int, ...]) -> int | None:
        following = super()._next(written)
        request: SegmentRequest = self.requests[-1]
        if following is not None and request.sampling.logit_bias.get(following) == -100:
            return self._tokenizer.encode(" Well")[0]
        return following


def follow(text: str) -> str:
    """The script by the number of words, whichever they are."""
    return "".join(words(SCRIPT)[len(words(text)) :])


def test_the_forms_of_a_word() -> None:
    assert NoWaitPolicy(("wait",)).suppressed == {
        *("wait", "Wait", "WAIT", " wait", " Wait", " WAIT", ".wait", ".Wait", ".WAIT")
    }
    assert NoWaitPolicy((" Wait ",)).suppressed == NoWaitPolicy(("wait",)).suppressed
    published = NoWaitPolicy()
    assert len(published.words) == 17
    assert {" Hmm", " Alternatively", "But", " double-check"} <= published.suppressed


def test_the_large_model_writes_everything() -> None:
    (segment,) = play(NoWaitPolicy(), words("Wait, no. So."))
    assert (segment.role, segment.text) == ("large", "Wait, no. So.")
    assert NoWaitPolicy.roles == LargeOnly.roles


def test_other_policies_suppress_nothing() -> None:
    assert suppressed(LargeOnly()) == ()
    assert suppressed(NoWaitPolicy(("oh",)))[0] == " OH"


@pytest.mark.parametrize("wrong", [(), ("wait", " ")])
def test_words_that_make_no_sense(wrong: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        NoWaitPolicy(wrong)


def test_the_words_are_never_written() -> None:
    made = run(NoWaitPolicy(), SCRIPT, large=Obeying(free=follow))
    assert made.generation.text == "We add. Well, Well 2 and 2 make 4."
    assert made.generation.usage.utilization == 1
    assert run(LargeOnly(), SCRIPT, large=Obeying(free=follow)).generation.text == SCRIPT


def test_only_what_is_one_token_is_suppressed() -> None:
    made = run(NoWaitPolicy(("wait", "double-check")), SCRIPT)
    (request,) = made.large.requests
    assert set(request.sampling.logit_bias) == ids(tuple(NoWaitPolicy(("wait",)).suppressed))
    assert set(request.sampling.logit_bias.values()) == {-100}


def test_a_bias_of_the_users_own_goes_before() -> None:
    (wait,) = ids([" Wait"])
    sampling = Sampling(temperature=0.3, logit_bias={wait: 1.0, 7: -2.0})
    (request,) = run(NoWaitPolicy(), SCRIPT, sampling=sampling).large.requests
    assert request.sampling.logit_bias[wait] == 1
    assert request.sampling.logit_bias[7] == -2
    assert request.sampling.temperature == 0.3
    (request,) = run(LargeOnly(), SCRIPT, sampling=sampling).large.requests
    assert request.sampling == sampling


def test_by_name_the_words_are_looked_up_once() -> None:
    large = Obeying(free=follow)
    with Relay(large, ScriptedEngine(SCRIPT), policy="no-wait") as pair:
        for _ in range(3):
            assert pair.generate("?").text.startswith("We add. Well, Well")
    assert large.asked.count(" Wait") == 1


def test_an_engine_that_hides_ids_cannot_do_it() -> None:
    hiding = ScriptedEngine(SCRIPT, text_only=True)
    with pytest.raises(UsageError, match="needs an engine that takes token ids"):
        run(NoWaitPolicy(), SCRIPT, large=hiding)
