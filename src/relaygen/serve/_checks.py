"""What can be told about a pair before the first request, and whether an engine answers now."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from .._errors import EngineError, EngineUnreachableError, RelayGenError
from .._types import ROLES, Conversation, EngineInfo, Message, Role, Sampling, SegmentRequest
from ..engines.base import Engine
from ._errors import without_address

_PATIENCE_S = 5.0
_FRESH_S = 1.0
_PROMPT_TOKENS = 600  # some tens of every server's cache blocks
_ASKED = Conversation((Message("system", "Be brief."), Message("user", "One and one?")))
_SLOW_S = 0.02  # a prefill that takes less cannot be told from noise
_PROBE_S = 60.0

_LONGER = {
    "vllm": "--max-model-len",
    "llama-server": "-c (the context of each slot is -c divided by -np, unless -kvu is given)",
}
_CACHE = {
    "vllm": "start vLLM with --enable-prefix-caching",
    "llama-server": "start llama-server without --no-cache-prompt",
}
_SHOW = {"vllm": "start vLLM with --enable-prompt-tokens-details"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        level: ``error`` means that requests will fail, ``warning`` that they will be slow or
            worse than they could be.
        role: whose engine; "" for the pair.
        text: what is the case.
        hint: what to do, with the engine's own flag; "" where there is nothing to do.
    """

    level: Literal["ok", "warning", "error"]
    role: Role | Literal[""]
    text: str
    hint: str = ""

    def __str__(self) -> str:
        head = f"{self.role} engine: " if self.role else "pair: "
        mark = "" if self.level == "ok" else f"{self.level}: "
        return f"{mark}{head}{self.text}" + (f"; {self.hint}" if self.hint else "")


async def check_pair(
    engines: Mapping[Role, Engine], *, prefix: bool = True, patience: float = 30.0
) -> list[Finding]:
    """Whether the engines answer and fit together, and whether their prefix caches work.

    Args:
        engines: by role; one alone is checked alone.
        prefix: also send each engine one prompt of about 600 tokens twice.
        patience: seconds that an engine has to describe itself.
    """
    roles = [role for role in ROLES if role in engines]
    met = await asyncio.gather(*(_meet(role, engines[role], patience) for role in roles))
    findings: list[Finding] = []
    infos: dict[Role, EngineInfo] = {}
    for role, found in zip(roles, met, strict=True):
        if isinstance(found, EngineInfo):
            infos[role] = found
            kind = f" ({found.kind})" if found.kind else ""
            text = f"{found.model}{kind}, context {found.context}"
            findings.append(Finding("ok", role, text))
        else:
            findings.append(found)
    if len(infos) == 2:
        findings += _together(infos["large"], infos["small"])
        findings += await _templates(engines, infos)
    if prefix:
        for each in await asyncio.gather(*(_prefix(r, engines[r], infos[r]) for r in infos)):
            findings += each
    return findings


async def _meet(role: Role, engine: Engine, patience: float) -> EngineInfo | Finding:
    try:
        info = await asyncio.wait_for(engine.info(), patience)
        if info.text_only:  # its chat template is the operator's to give
            await asyncio.wait_for(engine.render(_ASKED), patience)
        return info
    except asyncio.TimeoutError:
        return _missing(role, f"no answer within {patience:g} s", "until it answers")
    except EngineUnreachableError as error:
        return _missing(role, _told(error), "until it answers")
    except RelayGenError as error:
        return _missing(role, _told(error), "until that is put right")


def _told(error: RelayGenError) -> str:
    return f"{_own(error)} ({error.hint})" if error.hint else _own(error)


def _own(error: RelayGenError) -> str:
    """One line without the role, which stands in front of it anyway."""
    role = error.role if isinstance(error, EngineError) else ""
    return " ".join(str(error).removeprefix(f"{role} engine: ").split())


def _missing(role: Role, why: str, until: str) -> Finding:
    if role == "small":
        return Finding("warning", role, why, f"the large model goes on alone {until}")
    return Finding("error", role, why, f"requests fail {until}")


def _together(large: EngineInfo, small: EngineInfo) -> list[Finding]:
    findings = []
    if large.vocabulary and large.vocabulary == small.vocabulary:
        findings.append(Finding("ok", "", "equal vocabularies: token ids cross a hand-off"))
    else:
        if large.text_only or small.text_only:
            why = "an engine hides its token ids"
        elif large.vocabulary and small.vocabulary:
            why = "different vocabularies"
        else:
            why = "vocabularies that cannot be compared"
        findings.append(Finding("ok", "", f"{why}: text crosses a hand-off"))
    if small.context < large.context:
        longer = _LONGER.get(small.kind)
        findings.append(
            Finding(
                "warning",
                "small",
                f"its context ({small.context}) is shorter than the large model's "
                f"({large.context}): beyond it the large model writes alone",
                f"start it with {longer} {large.context}"
                if small.kind == "vllm"
                else f"see its option {longer}"
                if longer
                else "start it with a longer one",
            )
        )
    return findings


