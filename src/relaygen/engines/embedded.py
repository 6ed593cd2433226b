"""The embedded engine: a GGUF model on this machine, served by llama.cpp in a child process.

One process per engine, so that a crash of one is an engine failure like any other and both models
of a pair run on all cores (never at the same time within one generation).
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from .._errors import (
    EngineError,
    EngineStartError,
    EngineUnreachableError,
    MissingExtraError,
    ModelNotFoundError,
    UsageError,
)
from .._types import Conversation, Delta, EngineInfo, Prompt, SegmentRequest
from ._child import Config
from ._cpus import usable_cpus
from ._gguf import Header, Vocabulary, read_header
from ._per_loop import PerLoop
from ._process import ChildProcess
from ._scoring import Expected
from .llama_server import LlamaServerEngine
from .speculation import Speculation

_BATCH_CPU, _BATCH_GPU = 64, 512
"""Prompt tokens computed in one step. An abort has to wait for the step to end (with llama.cpp's
2048, ten seconds on two CPU cores), and a CPU computes 64 at a time as fast per token as 512."""
_ERRORS, _ALL = 1, 3
"""llama.cpp's verbosity; warnings come with every request and would fill a disk in time."""
_DEATH_S = 1.0
"""A dying process closes its sockets a little before it can be seen to be dead."""


class EmbeddedEngine:
    """Serves `path` from a child process that starts with the first call.

    The child listens on loopback only, wants a random key, and ends with this process, even when
    that is killed. It is not started again after a crash.

    Args:
        path: a GGUF file.
        role: for error messages.
        ctx: tokens of context *per conversation*. The server divides its context among its
            slots, so the child is asked for ``ctx * parallel``; it rounds up to a multiple of
            256 for each, and `info` says what came of it.
        threads: CPU threads; None for all that this process may use (affinity and container
            limits count, not the CPUs of the machine).
        ngl: layers on a GPU, 0 for none, -1 for all.
        parallel: conversations whose cache is kept at once.
        log: where llama.cpp's log goes; None for a temporary file with errors only, which is
            kept only where the process dies.
        start_timeout: seconds for the model to load.
        speculation: how it drafts; None for plain decoding. Drafted tokens come without
            candidates, so margins cannot be read then.

    Raises:
        UsageError: a number makes no sense, `ctx` is more than the model was trained for (an error
            and not a warning, because the server would silently give less), or a draft model is
            not named.
        ModelNotFoundError: there is no such file, or it cannot be read.
        NotGGUFError: it is something else.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        role: str = "",
        ctx: int = 4096,
        threads: int | None = None,
        ngl: int = 0,
        parallel: int = 1,
        log: str | os.PathLike[str] | None = None,
        start_timeout: float = 600.0,
        speculation: Speculation | None = None,
    ) -> None:
        self.path = Path(path)
        self._role = role
        self._header = _checked(self.path)
        _check_numbers(self._header, ctx, threads, parallel)
        self._config = Config(
            model=str(self.path.absolute()),
            n_ctx=ctx * parallel,
            n_parallel=parallel,
            threads=threads or usable_cpus(),
            ngl=ngl,
            batch=_BATCH_GPU if ngl else _BATCH_CPU,
            verbosity=_ERRORS if log is None else _ALL,
            api_key=secrets.token_urlsafe(24),
            **_drafting(speculation),
        )
        self._log = Path(log) if log is not None else None
        self._start_timeout = start_timeout
        self._lock = PerLoop(asyncio.Lock)
        self._child: ChildProcess | None = None
        self._server: LlamaServerEngine | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it is started."""
        return self._child.pid if self._child else None

    @property
    def server(self) -> LlamaServerEngine | None:
        """The engine that talks to the child, with its counters; None before it is started."""
        return self._server

    async def info(self) -> EngineInfo:
        """Starts the child where it is not running.

        Raises:
            MissingExtraError: xllamacpp is not installed.
            EngineStartError: the child did not start; the message has its exit status and log.
            EngineUnreachableError: it has died.
        """
        server = await self._ready()
        try:
            return await server.info()
        except EngineError as error:
            raise await self._explained(error) from error

    async def render(self, conversation: Conversation) -> Prompt:
        """The conversation in the model's chat template; see `LlamaServerEngine.render`.

        Raises:
            EngineError: as `info`, or the template refuses the conversation.
        """
        server = await self._ready()
        try:
            return await server.render(conversation)
        except EngineError as error:
            raise await self._explained(error) from error

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Ids of `text` as a continuation.

        Raises:
            EngineError: as `info`.
        """
        server = await self._ready()
        try:
            return await server.tokenize(text, special=special)
        except EngineError as error:
            raise await self._explained(error) from error

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        """Generate; see `LlamaServerEngine.stream`.

        An abort also waits for the step that is under way. The other model of the pair computes on
        the same cores, and where llama.cpp's threads spin while they wait (builds without libgomp,
        see `_child`), two steps at once take far longer than one after the other.

        Raises:
            EngineError: as `info` and `LlamaServerEngine.stream`.
        """
        server = await self._ready()
        ended = False
        try:
            async with aclosing(server.stream(request)) as deltas:
                async for delta in deltas:
                    ended = delta.end is not None
                    yield delta
        except EngineError as error:
            ended = True
            raise await self._explained(error) from error
        finally:
            if not ended:
                await server.settled(request.session)

    async def score(
        self, ids: Sequence[int], start: int, session: str
    ) -> AsyncGenerator[Expected, None]:
        """Position by position; see `LlamaServerEngine.score`.

        Raises:
            EngineError: as `info` and `LlamaServerEngine.score`.
        """
        server = await self._ready()
        try:
            async with aclosing(server.score(ids, start, session)) as found:
                async for each in found:
                    yield each
        except EngineError as error:
            raise await self._explained(error) from error

    async def data(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of each id of a text.

        Raises:
            EngineError: as `info`, or an id is not in the vocabulary.
        """
        server = await self._ready()
        try:
            return await server.data(ids)
        except EngineError as error:
            raise await self._explained(error) from error

    async def release(self, session: str) -> None:
        """The conversation's cache slot is free for another."""
        if self._server is not None:
            await self._server.release(session)

    async def aclose(self) -> None:
        """End the child and remove its temporary log. Safe to call twice; final."""
        self._closed = True
        if self._server is not None:
            await self._server.aclose()
        if self._child is not None:
            await self._child.aclose()

    def _command(self) -> Sequence[str]:
        """What is started; tests replace it."""
        return [sys.executable, "-m", "relaygen.engines._child"]

    async def _ready(self) -> LlamaServerEngine:
        """The server, started once; an error at once where its process has died."""
        if self._closed:
            raise EngineUnreachableError("the engine was closed", role=self._role, retryable=False)
        async with self._lock.get():
            if self._server is None:
                self._server = await self._start()
        if self._child is not None and self._child.dead:
            raise self._died(self._child)
        return self._server

    async def _start(self) -> LlamaServerEngine:
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtraError("xllamacpp", extra="llama")
        try:
            child = ChildProcess(self._command(), self._config.line(), self._log)
        except OSError as error:
            raise self._failed(f"{error.strerror or error}: {error.filename or ''}") from error
        self._child = child
        try:
            vocabulary = await asyncio.to_thread(_vocabulary, self._header)
            address = await self._address(child)
        except BaseException:
            await child.aclose()
            self._child = None
            raise
        return LlamaServerEngine(
            address, api_key=self._config.api_key, vocabulary=vocabulary, role=self._role
        )

    async def _address(self, child: ChildProcess) -> str:
        try:
            answer = await child.answer(self._start_timeout)
        except TimeoutError:
            why = f"it did not start within {self._start_timeout:g} s"
            raise self._failed(f"{why}: {child.last_words()}", child) from None
        except ValueError as error:
            raise self._failed(f"it answered something unusable: {error}", child) from None
        if answer is None:
            raise self._failed(child.last_words(), child)
        return str(answer.get("address"))

    def _failed(self, why: str, child: ChildProcess | None = None) -> EngineStartError:
        hint = ""
        if child is not None:
            child.keep_log()
            hint = f"the whole log: {child.log}"
        return EngineStartError(
            f"the process for {self.path.name} did not start: {why}", role=self._role, hint=hint
        )

    def _died(self, child: ChildProcess) -> EngineUnreachableError:
        child.keep_log()
        return EngineUnreachableError(
            f"the process for {self.path.name} has died: {child.last_words()}",
            role=self._role,
            hint=f"the whole log: {child.log}",
            retryable=False,
        )

    async def _explained(self, error: EngineError) -> EngineError:
        """The same error, or that the process has died, where that is why."""
        child = self._child
        transient = isinstance(error, EngineUnreachableError) or error.retryable
        if self._closed or child is None or not transient or not await child.ended(_DEATH_S):
            return error
        return self._died(child)


