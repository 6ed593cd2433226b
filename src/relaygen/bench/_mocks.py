"""Two mock engines, each in a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._errors import EngineStartError
from .._types import ROLES, Role
from ..engines._process import ChildProcess
from ..mock import MockConfig, Trace, serving

_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How fast an engine is, in milliseconds per token.

    Attributes:
        token_ms: of decoding.
        prefill_ms: of a prompt's token that is not cached.
    """

    token_ms: float
    prefill_ms: float = 0.0


LARGE = Shape(40.0, 0.3)
SMALL = Shape(6.5, 0.05)
"""The two models that speed is measured with: as a 32B and a 1.7B model on a GPU."""

SHAPES: Mapping[Role, Shape] = {"large": LARGE, "small": SMALL}


@asynccontextmanager
async def mocks(
    trace: Trace, shapes: Mapping[Role, Shape] = SHAPES, **more: Any
) -> AsyncIterator[dict[Role, str]]:
    """The URLs of a large and a small mock engine; both end with the context, or with us.

    Args:
        trace: what both write.
        shapes: how fast each is.
        more: further fields of `MockConfig`.

    Raises:
        MissingExtraError: uvicorn or starlette is not installed.
        EngineStartError: one does not start.
    """
    options: dict[str, Any] = {"context": 131_072, "kv_tokens": 4_000_000, **more}
    with tempfile.TemporaryDirectory(prefix="relaygen-bench-") as folder:
        path = Path(folder) / "trace.json"
        path.write_text(trace.dump(), encoding="utf-8")
        async with AsyncExitStack() as stack:
            urls: dict[Role, str] = {}
            for role in ROLES:
                config = {"trace": str(path), **asdict(shapes[role]), **options}
                urls[role] = await _started(role, config, stack)
            yield urls


async def _started(role: Role, config: Mapping[str, Any], stack: AsyncExitStack) -> str:
    command = [sys.executable, "-c", "from relaygen.bench._mocks import child; child()"]
    process = ChildProcess(command, json.dumps(config).encode() + b"\n", None)
    stack.push_async_callback(process.aclose)
    try:
        answer = await process.answer(_PATIENCE_S)
    except (TimeoutError, ValueError):
        answer = None
    if answer is None:
        raise EngineStartError(
            f"the mock engine did not start: {process.last_words()}",
            role=role,
            hint="it needs the extra: pip install 'relaygen[serve]' "
            "(in a checkout: pip install '.[serve]')",
        )
    return str(answer["url"])


def child() -> None:
    """The process: its configuration on stdin, its URL on stdout, until stdin ends."""
    config = json.loads(sys.stdin.readline())
    with serving(MockConfig(**config)) as url:
        print(json.dumps({"url": url}), flush=True)
        sys.stdin.read()