async def _templates(
    engines: Mapping[Role, Engine], infos: Mapping[Role, EngineInfo]
) -> list[Finding]:
    """Where ids are shared both models continue what the large one's template made."""
    large, small = infos["large"], infos["small"]
    if not large.vocabulary or large.vocabulary != small.vocabulary:
        return []
    try:
        made = await asyncio.wait_for(
            asyncio.gather(*(engines[role].render(_ASKED) for role in ROLES)), _PATIENCE_S
        )
    except (RelayGenError, asyncio.TimeoutError):
        return []  # other lines say what is wrong with the engine
    if made[0].ids == made[1].ids:
        return []
    text = "the two chat templates differ: both models continue the large one's prompt"
    return [Finding("warning", "", text)]


async def _prefix(role: Role, engine: Engine, info: EngineInfo) -> list[Finding]:
    """The same prompt twice: counters prove a cache, else the time does."""
    try:
        first, second, cached = await asyncio.wait_for(_twice(engine, info), _PROBE_S)
    except asyncio.TimeoutError:
        return [Finding("warning", role, f"a short generation took more than {_PROBE_S:g} s")]
    except RelayGenError as error:
        text = f"a short generation failed: {_own(error)}"
        return [Finding("warning", role, text, error.hint)]
    if cached:
        return [Finding("ok", role, f"prefix cache on: {cached} tokens found again")]
    if cached == 0:
        return [
            Finding(
                "warning",
                role,
                "prefix cache off: every hand-off computes the whole text again",
                _CACHE.get(info.kind, "switch it on"),
            )
        ]
    findings = [
        Finding("warning", role, "hides its cached tokens, so replies cannot say them", hint)
        for hint in [_SHOW.get(info.kind, "")]
        if hint
    ]
    if first > _SLOW_S and second < first / 2:
        timed = f"prefix cache on: {1000 * first:.0f} ms, then {1000 * second:.0f} ms"
        return [Finding("ok", role, timed), *findings]
    text = f"prefix cache not proven: {1000 * first:.0f} ms, then {1000 * second:.0f} ms"
    return [Finding("warning", role, text, _CACHE.get(info.kind, "")), *findings]


async def _twice(engine: Engine, info: EngineInfo) -> tuple[float, float, int | None]:
    key = uuid.uuid4().hex
    # Its beginning is new, or an earlier start of this server would have left it in the cache.
    text = f"{key}: " + "The relay hands the word from one model to the other. " * 60
    ids = () if info.text_only else await engine.tokenize(text)
    ids = ids[: min(_PROMPT_TOKENS, max(1, info.context // 2))]
    if info.text_only:
        text = text[: info.context]
    request = SegmentRequest(
        ids, 1, Sampling(temperature=0.0), key, text=text if info.text_only else None
    )
    try:
        first, _ = await _timed(engine, request)
        second, cached = await _timed(engine, request)
    finally:
        await engine.release(key)
    return first, second, cached


async def _timed(engine: Engine, request: SegmentRequest) -> tuple[float, int | None]:
    began = time.monotonic()
    cached: int | None = None
    async with aclosing(engine.stream(request)) as stream:
        async for delta in stream:
            cached = delta.cached if delta.cached is not None else cached
    return time.monotonic() - began, cached


class Answering:
    """Whether an engine answers now; asked at most once a second.

    Args:
        engine: is asked to tokenize a word, which a server does without touching its model.
            Where that is no use, it generates a token.
        patience: seconds to wait for the answer.
    """

    def __init__(self, engine: Engine, *, patience: float = _PATIENCE_S) -> None:
        self._engine = engine
        self._patience = patience
        self._asked: asyncio.Task[str] | None = None
        self._at = 0.0
        self._number = 0

    async def ask(self) -> str:
        """ "" where it answers, else why not."""
        now = time.monotonic()
        if self._asked is None or (self._asked.done() and now - self._at > _FRESH_S):
            self._at = now
            self._number += 1
            self._asked = asyncio.ensure_future(self._ask(f"ready {self._number}"))
        # It is not cancelled: it may be starting the engine, and others wait for it.
        if not self._asked.done():
            await asyncio.wait((self._asked,), timeout=self._patience)
        if not self._asked.done():
            return f"no answer within {self._patience:g} s"
        return self._asked.result()

    async def _ask(self, text: str) -> str:
        try:
            await self._look(text)
        except RelayGenError as error:
            return without_address(_own(error))
        return ""

    async def _look(self, text: str) -> None:
        info = await self._engine.info()
        if not info.text_only:
            await self._engine.tokenize(text)
            return
        key = uuid.uuid4().hex  # all that such a server can be asked for is text
        request = SegmentRequest((), 1, Sampling(temperature=0.0), key, text=text)
        try:
            await _timed(self._engine, request)
        finally:
            await self._engine.release(key)
