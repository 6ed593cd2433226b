from __future__ import annotations

import errno
import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from relaygen._errors import DiskSpaceError, ModelError
from relaygen.models import EMBEDDED_SMALL, Store, home, size_text
from relaygen.models._store import disk_errors, folder_size, publish, require_space, sha256_of


def test_home_is_the_variable_then_the_cache_folder_then_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/tmp/cache")
    monkeypatch.setenv("RELAYGEN_HOME", "~/models here")
    assert home() == tmp_path / "models here"
    monkeypatch.setenv("RELAYGEN_HOME", "")
    assert home() == Path("/var/tmp/cache/relaygen")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert home() == tmp_path / ".cache" / "relaygen"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert home() == tmp_path / ".cache" / "relaygen"


def test_a_relative_home_does_not_depend_on_later_changes_of_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAYGEN_HOME", "here")
    assert Store.default().root == tmp_path / "here" / "models"


def test_only_a_file_of_the_published_size_counts_as_there(store: Store) -> None:
    path = store.path(EMBEDDED_SMALL)
    assert not store.has(EMBEDDED_SMALL)
    path.parent.mkdir(parents=True)
    path.touch()
    assert not store.has(EMBEDDED_SMALL)
    with path.open("wb") as file:
        file.truncate(EMBEDDED_SMALL.size)
    assert store.has(EMBEDDED_SMALL)


def test_space_is_refused_by_the_first_byte_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_500_000_000))
    require_space(tmp_path, 1_500_000_000, "x.gguf")
    with pytest.raises(DiskSpaceError, match=r"x\.gguf: 2\.25 GB needed, 1\.50 GB free"):
        require_space(tmp_path, 2_250_000_000, "x.gguf")
    with pytest.raises(DiskSpaceError):
        require_space(tmp_path, 1_500_000_001, "x.gguf")


@pytest.mark.parametrize(
    ("code", "expected"),
    [(errno.ENOSPC, DiskSpaceError), (errno.EROFS, ModelError), (errno.EIO, OSError)],
)
def test_failed_writes_become_errors_with_a_hint(code: int, expected: type[Exception]) -> None:
    with pytest.raises(expected) as caught, disk_errors(Path("/models")):
        raise OSError(code, "text")
    assert type(caught.value) is expected
    if isinstance(caught.value, ModelError):
        assert caught.value.hint
        assert "/models" in str(caught.value)


def test_publish_replaces_what_was_there(tmp_path: Path) -> None:
    final = tmp_path / "a" / "b" / "model"
    for content in (b"old", b"new"):
        temporary = tmp_path / "temporary"
        temporary.write_bytes(content)
        publish(temporary, final)
        assert final.read_bytes() == content
        assert not temporary.exists()


def test_sha256_of_a_file_longer_than_one_read(tmp_path: Path) -> None:
    content = b"abc" * 1_000_000
    path = tmp_path / "file"
    path.write_bytes(content)
    heard: list[int] = []
    assert sha256_of(path, heard.append) == hashlib.sha256(content).hexdigest()
    assert len(heard) > 1
    assert heard[-1] == len(content)


def test_folder_size(tmp_path: Path) -> None:
    assert folder_size(tmp_path / "none") == 0
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"12345")
    (tmp_path / "b").write_bytes(b"67")
    assert folder_size(tmp_path) == 7


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (12_345, "12 kB"),
        (491_400_064, "491 MB"),
        (2 * 10**9, "2.00 GB"),
    ],
)
def test_size_text(size: int, text: str) -> None:
    assert size_text(size) == text
