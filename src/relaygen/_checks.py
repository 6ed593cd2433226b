"""What can be told about a pair before the first request."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from ._errors import EngineError, EngineReplyError, EngineUnreachableError, RelayGenError
from ._flags import CACHE, SHOW_CACHED, longer_context
from ._guarded import Guarded
from ._own import DEBUG_HINT, words
from ._types import ROLES, Conversation, EngineInfo, Message, Role, Sampling, SegmentRequest
from .engines.base import Engine

Level = Literal["ok", "note", "warning", "error", "against"]
"""``error`` means that requests will fail or are not what they should be, ``warning`` that they
will be slow or worse than they could be, ``against`` that a relay is of no use here; a ``note`` is
neither good nor bad."""

_PATIENCE_S = 5.0
_PROMPT_TOKENS = 600  # some tens of every server's cache blocks
ASKED = Conversation((Message("system", "Be brief."), Message("user", "One and one?")))
"""What the two models' templates are compared by."""

SLOW_S = 0.02
"""A prefill that takes less cannot be told from noise."""
_PROBE_S = 60.0
FILLER = "The relay hands the word from one model to the other. "
"""Text of which a prompt of any length is made."""
LETTERS = 4
"""Of a token, about, where an engine hides its tokens."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        level: see `Level`.
        role: whose engine; "" for the pair.
        text: what is the case.
        hint: what to do, with the engine's own flag; "" where there is nothing to do.
        check: what was looked at, in one word.
    """

    level: Level
    role: Role | Literal[""]
    text: str
    hint: str = ""
    check: str = ""

    def __str__(self) -> str:
        head = f"{self.role} engine: " if self.role else "pair: "
        mark = "" if self.level == "ok" else f"{self.level}: "
        return f"{mark}{head}{self.text}" + (f"; {self.hint}" if self.hint else "")


DIFFERENT_TEMPLATES = Finding(
    "warning",
    "",
    "the two chat templates differ: both models continue the large one's prompt",
    check="templates",
)


async def check_pair(
    engines: Mapping[Role, Engine], *, prefix: bool = True, patience: float = 30.0
) -> list[Finding]:
    """Whether the engines answer and fit together, and whether their prefix caches work.

    Args:
        engines: by role; one alone is checked alone.
        prefix: also send each engine one prompt of about 600 tokens twice.
        patience: seconds that an engine has to describe itself.
    """
    infos, findings = await meet(engines, patience)
    if len(infos) == 2:
        findings += together(infos["large"], infos["small"])
        if shared(infos) and await same_template(engines) is False:
            findings.append(DIFFERENT_TEMPLATES)
    if prefix:
        for each in await asyncio.gather(*(_prefix(r, engines[r], infos[r]) for r in infos)):
            findings += each
    return findings


async def meet(
    engines: Mapping[Role, Engine], patience: float
) -> tuple[dict[Role, EngineInfo], list[Finding]]:
    """What the engines say of themselves within `patience` seconds, and a finding for each."""
    roles = [role for role in ROLES if role in engines]
    met = await asyncio.gather(*(_meet(role, engines[role], patience) for role in roles))
    infos = {
        role: found for role, found in zip(roles, met, strict=True) if isinstance(found, EngineInfo)
    }
    findings = [
        _served(role, found) if isinstance(found, EngineInfo) else found
        for role, found in zip(roles, met, strict=True)
    ]
    return infos, findings


def _served(role: Role, info: EngineInfo) -> Finding:
    kind = " ".join(filter(None, (info.kind, info.version)))
    kind += ", experimental" if info.experimental else ""
    text = f"{info.model}{f' ({kind})' if kind else ''}, context {info.context}"
    return Finding("ok", role, text, check="reachable")


async def _meet(role: Role, engine: Engine, patience: float) -> EngineInfo | Finding:
    try:
        return await asyncio.wait_for(_introduced(role, Guarded(engine, role)), patience)
    except asyncio.TimeoutError:
        return _missing(role, f"no answer within {patience:g} s", "until it answers")


