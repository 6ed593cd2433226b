"""Items: presets, prompts, choices, and what is wrong in a file."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen._errors import MissingExtraError, UsageError
from relaygen.evaluate._grade import grade
from relaygen.evaluate._presets import PRESETS
from relaygen.evaluate._questions import Item, Kind, load_items

BOX = "put your final answer within \\boxed{}."
GPQA = {
    "Record ID": "rec1",
    "Question": "Which one?\n",
    "Correct Answer": "right\n",
    "Incorrect Answer 1": "wrong 1",
    "Incorrect Answer 2": "wrong 2",
    "Incorrect Answer 3": "wrong 3",
    "Subdomain": "Physics (general)",
}
ROWS: dict[str, dict[str, Any]] = {  # one line of each, with the columns of its card
    "gsm8k": {
        "question": "How many?",
        "answer": "He has <<2*9=18>>18 and\n<<18*100=1800>>1800.\n#### 1,800",
    },
    "math-500": {
        "problem": "What is $x$?",
        "solution": "So $\\boxed{0.5}$.",
        "answer": "\\frac{1}{2}",
        "subject": "Algebra",
        "level": 2,
        "unique_id": "test/algebra/1.json",
    },
    "aime-2024": {
        "id": 60,
        "problem": "Find $n$.",
        "solution": "Clearly \\boxed{204}.",
        "answer": "204",
        "url": "https://example.org",
        "year": "2024",
    },
    "aime-2025": {"problem": "Find $m$.", "answer": "70", "id": "0"},
    "amc-2023": {"id": 0, "question": "How far?", "answer": 27.0, "url": "https://example.org"},
    "gpqa-diamond": GPQA,
}
WANTED = {
    "gsm8k": ("1", "1,800", "math"),
    "math-500": ("test/algebra/1.json", "\\frac{1}{2}", "math"),
    "aime-2024": ("60", "204", "math"),
    "aime-2025": ("0", "70", "math"),
    "amc-2023": ("0", "27", "math"),
}


def written(folder: Path, *values: dict[str, Any]) -> str:
    path = folder / "data.jsonl"
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values), "utf-8")
    return str(path)


def test_every_preset_has_a_row_here() -> None:
    assert set(ROWS) == set(PRESETS) == {*WANTED, "gpqa-diamond"}


@pytest.mark.parametrize("name", sorted(WANTED))
@pytest.mark.parametrize("told", [True, False])
def test_presets_of_mathematics(tmp_path: Path, name: str, told: bool) -> None:
    source = written(tmp_path, ROWS[name])
    (item,) = load_items(source, preset=name if told else None)
    assert (item.id, item.gold, item.kind) == WANTED[name]
    question = ROWS[name].get("question", ROWS[name].get("problem"))
    assert item.question == question
    assert item.prompt.startswith(f"{question}\n\n")
    assert item.prompt.endswith(BOX)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_no_prompt_holds_a_control_character(tmp_path: Path, name: str) -> None:
    (item,) = load_items(written(tmp_path, ROWS[name]))
    assert "\\boxed{}" in item.prompt
    assert not [sign for sign in item.prompt if ord(sign) < 32 and sign != "\n"]
    assert "None" not in item.prompt


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"problem": "?", "solution": "so \\boxed{204}"}, "204"),  # math-ai/aime24
        ({"ID": "2024-I-1", "Problem": "?", "Solution": "…", "Answer": 204}, "204"),
        ({"problem_idx": 1, "problem": "?", "answer": 70}, "70"),
        ({"question": "?", "answer": "\\boxed{5}"}, "5"),
        ({"question": "?", "answer": 0}, "0"),
        ({"question": "?", "answer": 2.5}, "2.5"),
        ({"question": "?", "answer": ""}, None),
        ({"question": "?", "answer": " \n"}, None),
        ({"question": "?", "answer": " ", "solution": "\\boxed{3}"}, "3"),
        ({"question": "?"}, None),
    ],
)
def test_columns_of_copies(tmp_path: Path, row: dict[str, Any], gold: str | None) -> None:
    (item,) = load_items(written(tmp_path, row))
    assert item.gold == gold
    assert item.kind == ("none" if gold is None else "math")
    assert (item.prompt == item.question) is (gold is None)


def gpqa(count: int) -> list[dict[str, Any]]:
    return [{**GPQA, "Record ID": f"rec{number}"} for number in range(count)]


def test_the_right_choice_is_tracked_and_no_place_is_favoured(tmp_path: Path) -> None:
    items = load_items(written(tmp_path, *gpqa(200)), seed=5)
    for item in items:
        assert item.kind == "choice"
        assert f"\n{item.gold}) right\n" in item.prompt
        for place in range(1, 4):
            assert f") wrong {place}\n" in item.prompt
        assert item.question == "Which one?"
        assert grade(item, f"\\boxed{{{item.gold}}}").correct
    places = Counter(item.gold for item in items)
    assert set(places) == set("ABCD")
    assert min(places.values()) > 25


def test_the_order_depends_on_seed_and_id_alone(tmp_path: Path) -> None:
    source = written(tmp_path, *gpqa(30))
    items = load_items(source, seed=1)
    assert load_items(source, seed=1, n=7) == items[:7]
    assert [item.gold for item in load_items(source, seed=2)] != [item.gold for item in items]
    assert load_items(written(tmp_path, *reversed(gpqa(30))), seed=1) == items[::-1]


def test_choices_of_ones_own(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "?", "choices": ["x", "{question}", "z"], "answer": answer}
        for answer in ("B", 1, "{question}")
    ]
    items = load_items(written(tmp_path, *rows, {"question": "?", "choices": ["x", "y"]}))
    assert [item.gold for item in items] == ["B", "B", "B", None]
    assert items[0].prompt.startswith("?\n\nA) x\nB) {question}\nC) z\n\n")


@pytest.mark.parametrize(
    ("row", "preset", "message"),
    [
        ({"q": "?"}, None, "line 1: no column is the question; there are 'q'"),
        ({"question": "?", "problem": "!"}, None, "may be the question"),
        ({"question": " "}, "gsm8k", "line 1: there is no 'question'"),
        ({"question": "?"}, "gpqa", "there is no preset 'gpqa'"),
        ({"question": "?"}, "gpqa-diamond", "line 1: there is no 'Question'"),
        ({**GPQA, "Incorrect Answer 2": None}, None, "no 'Incorrect Answer 2'"),
        ({"problem": "?", "solution": "cut \\boxed{4"}, None, "no complete"),
        ({"question": "?", "answer": "so\n#### "}, None, "line 1: nothing stands behind ####"),
        ({"question": "?", "answer": True}, None, "neither text nor a number"),
        ({"question": "?", "answer": [1]}, None, "neither text nor a number"),
        ({"question": "?", "choices": "A"}, None, "no list of texts"),
        ({"question": "?", "choices": ["x"]}, None, "holds 1"),
        ({"question": "?", "choices": ["x", "y"], "answer": "C"}, None, "none of the choices"),
        ({"question": "?", "choices": ["x", "y"], "answer": 2}, None, "none of the choices"),
        ({"question": "?", "choices": ["x", "y"], "answer": ["x"]}, None, "none of the choices"),
        ({"question": "?", "pattern": "("}, None, "no regular expression"),
        ({"question": "?", "pattern": 5}, None, "'pattern' is no text"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, row: dict[str, Any], preset: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load_items(written(tmp_path, row), preset=preset)


def test_ids_are_unique(tmp_path: Path) -> None:
    twice = {"id": "x", "question": "?"}
    with pytest.raises(UsageError, match="line 2: the id 'x' is there twice"):
        load_items(written(tmp_path, twice, twice))
    with pytest.raises(UsageError, match="line 2: the id '2' is there twice"):
        load_items(written(tmp_path, {"id": 2, "question": "?"}, {"question": "?"}))


def test_only_the_first(tmp_path: Path) -> None:
    source = written(tmp_path, *({"question": str(number)} for number in range(5)), {"broken": 1})
    assert [item.question for item in load_items(source, n=2)] == ["0", "1"]
    with pytest.raises(UsageError, match="line 6"):
        load_items(source)
    with pytest.raises(UsageError, match="n must be"):
        load_items(source, n=0)
    whole = written(tmp_path, {"question": "0"}, {"question": "1"})
    assert len(load_items(whole, n=2)) == 2
    with pytest.raises(UsageError, match=r"3 questions are asked for, and .* holds only 2"):
        load_items(whole, n=3)


def test_names_of_presets_may_be_written_in_other_ways(tmp_path: Path) -> None:
    source = written(tmp_path, ROWS["math-500"])
    assert load_items(source, preset="MATH500") == load_items(source, preset="Math_500")


def test_patterns(tmp_path: Path) -> None:
    row = {"question": "Say yes.", "pattern": "(?i)^yes", "answer": ""}
    (item,) = load_items(written(tmp_path, row))
    assert (item.kind, item.gold, item.prompt) == ("pattern", None, "Say yes.")
    assert grade(item, "Yes!").correct


@settings(deadline=None)
@given(
    st.text(),
    st.text(),
    st.none() | st.text(),
    st.sampled_from(["math", "choice", "none"]),
    st.text(),
)
def test_items_survive_json(id: str, text: str, gold: str | None, kind: Kind, pattern: str) -> None:
    item = Item(id, text, text, gold, kind, pattern)
    assert Item.from_json(json.loads(json.dumps(item.to_json()))) == item


@pytest.mark.parametrize(
    "change", [{"id": 1}, {"gold": 1}, {"kind": "other"}, {"prompt": None}, {"pattern": None}]
)
def test_other_json_is_no_item(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Item.from_json({**Item("1", "?", "?", None, "none").to_json(), **change})


@pytest.mark.parametrize("source", ["hub:", "hub:a/b/c", "hub:a b", "hub:a/b:c:d", "hub:a/b@"])
def test_names_that_are_no_data_set(source: str) -> None:
    with pytest.raises(UsageError, match="names no data set"):
        load_items(source)


def test_the_hub_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for source in ("hub:gsm8k", "hub:openai/gsm8k", "hub:some/body:else@train"):
        with pytest.raises(MissingExtraError, match="datasets") as caught:
            load_items(source)
        assert "relaygen[hub]" in caught.value.hint
    with pytest.raises(UsageError, match="there is no preset"):
        load_items("hub:unknown")


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("gsm8k", ("openai/gsm8k", "main", "test")),
        ("openai/gsm8k@train", ("openai/gsm8k", "main", "train")),
        ("math-500", ("HuggingFaceH4/MATH-500", None, "test")),
        ("aime-2024", ("HuggingFaceH4/aime_2024", None, "train")),
        ("aime-2025", ("math-ai/aime25", None, "test")),
        ("amc-2023", ("math-ai/amc23", None, "test")),
        ("gpqa-diamond", ("Idavidrein/gpqa", "gpqa_diamond", "train")),
        ("idavidrein/GPQA:gpqa_main", ("idavidrein/GPQA", "gpqa_main", "train")),
        ("some/body:else", ("some/body", "else", "test")),
    ],
)
def test_what_the_hub_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, source: str, asked: tuple[str, str | None, str]
) -> None:
    calls: list[tuple[str, str | None, str]] = []

    def load_dataset(name: str, config: str | None, split: str) -> list[dict[str, Any]]:
        calls.append((name, config, split))
        return [next((ROWS[each] for each in WANTED if PRESETS[each].repository == name), GPQA)]

    library = ModuleType("datasets")
    monkeypatch.setattr(library, "load_dataset", load_dataset, raising=False)
    monkeypatch.setitem(sys.modules, "datasets", library)
    (item,) = load_items(f"hub:{source}")
    assert calls == [asked]
    results = {PRESETS[each].repository for each in WANTED}
    assert item.kind == ("math" if asked[0] in results else "choice")


def test_a_data_set_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reads a folder of this name in the place of the hub's."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    pytest.importorskip("datasets")
    folder = tmp_path / "some" / "body"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text(json.dumps(ROWS["aime-2025"]))
    (folder / "train.jsonl").write_text(
        json.dumps(ROWS["aime-2025"]) + "\n" + json.dumps({**ROWS["aime-2025"], "id": "1"})
    )
    monkeypatch.chdir(tmp_path)
    (item,) = load_items("hub:some/body")
    assert (item.id, item.gold) == ("0", "70")
    assert len(load_items("hub:some/body@train", n=1)) == 1
    assert len(load_items("hub:some/body@train")) == 2
    with pytest.raises(UsageError, match="cannot load hub:some/body@none") as caught:
        load_items("hub:some/body@none")
    assert "@SPLIT" in caught.value.hint
