"""The playground's files and how they are served; tests/browser drives the page itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

import relaygen
from relaygen.profiles import LEVELED
from relaygen.serve._playground import FOLDER, add_playground
from relaygen.serve._settings import Settings

from .support import call, get, pair, post, problem

FILES = {
    file.name: file.read_text("utf-8")
    for file in files("relaygen.serve").joinpath(FOLDER).iterdir()
}
SCRIPTS = sorted(name for name in FILES if name.endswith(".js"))
KEY = "sk-test"


def address(name: str) -> str:
    return "/" if name == "index.html" else f"/{FOLDER}/{name}"


class Page(HTMLParser):
    """What the page fetches, and what it holds that its policy would not run."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.inline: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._script = tag == "script"
        for name, value in attrs:
            if name in ("src", "href"):
                self.fetched.append(value or "")
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
        if tag == "style":
            self.inline.append(tag)

    def handle_data(self, data: str) -> None:
        if self._script and data.strip():
            self.inline.append(data)


def parsed() -> Page:
    page = Page()
    page.feed(FILES["index.html"])
    return page


# Routes.


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("index.html", "text/html; charset=utf-8"),
        ("app.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
def test_a_file_is_served_as_it_lies_in_the_package(name: str, type: str) -> None:
    response = get(pair(), address(name))
    assert response.status_code == 200
    assert response.headers["content-type"] == type
    assert response.text == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_guarded_by_a_strict_policy(name: str) -> None:
    headers = get(pair(), address(name)).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"


def test_a_browser_asks_whether_its_copy_is_still_good() -> None:
    served = pair()
    first = get(served, "/")
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = get(served, "/", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert "content-security-policy" in again.headers
    assert get(served, "/", headers={"if-none-match": '"other"'}).status_code == 200
    assert get(served, address("app.js")).headers["etag"] != tag


def test_only_reading_is_allowed() -> None:
    served = pair()
    assert problem(post(served, "/"))[::2] == (405, "method_not_allowed")
    head = call(served, lambda client: client.head("/"))
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "path", ["/playground/", "/playground/nowhere.js", "/playground/../_app.py"]
)
def test_nothing_else_is_served(path: str) -> None:
    assert problem(get(pair(), path))[0] == 404


def test_it_is_no_part_of_the_described_interface() -> None:
    paths = get(pair(), "/openapi.json").json()["paths"]
    assert "/" not in paths
    assert not any(FOLDER in path for path in paths)


def test_the_page_needs_no_key_and_what_it_asks_for_does() -> None:
    served = pair(settings=Settings(api_keys=(KEY,)))
    for name in FILES:
        assert get(served, address(name)).status_code == 200
    assert problem(get(served, "/v1/models"))[0] == 401
    assert problem(get(served, "/playground/nowhere.js"))[0] == 401


@pytest.mark.parametrize("stripped", [True, False])
def test_behind_a_proxy(stripped: bool) -> None:
    served = pair(settings=Settings(root_path="/llm", api_keys=(KEY,)))
    root = "" if stripped else "/llm"
    assert get(served, f"{root}/").text == FILES["index.html"]
    assert get(served, f"{root}/playground/app.js").text == FILES["app.js"]


def test_the_routes_are_those_of_the_files() -> None:
    assert sorted(add_playground(pair().app)) == sorted(map(address, FILES))


# Files.


def test_the_page_holds_no_script_and_no_style() -> None:
    page = parsed()
    assert page.inline == []
    assert "playground/app.js" in page.fetched


def test_everything_the_page_fetches_is_there_and_relative() -> None:
    for fetched in parsed().fetched:
        folder, _, name = fetched.partition("/")
        assert folder == FOLDER
        assert name in FILES
    for name in SCRIPTS:
        for imported in re.findall(r'from "([^"]+)"', FILES[name]):
            assert imported.removeprefix("./") in FILES
            assert imported.startswith("./")


@pytest.mark.parametrize("name", FILES)
def test_nothing_comes_from_outside(name: str) -> None:
    text = FILES[name].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_text_never_becomes_markup(name: str) -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser"
    )
    assert not re.search(forbidden, FILES[name])
    assert 'setAttribute("style"' not in FILES[name]


def test_a_key_is_never_stored() -> None:
    stored = re.findall(r"(?:local|session)Storage\.setItem\(([^)]*)\)", "".join(FILES.values()))
    assert stored == ['"relaygen-theme", name']
    assert "document.cookie" not in "".join(FILES.values())


def test_the_page_knows_which_policies_have_levels() -> None:
    found = re.search(r"LEVELED = \[([^\]]*)\]", FILES["app.js"])
    assert found is not None
    assert sorted(found[1].replace('"', "").split(", ")) == sorted(LEVELED)


def test_the_files_lie_in_the_package_where_the_wheel_takes_them() -> None:
    folder = Path(relaygen.__file__).parent / "serve" / FOLDER
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert all(len(text.splitlines()) <= 300 for text in FILES.values())
