"""The doctor on mock engines with a planted fault each, and on engines that fail."""

from __future__ import annotations

import html
import shutil
from pathlib import Path
from typing import Any

import pytest

from relaygen import EngineReplyError, EngineUnreachableError, Relay, UsageError
from relaygen._types import EngineInfo
from relaygen.doctor import Examination, Report, status, verdict
from relaygen.engines.embedded import EmbeddedEngine
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.mock import Failure as Planned
from relaygen.mock import MockConfig, serving
from tests.engines.gguf_files import tiny

from .support import LARGE, SMALL, TAGS, Caching, Clock, Timed, examined, found, mocked

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
SOUND = (
    *("reachable", "vocabularies", "templates", "capabilities", "thinking", "margins"),
    *("prefix-cache", "speed", "rollback"),
)


def levels(report: Report, *checks: str) -> set[str]:
    return {each.level for each in report.findings if each.check in checks}


def test_a_pair_without_a_fault() -> None:
    report = mocked()
    assert report.complete
    for check in SOUND:
        assert levels(report, check) == {"ok"}, check
    assert report.infos["large"].version.startswith("0.32.0")
    assert "(vllm 0.32.0" in found(report, "reachable")[0].text
    assert {role: each.cost for role, each in report.rollbacks.items()} == {
        "large": "free",
        "small": "free",
    }
    sample = report.sample
    assert sample is not None
    assert len(sample.answers) == 3
    assert sample.cues["So"] == 3
    assert [each.same for each in sample.answers] == [True] * 3
    assert report.costs is not None
    assert report.handoff_ms is not None
    assert report.devices == 2


FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str, str, str]] = {
    "another vocabulary": (
        {"match": "text"},
        {"match": "text", "split": True},
        "vocabularies",
        "warning",
        "different vocabularies",
        "two models of one family",
    ),
    "no prefix cache": (
        {},
        {"kv_tokens": 0},
        "prefix-cache",
        "warning",
        "prefix cache off",
        "--enable-prefix-caching",
    ),
    "a short context": (
        {},
        {"context": 900},
        "context",
        "warning",
        "its context (900) is shorter than the large model's (40960)",
        "--max-model-len 40960",
    ),
    "a template without thinking": (
        {"template": "plain"},
        {"template": "plain"},
        "thinking",
        "error",
        "no thinking takes place",
        "--chat-template FILE",
    ),
    "scaled log-probabilities": (
        {},
        {"processed_logprobs": True},
        "margins",
        "warning",
        "scaled by temperature",
        "--logprobs-mode raw_logprobs",
    ),
    "hidden counts": (
        {},
        {"show_cached": False},
        "prefix-cache",
        "note",
        "hides its cached tokens",
        "--enable-prompt-tokens-details",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_with_its_remedy(fault: str) -> None:
    large, small, check, level, text, hint = FAULTS[fault]
    report = mocked(large, small, quick=True)
    (told,) = [each for each in found(report, check, level) if text in each.text]
    assert hint in told.hint
    page = html.unescape(PAGE.read_text("utf-8"))
    assert f"{told.text} → {told.hint} |" in page, "docs/doctor.md shows what it says"
    others = [each for each in SOUND if each not in (check, "rollback", "templates")]
    for other in others:  # nothing else is blamed
        assert levels(report, other) == {"ok"}, other
    if level != "note" and not found(report, "gain", "against"):
        assert verdict(report).answer == "use it after changing"
        assert any(hint in each for each in verdict(report).change)
    assert status(report) in ((1,) if level == "error" else (0, 1))


def test_the_small_models_texts_do_not_fit() -> None:
    report = mocked(small={"context": 300})
    assert report.sample is not None
    needed = max(each.prompt_tokens + each.tokens for each in report.sample.answers)
    texts = [each.text for each in found(report, "context", "warning")]
    assert any(f"{needed - 300} more than its context" in text for text in texts)
    assert not found(report, "sample", "error")


def test_a_profile_that_looks_for_no_thinking() -> None:
    report = mocked(profile="embedded", quick=True)
    (told,) = found(report, "thinking")
    assert told.level == "error"
    assert "--profile" in told.hint


def timed(clock: Clock, **options: Any) -> Relay:
    """A pair whose times are the clock's: 10 and 1 ms per token."""
    large, small = Timed(clock, token_ms=10.0), Timed(clock, token_ms=1.0)
    return Relay(large, small, **options)


def test_no_answers_are_sampled_before_the_thinking_is_right(clock: Clock) -> None:
    report = examined(timed(clock, profile=TAGS))  # these engines never think
    assert levels(report, "thinking") == {"error"}
    assert report.sample is None
    assert not found(report, "cues")
    (told,) = found(report, "gain")
    assert told.text.endswith("no answers sampled before the thinking is right")


def test_a_policy_that_needs_margins_makes_scaled_ones_an_error() -> None:
    report = mocked(small={"processed_logprobs": True}, policy="margin:0.9:0.3", quick=True)
    (told,) = found(report, "margins", "error")
    assert told.role == "small"


def test_a_policy_of_margins_alone_has_no_sample(clock: Clock) -> None:
    report = examined(timed(clock, policy="entropy:token:0.5"))
    assert report.sample is None
    assert "decides by margins" in found(report, "gain")[0].text


def test_quick_asks_for_no_answers(clock: Clock) -> None:
    report = examined(timed(clock), quick=True)
    assert report.complete
    assert report.quick
    assert report.sample is None
    assert report.forecast is None
    assert "(--quick)" in found(report, "gain")[0].text


def test_times_become_costs(clock: Clock) -> None:
    report = examined(timed(clock), quick=True)
    assert report.costs is not None
    assert report.costs.large_decode == pytest.approx(10.0)
    assert report.costs.small_decode == pytest.approx(1.0)
    assert report.handoff_ms == pytest.approx(0.0)


def test_a_stream_that_comes_as_a_whole_is_named_and_timed_all_the_same(clock: Clock) -> None:
    whole = Timed(clock, token_ms=10.0, burst=24)
    report = examined(Relay(whole, Timed(clock, token_ms=10.0, burst=3)), quick=True)
    told = found(report, "speed", "warning")
    assert [each.role for each in told] == ["large"]
    assert "all at once" in told[0].text
    assert report.speeds["large"].decode_ms == pytest.approx(10.0)


def test_a_policy_of_one_model_is_refused() -> None:
    with pytest.raises(UsageError, match="uses one model"):
        Examination(Relay(ScriptedEngine(), ScriptedEngine(), policy="large"))


def test_embedded_engines_share_one_device_and_have_their_own_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = Path(__file__).parents[1] / "engines" / "stub_xllamacpp.py"
    shutil.copy(stub, tmp_path / "xllamacpp.py")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    large = EmbeddedEngine(tiny(tmp_path / "large.gguf"), ctx=512, role="large")
    small = EmbeddedEngine(tiny(tmp_path / "small.gguf"), ctx=256, role="small")
    report = examined(Relay(large, small), quick=True)
    assert report.complete
    assert report.devices == 1
    assert {info.kind for info in report.infos.values()} == {"embedded"}
    (told,) = found(report, "context")
    assert told.hint == f"give --ctx {report.infos['large'].context}"


# Engines that fail.


class Absent(ScriptedEngine):
    async def info(self) -> EngineInfo:
        raise EngineUnreachableError("http://gpu:1 cannot be reached")


@pytest.mark.parametrize("large", [True, False])
def test_an_engine_that_is_down_ends_the_examination(large: bool) -> None:
    engines = (Absent(), Caching()) if large else (Caching(), Absent())
    report = examined(Relay(*engines))
    assert (verdict(report).answer, status(report)) == ("cannot tell", 5)
    assert not report.complete
    assert {each.check for each in report.findings} == {"reachable"}


def test_an_engine_that_cannot_write_is_not_there() -> None:
    broken = Caching(failures=[Failure(EngineReplyError("answered 500: CUDA"), None)])
    report = examined(Relay(Caching(), broken), quick=True)
    (told,) = found(report, "reachable", "error")
    assert (told.role, told.text) == ("small", "failed: answered 500: CUDA")
    assert verdict(report).change == ("small: look into the engine's log",)
    assert status(report) == 5


def test_one_check_that_fails_does_not_end_the_others() -> None:
    failures = (Planned("http500", 0, 2),)  # the margins: two generations came before
    report = mocked(small={"failures": failures}, quick=True)
    (told,) = [each for each in report.findings if each.level == "error"]
    assert (told.check, told.role) == ("margins", "small")
    assert told.hint == "look into the engine's log"
    assert report.complete
    assert set(report.rollbacks) == {"large", "small"}


def test_a_sample_that_fails() -> None:
    large = Caching()
    examined(Relay(large, Caching()), until="rollback")  # its last check before the sample
    first = len(large.requests)
    failing = Caching(failures=[Failure(EngineReplyError("answered 500"), first)])
    report = examined(Relay(failing, Caching()))
    assert report.sample is None
    (told,) = found(report, "sample")
    assert (told.level, told.text) == ("error", "failed: answered 500")
    assert report.complete


# Broken off.


def test_what_was_found_until_then_stays() -> None:
    with serving(MockConfig(**LARGE)) as one, serving(MockConfig(**SMALL)) as two:
        report = examined(Relay(one, two, profile=TAGS), until="thinking")
    assert not report.complete
    assert levels(report, "reachable") == {"ok"}
    assert not found(report, "speed")
    assert verdict(report).answer == "cannot tell"


def test_the_engines_may_forget_its_texts() -> None:
    large, small = Caching(), Caching()
    examined(Relay(large, small), until="rollback")
    examined(Relay(large, small), quick=True)
    for engine in (large, small):
        assert {request.session for request in engine.requests} <= set(engine.released)