async def _introduced(role: Role, engine: Engine) -> EngineInfo | Finding:
    try:
        info = await engine.info()
        if info.text_only:  # its chat template is the operator's to give
            await engine.render(ASKED)
        return info
    except EngineUnreachableError as error:
        return _missing(role, own_words(error), "until it answers", error.hint)
    except RelayGenError as error:
        return _missing(role, own_words(error), "until that is put right", advice(error))


def own_words(error: Exception) -> str:
    """An error in one line without the role, which stands in front of it anyway.

    An exception that is none of ours comes with its name: its words alone say little.
    """
    said = words(error)
    if isinstance(error, RelayGenError):
        role = error.role if isinstance(error, EngineError) else ""
        return said.removeprefix(f"{role} engine: ")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def advice(error: Exception) -> str:
    """What an error says is to be done; "" where it does not.

    A traceback would not be shown: a finding is no error of the command.
    """
    hint = error.hint if isinstance(error, RelayGenError) else ""
    return "mend it there" if hint == DEBUG_HINT else hint


def _missing(role: Role, why: str, until: str, hint: str = "") -> Finding:
    if role == "small":
        text = f"{why}; the large model goes on alone {until}"
        return Finding("warning", role, text, hint, "reachable")
    return Finding("error", role, f"{why}; requests fail {until}", hint, "reachable")


def together(large: EngineInfo, small: EngineInfo) -> list[Finding]:
    """How two engines' vocabularies and contexts fit."""
    return [_vocabularies(large, small), *_contexts(large, small)]


def _vocabularies(large: EngineInfo, small: EngineInfo) -> Finding:
    check = "vocabularies"
    if shared({"large": large, "small": small}):
        return Finding("ok", "", "equal vocabularies: token ids cross a hand-off", check=check)
    if large.text_only or small.text_only:
        why = "an engine hides its token ids"
        hint = (
            "name a vLLM, SGLang or llama-server as such (--large-engine, --small-engine): those "
            "take token ids"
        )
    else:
        known = large.vocabulary and small.vocabulary
        why = "different vocabularies" if known else "vocabularies that cannot be compared"
        hint = (
            "take two models of one family, which share theirs (`relaygen profile list` names "
            "such pairs)"
        )
    text = f"{why}: text crosses a hand-off, and its receiver cuts it into tokens anew"
    return Finding("warning", "", text, hint, check)


def _contexts(large: EngineInfo, small: EngineInfo) -> list[Finding]:
    if small.context >= large.context:
        return []
    text = (
        f"its context ({small.context}) is shorter than the large model's "
        f"({large.context}): beyond it the large model writes alone"
    )
    hint = longer_context(small.kind, large.context)
    return [Finding("warning", "small", text, hint, "context")]


def shared(infos: Mapping[Role, EngineInfo]) -> bool:
    """Whether token ids mean the same to both engines."""
    large, small = infos["large"], infos["small"]
    return bool(large.vocabulary) and large.vocabulary == small.vocabulary


async def same_template(engines: Mapping[Role, Engine]) -> bool | None:
    """Whether both templates make the same ids of a chat; None where an engine does not tell."""
    try:
        made = await asyncio.wait_for(
            asyncio.gather(*(Guarded(engines[role], role).render(ASKED) for role in ROLES)),
            _PATIENCE_S,
        )
    except (RelayGenError, asyncio.TimeoutError):
        return None  # other lines say what is wrong with the engine
    return made[0].ids == made[1].ids


