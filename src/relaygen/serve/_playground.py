"""The playground: a page at ``/`` with its files, as they lie in the package. No build step.

The files say nothing about this server, so they need no key; what they ask it for does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import PurePosixPath

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

FOLDER = "playground"
"""Of the files in the package, and of all of them but the page itself in addresses."""

_PAGE = "index.html"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_SECURITY = {
    # The page shows what models write: no script but its own ones can run, whatever they write.
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def add_playground(app: FastAPI) -> tuple[str, ...]:
    """Add the page and its files to the routes; gives their paths.

    Addresses in the page are relative, so that it works wherever a proxy mounts the server.
    """
    paths = []
    for file in files(__package__).joinpath(FOLDER).iterdir():
        type = _TYPES.get(PurePosixPath(file.name).suffix)
        if type is None:
            continue
        path = "/" if file.name == _PAGE else f"/{FOLDER}/{file.name}"
        app.add_route(path, _answering(file.read_bytes(), type), include_in_schema=False)
        paths.append(path)
    return tuple(paths)


def _answering(data: bytes, type: str) -> Callable[[Request], Awaitable[Response]]:
    """Answers with a file; with 304 where the browser has it."""
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache", **_SECURITY}

    async def answer(request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if tag in (each.strip().removeprefix("W/") for each in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(data, headers={**headers, "content-type": type})

    return answer
