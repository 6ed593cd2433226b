from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen._errors import UsageError
from relaygen._files import lines
from relaygen.calibrate import Scores, Trace
from relaygen.calibrate._records import append, read

from .traces import trace


def scores(id: str = "a", size: int = 2) -> Scores:
    return Scores(id, "small", (0.25, None, 0.125)[:size], (7, None, 8)[:size], 3)


@given(
    st.lists(st.tuples(st.integers(0, 2**31), st.binary(max_size=4)), max_size=8),
    st.text(),
    st.none() | st.integers(0, 2**31),
)
def test_a_trace_survives_json(
    tokens: list[tuple[int, bytes]], text: str, seed: int | None
) -> None:
    ids, pieces = tuple(id for id, _ in tokens), tuple(data for _, data in tokens)
    made = Trace(text, text, (1, 2), ids, pieces, "length", seed, text, 1)
    line = json.dumps(made.to_json(), ensure_ascii=True)
    assert Trace.from_json(json.loads(line)) == made


@given(st.lists(st.tuples(st.none() | st.floats(0, 1), st.none() | st.integers(0, 9)), max_size=8))
def test_scores_survive_json_to_the_bit(values: list[tuple[float | None, int | None]]) -> None:
    made = Scores("a", "s", tuple(v[0] for v in values), tuple(v[1] for v in values), 5)
    assert Scores.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_pieces_are_readable_where_they_are_text(tmp_path: Path) -> None:
    made = Trace("a", "?", (), (1, 2), (b" so", b"\xf0\x9f"), "stop", None, "m", 0)
    assert made.to_json()["pieces"] == [" so", {"b64": "8J8="}]
    assert made.text == " so\ufffd"


def test_records_are_appended_and_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    assert read(path, Trace) == []
    both = [trace("So é."), trace("b", id="b")]
    for each in both:
        append(path, each)
    assert read(path, Trace) == both
    append(tmp_path / "s.jsonl", scores())
    assert read(tmp_path / "s.jsonl", Scores) == [scores()]


def test_a_line_cut_off_anywhere_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    first, second = trace("So é."), trace("Thus é", id="b")
    append(path, first)
    size = path.stat().st_size
    append(path, second)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = read(path, Trace)
        assert kept == ([first] if cut >= size else [])
        for each in (first, second)[len(kept) :]:
            append(path, each)
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id": 3}, "'id'"),
        ({"ids": [1]}, "1 ids and 2 pieces"),
        ({"ids": [1, True]}, "'ids'"),
        ({"pieces": ["a", {"b64": "?"}]}, "a piece"),
        ({"fold": 2}, "fold"),
        ({"finish": "done"}, "finish"),
        ({"model": None}, "'model'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = tmp_path / "t.jsonl"
    good = trace("So so").to_json()
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps({**good, **change})}\n")
    with pytest.raises(UsageError, match=r"line 3") as caught:
        read(path, Trace)
    assert says in str(caught.value)


def test_a_missing_key_and_wrong_numbers_are_named() -> None:
    line = scores().to_json()
    for wrong in ({"margins": [2.0, None]}, {"margins": [0.5]}, {"margins": [float("nan"), 0.1]}):
        with pytest.raises(UsageError):
            Scores.from_json({**line, **wrong})
    del line["scorer"]
    with pytest.raises(UsageError, match="'scorer' is missing"):
        Scores.from_json(line)


def test_files_of_others(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    with pytest.raises(UsageError, match="there is no file"):
        lines(path, foreign=True)
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"b": 2}')  # a byte order mark, no last end
    assert lines(path, foreign=True) == [(1, {"a": 1}), (2, {"b": 2})]
    for wrong in ("{", "[1]", "1"):
        path.write_text(f'{{"a": 1}}\n{wrong}\n')
        with pytest.raises(UsageError, match="line 2"):
            lines(path, foreign=True)
    with pytest.raises(UsageError, match="cannot write"):
        append(tmp_path, scores())
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path, Scores)