async def _prefix(role: Role, engine: Engine, info: EngineInfo) -> list[Finding]:
    """The same prompt twice: counters prove a cache, else the time does."""
    try:
        first, second, cached, tokens = await asyncio.wait_for(
            _twice(Guarded(engine, role), info), _PROBE_S
        )
    except asyncio.TimeoutError:
        text = f"a short generation took more than {_PROBE_S:g} s"
        return [Finding("warning", role, text, check="prefix-cache")]
    except Exception as error:  # `release` of somebody's own engine may raise anything
        if refused(error):
            return [refusing(role, error)]
        text = f"a short generation failed: {own_words(error)}"
        return [Finding("warning", role, text, advice(error), "prefix-cache")]
    return prefix_cache(role, info.kind, first, second, cached, tokens=tokens)


def refused(error: Exception) -> bool:
    """Whether an engine works but will not have a text that is no chat of its own template."""
    return isinstance(error, EngineReplyError) and error.refused


def refusing(role: Role, error: Exception) -> Finding:
    """Of an engine that takes chats only: what is examined by other texts stays unknown."""
    text = f"refuses raw texts: prefix cache not examined ({own_words(error)})"
    return Finding("note", role, text, check="prefix-cache")


def prefix_cache(
    role: Role, kind: str, first: float, second: float, cached: int | None, *, tokens: int
) -> list[Finding]:
    """What the same prompt, sent twice, says of a prefix cache.

    Args:
        role: whose it is.
        kind: of the server.
        first, second: seconds that each took.
        cached: tokens found again at the second time; None where the engine hides it.
        tokens: of the prompt, about.
    """
    check = "prefix-cache"
    if cached and 2 * cached < tokens:
        text = f"prefix cache finds only {cached} of {tokens} tokens again"
        hint = "sliding-window, hybrid and recurrent models keep little; full attention keeps all"
        return [Finding("warning", role, text, hint, check)]
    if cached:
        text = f"prefix cache on: {cached} tokens found again"
        return [Finding("ok", role, text, check=check)]
    if cached == 0:
        text = "prefix cache off: every hand-off computes the whole text again"
        return [Finding("warning", role, text, CACHE.get(kind, "switch it on"), check)]
    findings = []
    if kind in SHOW_CACHED:
        hidden = "hides its cached tokens, so replies cannot say them"
        findings.append(Finding("note", role, hidden, SHOW_CACHED[kind], check))
    times = f"{1000 * first:.0f} ms, then {1000 * second:.0f} ms"
    if first <= SLOW_S:
        text = f"prefix cache not proven: {times}, too fast to tell"
        return [Finding("note", role, text, check=check), *findings]
    if second < first / 2:
        return [Finding("ok", role, f"prefix cache on: {times}", check=check), *findings]
    text = f"prefix cache not proven: {times}"
    return [Finding("warning", role, text, CACHE.get(kind, ""), check), *findings]


async def _twice(engine: Engine, info: EngineInfo) -> tuple[float, float, int | None, int]:
    """Seconds of both, tokens found again at the second, and tokens of the prompt, about."""
    key = uuid.uuid4().hex
    # Its beginning is new, or an earlier start of this server would have left it in the cache.
    text = f"{key}: " + FILLER * 60
    ids = () if info.text_only else await engine.tokenize(text)
    ids = ids[: min(_PROMPT_TOKENS, max(1, info.context // 2))]
    if info.text_only:
        text = text[: info.context]
    request = SegmentRequest(
        ids, 1, Sampling(temperature=0.0), key, text=text if info.text_only else None
    )
    try:
        first, _ = await timed(engine, request)
        second, cached = await timed(engine, request)
    finally:
        await engine.release(key)
    return first, second, cached, len(ids) or len(text) // LETTERS


async def timed(engine: Engine, request: SegmentRequest) -> tuple[float, int | None]:
    """Seconds that a request takes, and its cached prompt tokens; None where they are hidden."""
    began = time.monotonic()
    cached: int | None = None
    async with aclosing(engine.stream(request)) as stream:
        async for delta in stream:
            cached = delta.cached if delta.cached is not None else cached
    return time.monotonic() - began, cached