def _checked(path: Path) -> Header:
    if path.is_dir():
        raise ModelNotFoundError(f"{path} is a folder, not a GGUF file")
    return read_header(path)


def _drafting(speculation: Speculation | None) -> dict[str, Any]:
    """What the child is told of it."""
    if speculation is None:
        return {}
    told: dict[str, Any] = {"spec": speculation.kind, "drafted": speculation.most}
    if speculation.kind == "ngram":
        return {**told, "lookup": speculation.lookup}
    if speculation.model is None:
        raise UsageError(
            "the speculation does not say which model drafts",
            hint="Speculation('draft', model=FILE.gguf)",
        )
    return {**told, "draft": str(_checked(Path(speculation.model)).path.absolute())}


def _vocabulary(header: Header) -> Vocabulary | None:
    """With its look-ups made, which takes a moment: not in the event loop."""
    vocabulary = header.vocabulary()
    if vocabulary is not None:
        _ = vocabulary.fingerprint, vocabulary.longest
    return vocabulary


def _check_numbers(header: Header, ctx: int, threads: int | None, parallel: int) -> None:
    for name, value in (("ctx", ctx), ("parallel", parallel), ("threads", threads)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    trained = header.context_length
    if trained is not None and ctx > trained:
        raise UsageError(
            f"a context of {ctx} is more than {header.path.name} was trained for",
            hint=f"ask for at most {trained}",
        )
