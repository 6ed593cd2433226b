"""The examination: what is asked of the engines, in which order."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace

from .. import _checks
from .._api import Relay
from .._checks import Finding, advice, own_words
from .._errors import EngineError, EngineReplyError, MissingExtraError, RelayGenError, UsageError
from .._guarded import Guarded
from .._progress import Clock, Step
from .._results import Generation
from .._task import Limits
from .._types import ROLES, Conversation, Message, Prompt, Role
from ..engines.base import Engine
from ..engines.embedded import EmbeddedEngine
from ..forecast import Setup
from ..policies import Policy
from . import _judge, _sample
from ._attempts import LOG, Attempts
from ._report import Answered, Report, Sample
from ._subject import Heard, Subject, held_back
from ._verdict import missing

_TEXT, _TEXT_EMBEDDED = 600, 160
"""Tokens of the text by which caches are tested: some tens of a server's cache blocks; an embedded
engine's cache has no blocks, and a CPU takes seconds for 600."""
_WRITTEN, _ROUNDS, _QUESTIONS = 24, 3, 3
_CHECKS = 11
_PATIENCE_S, _LOAD_PATIENCE_S = 30.0, 600.0
_SERVER_S, _EMBEDDED_S = 180.0, 900.0
"""A check that takes longer is given up: engines themselves may have much more patience."""
_ASKED = "How much is 17 and 25?"
_LONGEST = {"none": 512, "tags": 4096}  # tokens of a sampled text, by thinking style


