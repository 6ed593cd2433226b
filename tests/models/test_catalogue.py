from __future__ import annotations

import re

import pytest

from relaygen.models import CATALOGUE, EMBEDDED_LARGE, EMBEDDED_SMALL, EmbeddedModel, Mirror
from relaygen.models._catalogue import find


def test_the_pair_is_one_large_and_one_small_model() -> None:
    assert CATALOGUE == (EMBEDDED_LARGE, EMBEDDED_SMALL)
    assert [model.role for model in CATALOGUE] == ["large", "small"]
    assert EMBEDDED_LARGE.size > EMBEDDED_SMALL.size


@pytest.mark.parametrize("model", CATALOGUE, ids=lambda model: model.name)
def test_an_entry_is_complete(model: EmbeddedModel) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert re.fullmatch(r"Qwen/[\w.-]+-GGUF", model.repo)
    assert model.licence == "Apache-2.0"
    assert model.mirror is not None
    # Deflated weights are a little smaller than the file, and never half of it.
    assert model.size * 0.9 < model.mirror.size < model.size


def test_no_two_entries_share_what_must_differ() -> None:
    for field in ("name", "file", "sha256", "repo", "mirror"):
        assert len({getattr(model, field) for model in CATALOGUE}) == len(CATALOGUE), field


def test_find_ignores_case_and_knows_no_other_name() -> None:
    assert find("Qwen2.5-Coder-1.5B") is EMBEDDED_LARGE
    assert find("qwen2.5-coder-0.5b") is EMBEDDED_SMALL
    assert find("qwen2.5-coder") is None


def test_a_mirror_names_its_wheels() -> None:
    mirror = Mirror("some-part{part}", parts=12, version="0.3", size=1)
    assert mirror.requirement(3) == "some-part3==0.3"
    assert mirror.describe() == "some-part1 .. some-part12 ==0.3"
    assert Mirror("one{part}", parts=1, version="2", size=1).describe() == "one1 ==2"
