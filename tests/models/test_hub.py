from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from relaygen._errors import DownloadError, MissingExtraError, ModelNotFoundError
from relaygen.models import _hub
from relaygen.models._progress import Reporter

from .support import CONTENT, FILE, REPO, Hub, Recorder


def fetch(target: Path) -> Recorder:
    recorder = Recorder()
    _hub.download(_hub.locate(REPO, FILE), target, Reporter("tiny", recorder))
    return recorder


def test_locate_tells_size_and_hash(hub: Hub) -> None:
    file = _hub.locate(REPO, FILE)
    assert (file.repo, file.name, file.size) == (REPO, FILE, len(CONTENT))
    assert file.sha256 == hashlib.sha256(CONTENT).hexdigest()
    hub.etag = "0123"
    assert _hub.locate(REPO, FILE).sha256 == ""


def test_the_token_goes_to_the_hub_and_not_to_where_it_sends_us(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch(tmp_path / "file")
    tokens = {path.split("/")[1]: token for _, path, _, token in hub.seen}
    assert tokens == {"someone": "Bearer hf_secret", "cdn": ""}


@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        (404, "RepoNotFound", ModelNotFoundError, "no repository someone/tiny-gguf"),
        (404, "EntryNotFound", ModelNotFoundError, "no file tiny-q4_k_m.gguf in someone/tiny-gguf"),
        (403, "GatedRepo", ModelNotFoundError, "asks you to accept its terms"),
        (503, "", DownloadError, "HTTP status 503"),
    ],
)
def test_refusals_have_their_own_errors(
    hub: Hub, status: int, code: str, error: type[Exception], message: str
) -> None:
    hub.status, hub.error_code = status, code
    with pytest.raises(error, match=message):
        _hub.locate(REPO, FILE)
    assert len(hub.seen) == 1  # asked once: no retries


def test_a_refused_connection_is_an_error_at_once() -> None:
    with pytest.raises(DownloadError, match=r"cannot be reached \(Connection refused\)"):
        _hub.locate(REPO, FILE)


def test_offline_mode_asks_nothing(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE"):
        _hub.locate(REPO, FILE)
    assert hub.seen == []


def test_a_hub_that_never_answers_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.lookups_stall = True  # until the end of this test: without a limit it would never end
    monkeypatch.setattr(_hub, "REQUEST_TIMEOUT_S", 0.1)
    with pytest.raises(DownloadError, match="does not answer"):
        _hub.locate(REPO, FILE)
    assert len(hub.seen) == 1


def test_a_question_without_any_limit_of_its_own_is_given_up(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What looking up a name does when the resolver is gone; here it ends with another error.
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda *a, **k: hub.over.wait(5))
    monkeypatch.setattr(_hub, "REQUEST_TIMEOUT_S", 0.1)
    with pytest.raises(DownloadError, match="does not answer"):
        _hub.locate(REPO, FILE)


def test_download_brings_the_whole_file_and_counts_it(hub: Hub, tmp_path: Path) -> None:
    counts = fetch(tmp_path / "file").counts("hub")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert counts[-1] == len(CONTENT)


def test_download_resumes_what_is_there(hub: Hub, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(CONTENT[:4000])
    counts = fetch(target).counts("hub")
    assert target.read_bytes() == CONTENT
    assert hub.downloads() == ["bytes=4000-"]
    assert min(counts) > 4000


def test_download_begins_anew_where_the_hub_cannot_resume(hub: Hub, tmp_path: Path) -> None:
    hub.ranges = False
    target = tmp_path / "file"
    target.write_bytes(b"x" * 4000)
    fetch(target)
    assert target.read_bytes() == CONTENT


def test_bytes_beyond_the_file_are_not_kept(hub: Hub, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"x" * (len(CONTENT) + 1))
    fetch(target)
    assert target.read_bytes() == CONTENT


def test_broken_connections_are_resumed_as_long_as_bytes_come(hub: Hub, tmp_path: Path) -> None:
    hub.cut = 5  # more than RETRIES, each with 1000 bytes
    fetch(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert hub.downloads() == ["", *(f"bytes={1000 * k}-" for k in range(1, 6))]


def test_a_stalled_download_is_given_up_and_kept(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    monkeypatch.setattr(_hub, "RETRIES", 1)
    hub.body_stalls = True
    target = tmp_path / "file"
    with pytest.raises(DownloadError, match="does not answer"):
        fetch(target)
    kept = target.read_bytes()
    assert kept
    assert CONTENT.startswith(kept)


def test_failures_in_a_row_without_a_byte_end_it(hub: Hub, tmp_path: Path) -> None:
    file = _hub.locate(REPO, FILE)
    hub.status = 500
    with pytest.raises(DownloadError, match="HTTP status 500"):
        _hub.download(file, tmp_path / "file", Reporter("tiny", Recorder()))
    assert [method for method, *_ in hub.seen].count("GET") == _hub.RETRIES


def test_list_files(hub: Hub) -> None:
    hub.files = {"README.md": b"", "sub/a.gguf": b""}
    assert _hub.list_files(REPO) == ["README.md", "sub/a.gguf"]


def test_cached_finds_what_other_programs_fetched(tmp_path: Path) -> None:
    assert _hub.cached(REPO, FILE) is None
    folder = tmp_path / "hf" / "models--someone--tiny-gguf"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("c" * 40)
    snapshot = folder / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / FILE).write_bytes(CONTENT)
    assert _hub.cached(REPO, FILE) == snapshot / FILE


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError) as caught:
        _hub.require_library()
    assert "relaygen[llama]" in caught.value.hint