class Examination:
    """One look at a pair; iterate over `steps`, and `report` grows meanwhile.

    Args:
        relay: the pair, with the profile and policy in question.
        quick: sample no answers, and measure once.

    Raises:
        UsageError: the policy uses one model only.
    """

    def __init__(self, relay: Relay, *, quick: bool = False) -> None:
        policy, profile = relay.policy, relay.profile
        if len(policy.roles) < 2:
            raise UsageError(
                f"policy {policy.name} uses one model, so there is no relay to examine",
                hint="leave --policy out",
            )
        self._relay = relay
        self._engines = {role: Guarded(engine, role) for role, engine in relay.engines.items()}
        self._embedded: set[Role] = {
            role for role in ROLES if isinstance(relay.engines[role], EmbeddedEngine)
        }
        self.report = Report(
            profile.name,
            policy.name,
            profile.level,
            quick=quick,
            devices=1 if len(self._embedded) == 2 else 2,
        )
        self._shared = _sample.readable(policy)
        self._rounds = 1 if quick else _ROUNDS
        self._thinks = False  # as the profile says; else a sample would mislead
        self._attempts = Attempts(
            self.report,
            {role: _EMBEDDED_S if role in self._embedded else _SERVER_S for role in ROLES},
            self._ask,
        )
        self._texts: set[Role] = set()  # whose engine took a text of ours
        self._subjects: dict[Role, Subject] = {}
        self._prompts: dict[Role, Prompt] = {}
        self._written: dict[Role, list[Heard]] = {}
        self._decode_ms: dict[Role, float] = {}

    async def steps(self) -> AsyncGenerator[Step, None]:
        """Examine; one item after each check. What an engine refuses is a finding.

        At the end, and when broken off, the engines are told to forget the texts.
        """
        report = self.report
        done = 0
        yield Step("doctor", done, _CHECKS)
        try:
            async with aclosing(self._short()) as checks:
                async for _ in checks:
                    done += 1
                    yield Step("doctor", done, _CHECKS)
            if not missing(report):
                if self._shared is not None and not self._unsampled():
                    async with aclosing(self._sampled(self._shared)) as steps:
                        async for step in steps:
                            yield step
                self._gain()
                report.complete = not missing(report)
        finally:
            for role in self._subjects:  # where it was broken off
                await self._forget(role)

    async def _short(self) -> AsyncGenerator[None, None]:
        """Everything but the sample. One engine at a time: the two may share a machine."""
        report = self.report
        await self._meet()
        yield
        if len(report.infos) < 2:
            return
        for role in ROLES:
            await self._attempts.note("reachable", role, self._decoding)
            yield
        await self._attempts.note("thinking", "large", self._thinking)
        for role in ROLES:
            await self._attempts.note("margins", role, self._margins)
            yield
        for role in ROLES:
            await self._attempts.note("prefix-cache", role, self._prefix)
            yield
            await self._attempts.note("speed", role, self._speed)
            yield
            await self._attempts.note("rollback", role, self._rollback)
            await self._forget(role)
            yield

    async def _ask(self, role: Role) -> None:
        """For one token."""
        await self._subjects[role].decoding(self._prompts[role], 1, 1)

    async def _forget(self, role: Role) -> None:
        with suppress(Exception):  # somebody's own engine may raise what it should not
            await self._subjects[role].release()

    async def aclose(self) -> None:
        """Free the engines; one that fails to is a finding."""
        for role, engine in self._engines.items():
            try:
                await engine.aclose()
            except EngineError as error:
                text = f"fails when it is closed: {own_words(error)}"
                self._attempts.find(
                    Finding("warning", role, text, advice(error) or LOG, "capabilities")
                )

    # One check each.

    async def _meet(self) -> None:
        engines, report = self._relay.engines, self.report
        patience = _LOAD_PATIENCE_S if self._embedded else _PATIENCE_S
        infos, findings = await _checks.meet(engines, patience)
        self._attempts.find(*findings)
        report.infos = {
            role: replace(info, kind="embedded") if role in self._embedded else info
            for role, info in infos.items()
        }
        if len(infos) < 2:
            return
        self._attempts.find(*_checks.together(report.infos["large"], report.infos["small"]))
        self._attempts.find(*await self._templates())
        if self._twins():
            self._attempts.find(_judge.one_model(infos["large"], _place(engines["large"])))
        for role in ROLES:
            tokens = _TEXT_EMBEDDED if role in self._embedded else _TEXT
            self._subjects[role] = Subject(self._engines[role], infos[role], tokens=tokens)

    async def _templates(self) -> list[Finding]:
        infos = self.report.infos
        if not _checks.shared(infos):
            return [_judge.OWN_TEMPLATES]
        same = await _checks.same_template(self._relay.engines)
        return [] if same is None else [_judge.templates(same, infos["small"])]

    def _twins(self) -> bool:
        """Whether both roles are the same model at the same place."""
        engines, infos = self._relay.engines, self.report.infos
        place = _place(engines["large"])
        same = place is not None and place == _place(engines["small"])
        return same and infos["large"].model == infos["small"].model

    async def _decoding(self, role: Role) -> None:
        conversation = Conversation((Message("user", _ASKED),), self._relay.profile.prefill)
        prompt = await self._engines[role].render(conversation)
        self._prompts[role] = prompt
        subject = self._subjects[role]
        for _ in range(2):  # a busy machine may look like it once
            (one,) = await subject.decoding(prompt, 1, 1)
            heard = await subject.decoding(prompt, _WRITTEN, self._rounds)
            held = held_back(one, heard)
            if held is None:
                break
        if not any(each.text for each in heard):
            self._attempts.find(Finding("error", role, "writes nothing", LOG, "reachable"))
            return
        self._written[role] = heard
        told = [each.decode_ms for each in heard if each.decode_ms]
        if held is not None:
            self._attempts.find(_judge.held_back(role))
            told = [held]
        if told:
            self._decode_ms[role] = statistics.median(told)
        drafted = any(each.drafted for each in heard)
        self._attempts.find(*_judge.capabilities(role, self.report.infos[role], drafted=drafted))

    async def _thinking(self, role: Role) -> None:
        heard = self._written.get(role)
        if not heard:
            return
        info, opening = self.report.infos[role], self._prompts[role].assistant
        finding = _judge.thinking(self._relay.profile, info, opening, heard[0].text)
        self._thinks = finding.level == "ok"
        self._attempts.find(finding)

    async def _margins(self, role: Role) -> None:
        if role not in self._prompts:
            return
        raw = await self._subjects[role].margins(self._prompts[role].ids)
        needed = role in self._relay.policy.margins
        self._attempts.find(_judge.margins(role, self.report.infos[role], raw, needed=needed))

    async def _prefix(self, role: Role) -> None:
        subject, kind = self._subjects[role], self.report.infos[role].kind
        try:
            first, second = await subject.prefix()
        except EngineReplyError as error:
            if not _checks.refused(error):
                raise
            self._attempts.find(_checks.refusing(role, error))
            return
        self._texts.add(role)
        if subject.chats:
            text = "refuses raw texts: examined by a chat in its own template"
            self._attempts.find(Finding("note", role, text, check="prefix-cache"))
        times, found = (first.whole_s, second.whole_s), second.cached
        self._attempts.find(*_checks.prefix_cache(role, kind, *times, found, tokens=subject.size))

    async def _speed(self, role: Role) -> None:
        if role not in self._written:
            return
        decode_ms = self._decode_ms.get(role)
        if decode_ms is None:
            self._attempts.find(
                Finding("note", role, "it wrote too little to be timed", check="speed")
            )
            return
        if role not in self._texts:
            text = f"{decode_ms:.1f} ms per token, catch-up not examined"
            self._attempts.find(Finding("note", role, text, check="speed"))
            return
        found = await self._subjects[role].speed(self._rounds, decode_ms)
        self.report.speeds[role] = found
        self._attempts.find(_judge.speed(role, found))

    async def _rollback(self, role: Role) -> None:
        if role not in self._texts:
            return
        found = await self._subjects[role].rollback()
        self.report.rollbacks[role] = found
        self._attempts.find(_judge.rollback(role, found))

    # The sample, and what follows.

    def _unsampled(self) -> str:
        """Why no answers are sampled; "" where they are."""
        if self.report.quick:
            return "no answers sampled (--quick)"
        if self._twins():
            return "no answers of one model sampled"
        if self._shared is None:
            return f"policy {self.report.policy} decides by margins, which no sample tells"
        return "" if self._thinks else "no answers sampled before the thinking is right"

    async def _sampled(self, shared: Policy) -> AsyncGenerator[Step, None]:
        """The large model's answers: at once where it is a server, else one after the other."""
        relay, report = self._relay, self.report
        profile = relay.profile
        context = report.infos["large"].context
        limits = Limits(max_tokens=min(_LONGEST[profile.thinking], max(1, context * 3 // 4)))
        gate = asyncio.Semaphore(1 if "large" in self._embedded else _QUESTIONS)

        async def one(question: str) -> tuple[Answered, Generation] | None:
            """None where it failed, which is a finding then."""
            async with gate:
                try:
                    text = await _sample.written(relay, question, limits)
                except Exception as error:
                    await self._attempts.failed("sample", "large", error)
                    return None
                try:
                    told = await _sample.answered(text, profile, shared)
                except RelayGenError as error:  # a policy of one's own
                    self._attempts.find(
                        Finding("error", "", own_words(error), advice(error), "sample")
                    )
                    return None
                return replace(told, same=await self._agrees(text)), text.generation

        running = [asyncio.ensure_future(one(each)) for each in _sample.questions(_QUESTIONS)]
        clock, names = Clock(len(running)), _sample.cue_names(relay.policy)
        found: list[tuple[Answered, Generation]] = []
        yield Step("answers", 0, len(running))
        try:
            for each in asyncio.as_completed(running):
                result = await each
                if result is None:
                    break
                found.append(result)
                report.sample = Sample([told for told, _ in found], names)
                yield Step("answers", len(found), len(running), clock.left(1))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        sample = report.sample
        if sample is None:
            return
        if not sample.written:
            self._attempts.find(
                Finding("error", "large", "writes nothing in answer", LOG, "sample")
            )
            report.sample = None
            return
        self._attempts.find(*_judge.cut([generation for _, generation in found], profile))
        self._attempts.find(*_judge.room(sample, report.infos))
        self._attempts.find(*_judge.cues(sample, relay.policy.name))
        if not any(each.check == "answers" for each in report.findings):
            self._attempts.find(_judge.answers(sample, profile))

    async def _agrees(self, text: _sample.Written) -> bool | None:
        """Whether the small model answers likewise; None, too, where it is not to answer."""
        profile = self._relay.profile
        if (
            profile.marks is None
            or profile.answer_role != "small"
            or "small" in self._attempts.gone
        ):
            return None
        try:
            return await _sample.agrees(self._relay, text, self.report.infos)
        except MissingExtraError as error:
            what = f"answers not compared: {error}"
            self._attempts.find(Finding("note", "small", what, error.hint, "answers"))
        except Exception as error:
            await self._attempts.failed("answers", "small", error)
        return None

    def _gain(self) -> None:
        report, sample = self.report, self.report.sample
        if len(report.speeds) < 2 or self._twins():
            return
        length = (
            sample.text_tokens if sample else max(s.text_tokens for s in report.speeds.values())
        )
        report.costs, report.handoff_ms = _judge.handoff_costs(report.speeds, length)
        costs = report.costs
        hopeless = _judge.worth(costs)
        if hopeless:
            self._attempts.find(*hopeless)
        elif sample is None:
            level = self._relay.profile.in_force
            expected = level.utilization if level is not None else None
            why = self._unsampled() or "the sample failed"
            change = report.handoff_ms
            self._attempts.find(_judge.unsampled(costs, change, expected, report.devices, why))
        elif sample.utilization == 1.0:
            self._attempts.find(_judge.nothing_delegated(sample))
        else:
            setup = Setup(
                costs,
                sample.utilization,
                sample.handoffs_per_1000,
                report.handoff_ms,
                devices=report.devices,
            )
            report.forecast, findings = _judge.gain(setup, sample)
            self._attempts.find(*findings)


def _place(engine: Engine) -> object:
    """Where a model is: its server's address, or its file; None where an engine does not say."""
    return getattr(engine, "url", None) or getattr(engine, "path", None)
