from __future__ import annotations

from pathlib import Path

import pytest

from relaygen._errors import (
    DownloadError,
    ModelError,
    ModelNotFoundError,
    NotGGUFError,
    UsageError,
)
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL, Store, _resolve, resolve
from relaygen.models._resolve import pick_gguf

from .support import CONTENT, FILE, REPO, Hub


def put(store: Store, name: str, content: bytes = b"GGUF here") -> Path:
    path = store.hub_folder(REPO) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "any name"
    path.write_bytes(b"GGUF and more")
    assert resolve(str(path)) == path
    assert resolve(path) == path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/any name") == path


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04"])
def test_a_path_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(NotGGUFError, match=r"model\.gguf is not a GGUF file"):
        resolve(str(path))


@pytest.mark.parametrize("spec", ["", "nothing", "models/none.gguf", "a/b/c", "../x", "owner/"])
def test_what_is_nothing_lists_what_is_accepted(spec: str, store: Store, hub: Hub) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(spec, store=store)
    for accepted in ("path of a GGUF", EMBEDDED_LARGE.name, EMBEDDED_SMALL.name, "owner/repo"):
        assert accepted in caught.value.hint
    assert hub.seen == []


def test_a_folder_is_called_a_folder(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match="some/folder is a folder"):
        resolve("some/folder", store=store)


def test_a_catalogue_name_that_is_here(store: Store) -> None:
    path = store.path(EMBEDDED_SMALL)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(b"GGUF")
        file.truncate(EMBEDDED_SMALL.size)
    for spec in (EMBEDDED_SMALL.name, EMBEDDED_SMALL.repo, EMBEDDED_SMALL.repo + ":Q4_K_M"):
        assert resolve(spec, fetch=False, store=store) == path


def test_a_catalogue_name_that_is_not_here(store: Store) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(EMBEDDED_LARGE.name, fetch=False, store=store)
    assert caught.value.hint == f"fetch it with: relaygen models pull {EMBEDDED_LARGE.name}"


def test_a_catalogue_name_is_pulled_with_the_callers_choices(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, dict[str, object]]] = []
    (tmp_path / "x").write_bytes(b"GGUF")

    def pull(model: object, **choices: object) -> Path:
        calls.append((model, choices))
        return tmp_path / "x"

    monkeypatch.setattr(_resolve, "pull", pull)
    assert resolve(EMBEDDED_LARGE.name, mirror=False, store=store) == tmp_path / "x"
    resolve(f"{EMBEDDED_LARGE.repo}:{EMBEDDED_LARGE.file}", store=store)
    assert [model for model, _ in calls] == [EMBEDDED_LARGE, EMBEDDED_LARGE]
    assert [choices["mirror"] for _, choices in calls] == [False, True]


def test_a_hub_file(store: Store, hub: Hub) -> None:
    path = resolve(f"{REPO}:{FILE}", store=store)
    assert path == store.hub_folder(REPO) / FILE
    assert path.read_bytes() == CONTENT
    asked = len(hub.seen)
    assert resolve(f"{REPO}:{FILE}", store=store) == path
    assert resolve(REPO, store=store) == path  # the hub's list would give this one as well
    assert len(hub.seen) == asked


def test_a_hub_file_that_is_no_model_is_refused(store: Store, hub: Hub) -> None:
    hub.files[FILE] = b"<html>"
    with pytest.raises(NotGGUFError):
        resolve(f"{REPO}:{FILE}", store=store)


def test_a_tag_chooses_from_the_hubs_list(store: Store, hub: Hub) -> None:
    hub.files["tiny-q8_0.gguf"] = b"GGUF eight"
    assert resolve(f"{REPO}:Q8_0", store=store).read_bytes() == b"GGUF eight"
    # That file being here does not make it the default.
    assert resolve(REPO, store=store).read_bytes() == CONTENT


def test_without_the_hub_the_files_here_are_chosen_from(store: Store) -> None:
    with pytest.raises(DownloadError):
        resolve(REPO, store=store)
    path = put(store, "only-q8_0.gguf")
    assert resolve(REPO, store=store) == path
    assert resolve(f"{REPO}:q8_0", store=store) == path


def test_without_fetching_only_files_here_count(store: Store, hub: Hub) -> None:
    for spec in (REPO, f"{REPO}:{FILE}", f"{REPO}:Q4_K_M"):
        with pytest.raises(ModelNotFoundError):
            resolve(spec, fetch=False, store=store)
    path = put(store, FILE)
    assert resolve(REPO, fetch=False, store=store) == path
    assert resolve(f"{REPO}:{FILE}", fetch=False, store=store) == path
    with pytest.raises(ModelNotFoundError):
        resolve(f"{REPO}:other.gguf", fetch=False, store=store)
    assert hub.seen == []


def test_a_hub_file_cannot_leave_its_folder(store: Store, hub: Hub) -> None:
    put(store, "../../../outside.gguf")
    with pytest.raises(UsageError):
        resolve(f"{REPO}:../../../outside.gguf", store=store)


NAMES = ["README.md", "a-Q4_K_M.gguf", "a-Q4_K_S.gguf", "a-Q8_0.gguf", "mmproj-a-f16.gguf"]


@pytest.mark.parametrize(
    ("names", "tag", "chosen"),
    [
        (NAMES, "", "a-Q4_K_M.gguf"),
        (NAMES, "q8_0", "a-Q8_0.gguf"),
        (["only.gguf", "mmproj-only.gguf"], "", "only.gguf"),
        (["A_Q4_K_M.GGUF"], "Q4_K_M", "A_Q4_K_M.GGUF"),
        (["Q5_K_M/a.gguf", "Q6_K/a.gguf"], "Q6_K", "Q6_K/a.gguf"),
        (["a.IQ4_XS.gguf", "a.i1-Q4_K_M.gguf"], "IQ4_XS", "a.IQ4_XS.gguf"),
        (["a-Q8_0-00001-of-00002.gguf", "a-Q4_K_M.gguf"], "", "a-Q4_K_M.gguf"),
    ],
)
def test_pick(names: list[str], tag: str, chosen: str) -> None:
    assert pick_gguf(names, REPO, tag) == chosen


@pytest.mark.parametrize(
    ("names", "tag", "message"),
    [
        (["README.md"], "", "has no GGUF file"),
        (NAMES, "Q4_K", "has no GGUF file Q4_K"),
        (NAMES, "f16", "has no GGUF file f16"),
        (["a-q8_0.gguf", "a-q5_0.gguf"], "", "more than one GGUF file"),
        (["x/a-q8_0.gguf", "y/a-q8_0.gguf"], "q8_0", "more than one GGUF file q8_0"),
    ],
)
def test_pick_refuses(names: list[str], tag: str, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message) as caught:
        pick_gguf(names, REPO, tag)
    listed = [name for name in names if "mmproj" not in name and name.endswith(".gguf")]
    assert all(name in caught.value.hint for name in listed)


def test_pick_refuses_a_split_model() -> None:
    names = [f"a-Q4_K_M-0000{part}-of-00002.gguf" for part in (1, 2)]
    with pytest.raises(ModelError, match="one of several files") as caught:
        pick_gguf(names, REPO)
    assert "llama-gguf-split" in caught.value.hint
