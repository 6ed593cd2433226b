"""From what a user names to an engine, and to what drafts for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaygen import ModelNotFoundError, Relay, Speculation, UsageError
from relaygen._pair import EngineSpec, SpeculationSpec, fixed_at_start, make_engine, speculation_of
from relaygen.engines.embedded import EmbeddedEngine
from relaygen.engines.scripted import ScriptedEngine

from .engines.gguf_files import tiny

URL = "http://127.0.0.1:9"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return tiny(tmp_path / "small.gguf")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    return tiny(tmp_path / "large.gguf")


def told(engine: object) -> tuple[str, str]:
    assert isinstance(engine, EmbeddedEngine)
    config = engine._config
    return config.spec, config.draft


def test_the_small_model_drafts_for_the_large_one(large: Path, small: Path) -> None:
    engines = Relay(large, small, ctx=256, spec="draft", small_spec="ngram").engines
    assert told(engines["large"]) == ("draft", str(small))
    assert told(engines["small"]) == ("ngram", "")
    plain = Relay(large, str(small), ctx=256, spec="none").engines
    assert told(plain["large"]) == told(plain["small"]) == ("", "")
    made = Relay(
        large, EmbeddedEngine(small, ctx=256), ctx=256, spec=Speculation("draft", tokens=5)
    )
    assert told(made.engines["large"]) == ("draft", str(small))


def test_another_file_may_draft_for_either(large: Path, small: Path, tmp_path: Path) -> None:
    third = tiny(tmp_path / "third.gguf")
    spec = Speculation("draft", model=third)
    engines = Relay(large, small, ctx=256, spec=spec, small_spec=spec).engines
    assert told(engines["large"]) == told(engines["small"]) == ("draft", str(third))
    # The small model may be anywhere then.
    assert told(Relay(large, URL, ctx=256, spec=spec).engines["large"])[0] == "draft"


@pytest.mark.parametrize("elsewhere", [URL, ScriptedEngine("a")])
def test_a_small_model_elsewhere_cannot_draft(large: Path, elsewhere: EngineSpec) -> None:
    with pytest.raises(UsageError, match="its file is not at hand") as caught:
        Relay(large, elsewhere, ctx=256, spec="draft")
    assert "ngram" in caught.value.hint
    assert told(Relay(large, elsewhere, ctx=256, spec="ngram").engines["large"]) == ("ngram", "")


def test_nobody_smaller_drafts_for_the_small_one(large: Path, small: Path) -> None:
    with pytest.raises(UsageError, match="no smaller model"):
        Relay(large, small, ctx=256, small_spec="draft")


@pytest.mark.parametrize("role", ["large", "small"])
def test_a_server_is_fixed_when_it_starts(role: str, large: Path) -> None:
    models: dict[str, EngineSpec] = {"large": large, "small": large, role: URL}
    spec = "spec" if role == "large" else "small_spec"
    with pytest.raises(UsageError, match=f"the {role} engine is a server") as caught:
        Relay(**models, ctx=256, **{spec: "ngram"})  # type: ignore[arg-type]
    assert "relaygen engines" in caught.value.hint


def test_an_engine_that_is_made_is_fixed_too(large: Path) -> None:
    with pytest.raises(UsageError, match="made already"):
        Relay(ScriptedEngine("a"), large, ctx=256, spec="ngram")


def test_no_such_kind(large: Path) -> None:
    spec: SpeculationSpec = "mtp"  # type: ignore[assignment]
    with pytest.raises(UsageError, match="'mtp'"):
        Relay(large, large, ctx=256, spec=spec)


def test_the_default_small_model_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaygen.models.resolve", lambda spec: tmp_path / spec)
    made = speculation_of("draft", "large", None)
    assert made is not None
    assert made.model == tmp_path / "qwen2.5-coder-0.5b"


def test_a_drafting_file_that_is_not_there(large: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        make_engine(
            large, "large", ctx=256, speculation=Speculation("draft", model=tmp_path / "no.gguf")
        )
    assert "large" in str(fixed_at_start("large"))
