"""Files of questions: three kinds, one reading."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaygen._errors import UsageError
from relaygen._questions import PROMPT, rows

VALUES = [{"id": "a", "question": 'Über 1, 2?\nAnd "3"?'}, {"id": "b", "question": "x\u2028y"}]


def written(path: Path, values: list[dict[str, str]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(values[0]))
            table.writeheader()
            table.writerows(values)
    elif path.suffix == ".json":
        path.write_text(json.dumps(values), "utf-8")
    else:
        path.write_text("".join(f"{json.dumps(value)}\n" for value in values), "utf-8")
    return path


@pytest.mark.parametrize("name", ["q.jsonl", "q.txt", "q.json", "q.csv", "Q.CSV"])
def test_three_kinds_of_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    found = rows(written(path, VALUES) if name != "Q.CSV" else renamed(path))
    assert [dict(row.value) for row in found] == VALUES


def renamed(path: Path) -> Path:
    return written(path.with_suffix(".csv"), VALUES).rename(path)


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), min_size=1),
        min_size=1,
    )
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_table_may_hold_any_text(tmp_path: Path, texts: list[str]) -> None:
    values = [{"question": text, "more": "1"} for text in texts]
    found = rows(written(tmp_path / "q.csv", values))
    assert [row.value["question"] for row in found] == texts


@pytest.mark.parametrize("name", ["q.jsonl", "q.json"])
def test_half_a_character_is_no_text(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, [*VALUES, {"id": "c", "question": "\ud83d"}])
    with pytest.raises(UsageError, match=r"line 3: a text is not valid Unicode"):
        rows(path)
    assert len(rows(written(path, [*VALUES, {"id": "c", "question": "\U0001f600"}]))) == 3


def test_lines_under_the_name_of_a_list(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    path.write_text('{"question": "a"}\n{"question": "b"}\n')
    assert [row.number for row in rows(path)] == [1, 2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.jsonl", '{"question": "a"}\n{oops\n', "q.jsonl, line 2: not JSON"),
        ("q.jsonl", '\n["a"]\n', "line 2: not a JSON object"),
        ("q.json", '["a"]', "item 1: not a JSON object"),
        ("q.json", "{oops", "line 1: not JSON"),
        ("q.json", '"text"', "no JSON list"),
        ("q.csv", "question,answer\n1,2\n3\n", "line 3: not as many fields"),
        ("q.csv", "question,answer\n1,2,3\n", "line 2: not as many fields"),
        ("q.csv", 'question\n"a"b\n', "line 2: not CSV"),
        ("q.csv", "question\n", "holds no question"),
        ("q.jsonl", "\n", "holds no question"),
        ("q.json", "[]", "holds no question"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        rows(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for suffix in (".jsonl", ".json", ".csv"):
        with pytest.raises(UsageError, match="there is no file"):
            rows(tmp_path / f"none{suffix}")
    (tmp_path / "b.csv").write_bytes(b"question\n\xff\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        rows(tmp_path / "b.csv")
    (tmp_path / "d.json").mkdir()
    with pytest.raises(UsageError, match="cannot read"):
        rows(tmp_path / "d.json")


def test_ids_and_texts_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('\n{"question": "a"}\n{"id": 7, "question": " "}\n{"id": true}\n{"id": ""}\n')
    first, second, third, fourth = rows(path)
    assert (first.id(()), second.id(()), fourth.id(())) == ("2", "7", "5")
    assert first.text("question") == "a"
    with pytest.raises(UsageError, match="line 3: the id '7' is there twice") as caught:
        second.id({"7"})
    assert "id" in caught.value.hint
    with pytest.raises(UsageError, match="line 4: the 'id' is neither"):
        third.id(())
    with pytest.raises(UsageError, match="line 3: there is no 'question'") as caught:
        second.text("question")
    assert "'id', 'question'" in caught.value.hint


def test_the_prompt_asks_for_a_real_box() -> None:
    assert "\\boxed{}" in PROMPT
    assert "\x08" not in PROMPT
