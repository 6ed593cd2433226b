"""Appended lines, files replaced at once, pinned settings, locks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaygen import UsageError
from relaygen._errors import MissingExtraError, ProfileError
from relaygen._files import append, changed, lines, lock, made, pinned, read, write

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


def test_a_text_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes("\ufeffname = “é”\n".encode())  # as some editors begin a file
    assert read(path) == "name = “é”\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "there is no file"),
        ("folder", "folder: Is a directory"),
        ("latin", "latin: it is not UTF-8 (byte 1)"),
    ],
)
def test_a_text_that_cannot_be_read(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin").write_bytes(b"a\xe9b")
    for kind in (UsageError, ProfileError):
        with pytest.raises(kind) as caught:
            read(tmp_path / name, error=kind)
        assert type(caught.value) is kind
        assert said in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)


@settings(max_examples=40, deadline=None)  # it waits for a disk
@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=4), st.booleans())
def test_what_is_appended_is_read(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, Any]], durable: bool
) -> None:
    path = tmp_path_factory.mktemp("files") / "a.jsonl"
    assert lines(path) == []
    for value in values:
        append(path, value, durable=durable)
    assert lines(path) == list(enumerate(values, start=1))


def test_a_line_torn_anywhere_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, {"a": "é"})
    first = path.stat().st_size
    append(path, {"b": "ü"})
    whole = path.read_bytes()
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        assert lines(path) == [(1, {"a": "é"})]
        append(path, {"b": "ü"})
        assert path.read_bytes() == whole


def test_what_is_no_unicode_is_written_all_the_same(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", {"a": "x\ud800y"})
    assert lines(tmp_path / "a.jsonl") == [(1, {"a": "x?y"})]


def test_durable_lines_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    append(tmp_path / "a.jsonl", {})
    assert synced == []
    append(tmp_path / "a.jsonl", {}, durable=True)
    assert len(synced) == 1


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write(path, "old\n")

    def broken(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(UsageError, match="No space left"):
        write(path, "new\n")
    assert path.read_bytes() == b"old\n"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_settings_are_pinned(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    assert pinned(path, command="relaygen x", option="--out") is None
    write(path, '{"a": 1}')
    before = pinned(path, command="relaygen x", option="--out")
    assert before == {"a": 1}
    assert changed(before, {"a": 1, "n": 3}, ("n",)) == ()
    assert changed(before, {"a": 2, "n": 3}, ("n",)) == ("a",)
    assert changed(before, {"b": 1}, ()) == ("b",)
    for wrong in ("[1]", "{"):
        write(path, wrong)
        with pytest.raises(UsageError, match="is not what relaygen x writes") as caught:
            pinned(path, command="relaygen x", option="--out")
        assert "--out" in caught.value.hint
    with pytest.raises(UsageError, match="cannot use the folder"):
        pinned(tmp_path, command="relaygen x", option="--out")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    assert made(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot use the folder"):
        made(tmp_path / "file" / "b")


def test_a_folder_is_locked_for_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with (
        lock(folder, extra="eval"),
        pytest.raises(UsageError, match="another run works in"),
        lock(folder, extra="eval"),
    ):
        pass
    with lock(folder, extra="eval"):  # and free again
        pass


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom relaygen._files import lock\n"
        "with lock(Path(sys.argv[1]), extra='eval'): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    with lock(tmp_path, extra="eval"):
        pass


def test_without_filelock_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "filelock", None)
    with pytest.raises(MissingExtraError, match="filelock"), lock(tmp_path, extra="eval"):
        pass


def test_foreign_files_need_no_last_end(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"a": 1}))
    assert lines(path) == []
    assert lines(path, foreign=True) == [(1, {"a": 1})]
