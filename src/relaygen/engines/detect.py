"""An engine whose kind of server is found out when it is first asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, get_args

from .._errors import EngineReplyError, UsageError
from .._types import Conversation, Delta, EngineInfo, Prompt, SegmentRequest
from ._per_loop import PerLoop
from ._wire import Wire, WireOptions
from .base import Engine

if TYPE_CHECKING:
    from typing_extensions import Unpack

Kind = Literal["auto", "vllm", "llama-server", "sglang", "completions"]
"""Which adapter talks to a server; ``auto`` finds it out."""

_KINDS: tuple[Kind, ...] = get_args(Kind)


class DetectedEngine:
    """A server at an address, of whatever kind. Nothing is opened before the first call.

    As long as nobody answers, every call asks again, so a server may come up later; calls at the
    same time share the answer, and one that is given up does not break off the others'.

    Args:
        url: ``http://host:port``.
        kind: what it is; ``auto`` asks it.
        model: the served name, where the server has several.
        context: see `CompletionsEngine`; other servers tell.
        template: see `CompletionsEngine`; other servers have one, but for old ones of SGLang.
        options: see `WireOptions`.

    Raises:
        UsageError: `url` is no HTTP address, or an option makes no sense.
    """

    def __init__(
        self,
        url: str,
        *,
        kind: Kind = "auto",
        model: str | None = None,
        context: int | None = None,
        template: str | None = None,
        **options: Unpack[WireOptions],
    ) -> None:
        if kind not in _KINDS:
            raise UsageError(f"there is no kind {kind!r}", hint=f"one of {', '.join(_KINDS)}")
        self._wire = Wire(url, **options)
        self._kind: Kind = kind
        self._model = model
        self._context = context
        self._template = template
        self._options = options
        self._meeting: PerLoop[list[asyncio.Task[Engine]]] = PerLoop(list)  # at most one
        self._engine: Engine | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._wire.url

    @property
    def engine(self) -> Engine | None:
        """The adapter that was chosen; None before the server answered."""
        return self._engine

    async def info(self) -> EngineInfo:
        """What the server says of itself; its kind is found out first.

        Raises:
            EngineUnreachableError: nobody answers. The next call asks again.
            EngineReplyError: it is no server that is known.
            EngineError: see the adapter's.
        """
        return await (await self._ready()).info()

    async def render(self, conversation: Conversation) -> Prompt:
        """See the adapter's.

        Raises:
            EngineError: as `info`, and see the adapter's.
        """
        return await (await self._ready()).render(conversation)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """See the adapter's.

        Raises:
            EngineError: as `info`, and see the adapter's.
        """
        return await (await self._ready()).tokenize(text, special=special)

    def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """See the adapter's.

        Raises:
            EngineError: as `info`, and see the adapter's.
        """
        if self._engine is not None:  # the usual case, without a layer more for each token
            return self._engine.stream(request)
        return self._first(request)

    async def _first(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        async with aclosing((await self._ready()).stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def release(self, session: str) -> None:
        """See the adapter's."""
        if self._engine is not None:
            await self._engine.release(session)

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        for meeting in self._meeting.take() or ():
            meeting.cancel()
            await asyncio.gather(meeting, return_exceptions=True)
        await self._wire.aclose()
        if self._engine is not None:
            await self._engine.aclose()

    async def _ready(self) -> Engine:
        if self._engine is not None:
            return self._engine
        meeting = self._meeting.get()
        if not meeting:
            meeting.append(asyncio.ensure_future(self._meet()))
            meeting[0].add_done_callback(lambda task: _over(meeting, task))
        return await asyncio.shield(meeting[0])

    async def _meet(self) -> Engine:
        kind = await self._found() if self._kind == "auto" else self._kind
        engine = self._made(kind)
        try:
            await engine.info()
        except BaseException:
            await engine.aclose()
            raise
        self._engine = engine
        return engine

    def _made(self, kind: Kind) -> Engine:
        # Imported where it is used: each brings its own dependencies.
        if kind == "vllm":
            from .vllm import VllmEngine

            return VllmEngine(self.url, model=self._model, **self._options)
        if kind == "llama-server":
            from .llama_server import LlamaServerEngine

            return LlamaServerEngine(self.url, model=self._model, **self._options)
        if kind == "sglang":
            from .sglang import SglangEngine

            return SglangEngine(
                self.url, model=self._model, template=self._template, **self._options
            )
        from .completions import CompletionsEngine

        return CompletionsEngine(
            self.url,
            model=self._model,
            context=self._context,
            template=self._template,
            **self._options,
        )

    async def _found(self) -> Kind:
        """Ask for routes that only one kind of server has."""
        props = await self._answer("/props")
        if "total_slots" in props or "default_generation_settings" in props:
            return "llama-server"
        error = props.get("error")
        if isinstance(error, dict) and error.get("type") == "unavailable_error":
            return "llama-server"  # which loads its model
        for path in ("/model_info", "/get_model_info"):
            if "model_path" in await self._answer(path):
                return "sglang"
        if "version" in await self._answer("/version"):
            return "vllm"
        models = await self._answer("/v1/models", must=True)
        if isinstance(models.get("data"), list):
            return "completions"
        raise EngineReplyError(
            f"{self.url} is no inference server: it has none of /props, /version and /v1/models",
            role=self._wire.role,
            hint="give the address of a vLLM or SGLang server or a llama-server, without a path",
        )

    async def _answer(self, path: str, *, must: bool = False) -> dict[str, Any]:
        """The object that a GET answers, empty where there is none.

        Raises:
            EngineUnreachableError: nobody answers.
            EngineError: `must`, and the key is refused.
        """
        status, answer = await self._wire.probe(path)
        if must and status in (401, 403):
            await self._wire.get(path)  # says what is wrong
        return answer


def _over(meeting: list[asyncio.Task[Engine]], task: asyncio.Task[Engine]) -> None:
    meeting.clear()
    if not task.cancelled():
        task.exception()  # perhaps nobody waits for it any more
