"""The examination: what is asked of the engines, in which order."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from .. import _checks
from .._api import Relay
from .._checks import Finding, own_words
from .._errors import RelayGenError, UsageError
from .._progress import Clock, Step
from .._results import Generation
from .._task import Limits
from .._types import ROLES, Conversation, Message, Prompt, Role
from ..costs import Costs
from ..engines.embedded import EmbeddedEngine
from ..forecast import Setup
from ..policies import Policy
from . import _judge, _sample
from ._report import Answered, Report, Sample
from ._subject import Heard, Subject

T = TypeVar("T")

_TEXT, _TEXT_EMBEDDED = 600, 160
"""Tokens of the text by which caches are tested: some tens of a server's cache blocks; an embedded
engine's cache has no blocks, and a CPU takes seconds for 600."""
_WRITTEN, _ROUNDS, _QUESTIONS = 24, 3, 3
_CHECKS = 11
_PATIENCE_S, _LOAD_PATIENCE_S = 30.0, 600.0
_LOG = "look into the engine's log"
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
        self._thinks = False  # as the profile says; else a sample would mislead
        self._subjects: dict[Role, Subject] = {}
        self._prompts: dict[Role, Prompt] = {}
        self._written: dict[Role, list[Heard]] = {}

    async def steps(self) -> AsyncGenerator[Step, None]:
        """Examine; one item after each check. What an engine refuses is a finding.

        At the end, and when broken off, the engines are told to forget the texts.
        """
        report = self.report
        rounds = 1 if report.quick else _ROUNDS
        done = 0
        yield Step("doctor", done, _CHECKS)
        try:
            async with aclosing(self._short(rounds)) as checks:
                async for _ in checks:
                    done += 1
                    yield Step("doctor", done, _CHECKS)
            if len(report.infos) == 2:
                if self._shared is not None and not self._unsampled():
                    async with aclosing(self._sampled(self._shared)) as steps:
                        async for step in steps:
                            yield step
                self._gain()
                report.complete = True
        finally:
            for subject in self._subjects.values():  # where it was broken off
                await subject.release()

    async def _short(self, rounds: int) -> AsyncGenerator[None, None]:
        """Everything but the sample. One engine at a time: the two may share a machine."""
        report = self.report
        await self._meet()
        yield
        if len(report.infos) < 2:
            return
        for role in ROLES:
            await self._noting(role, "reachable", self._decoding(role, rounds))
            yield
        self._thinking()
        for role in ROLES:
            await self._noting(role, "margins", self._margins(role))
            yield
        for role in ROLES:
            await self._noting(role, "prefix-cache", self._prefix(role))
            yield
            await self._noting(role, "speed", self._speed(role, rounds))
            yield
            await self._noting(role, "rollback", self._rollback(role))
            await self._subjects[role].release()
            yield

    async def _noting(self, role: Role, check: str, work: Awaitable[None]) -> None:
        """Whatever fails is a finding, and the rest goes on."""
        try:
            await work
        except RelayGenError as error:
            text, hint = f"failed: {own_words(error)}", error.hint or _LOG
            self._find(Finding("error", role, text, hint, check))

    def _find(self, *findings: Finding) -> None:
        self.report.findings += findings

    async def aclose(self) -> None:
        """Free the engines."""
        await self._relay.aclose()

    # One check each.

    async def _meet(self) -> None:
        engines, report = self._relay.engines, self.report
        patience = _LOAD_PATIENCE_S if self._embedded else _PATIENCE_S
        infos, findings = await _checks.meet(engines, patience)
        self._find(*findings)
        report.infos = {
            role: replace(info, kind="embedded") if role in self._embedded else info
            for role, info in infos.items()
        }
        if len(infos) < 2:
            return
        self._find(*_checks.together(report.infos["large"], report.infos["small"]))
        self._find(*await self._templates())
        for role in ROLES:
            tokens = _TEXT_EMBEDDED if role in self._embedded else _TEXT
            self._subjects[role] = Subject(engines[role], infos[role], tokens=tokens)

    async def _templates(self) -> list[Finding]:
        infos = self.report.infos
        if not _checks.shared(infos):
            return [_judge.OWN_TEMPLATES]
        same = await _checks.same_template(self._relay.engines)
        return [] if same is None else [_judge.templates(same, infos["small"])]

    async def _decoding(self, role: Role, rounds: int) -> None:
        conversation = Conversation((Message("user", _ASKED),), self._relay.profile.prefill)
        prompt = await self._relay.engines[role].render(conversation)
        self._prompts[role] = prompt
        heard = await self._subjects[role].decoding(prompt, _WRITTEN, rounds)
        self._written[role] = heard
        drafted = any(each.drafted for each in heard)
        self._find(*_judge.capabilities(role, self.report.infos[role], drafted=drafted))

    def _thinking(self) -> None:
        heard = self._written.get("large")
        if not heard:
            return
        info, opening = self.report.infos["large"], self._prompts["large"].assistant
        finding = _judge.thinking(self._relay.profile, info, opening, heard[0].text)
        self._thinks = finding.level == "ok"
        self._find(finding)

    async def _margins(self, role: Role) -> None:
        if role not in self._prompts:
            return
        raw = await self._subjects[role].margins(self._prompts[role].ids)
        needed = role in self._relay.policy.margins
        self._find(_judge.margins(role, self.report.infos[role], raw, needed=needed))

    async def _prefix(self, role: Role) -> None:
        first, second = await self._subjects[role].prefix()
        kind, times = self.report.infos[role].kind, (first.whole_s, second.whole_s)
        self._find(*_checks.prefix_cache(role, kind, *times, second.cached))

    async def _speed(self, role: Role, rounds: int) -> None:
        told = [each.decode_ms for each in self._written.get(role, ()) if each.decode_ms]
        if not told:
            self._find(Finding("note", role, "it wrote too little to be timed", check="speed"))
            return
        found = await self._subjects[role].speed(rounds, statistics.median(told))
        self.report.speeds[role] = found
        self._find(_judge.speed(role, found))

    async def _rollback(self, role: Role) -> None:
        found = await self._subjects[role].rollback()
        self.report.rollbacks[role] = found
        self._find(_judge.rollback(role, found))

    # The sample, and what follows.

    def _unsampled(self) -> str:
        """Why no answers are sampled; "" where they are."""
        if self.report.quick:
            return "no answers sampled (--quick)"
        if self._shared is None:
            return f"policy {self.report.policy} decides by margins, which no sample tells"
        return "" if self._thinks else "no answers sampled before the thinking is right"

    async def _sampled(self, shared: Policy) -> AsyncGenerator[Step, None]:
        """The large model's answers: at once where it is a server, else one after the other."""
        relay, report = self._relay, self.report
        profile = relay.profile
        context = report.infos["large"].context
        limits = Limits(max_tokens=min(_LONGEST[profile.thinking], max(1, context * 3 // 4)))
        small = profile.marks is not None and profile.answer_role == "small"
        gate = asyncio.Semaphore(1 if "large" in self._embedded else _QUESTIONS)

        async def one(question: str) -> tuple[Answered, Generation]:
            async with gate:
                return await _sample.answered(
                    relay, question, shared, report.infos, limits=limits, small=small
                )

        running = [asyncio.ensure_future(one(each)) for each in _sample.questions(_QUESTIONS)]
        clock, names = Clock(len(running)), _sample.cue_names(relay.policy)
        found: list[tuple[Answered, Generation]] = []
        yield Step("answers", 0, len(running))
        try:
            for each in asyncio.as_completed(running):
                found.append(await each)
                report.sample = Sample([told for told, _ in found], names)
                yield Step("answers", len(found), len(running), clock.left(1))
        except RelayGenError as error:
            text = f"the sample failed: {own_words(error)}"
            self._find(Finding("error", "", text, error.hint or _LOG, "sample"))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if report.sample is not None:
            self._find(*_judge.cut([generation for _, generation in found], profile))
            self._find(*_judge.room(report.sample, report.infos))
            self._find(*_judge.cues(report.sample, relay.policy.name))
            self._find(_judge.answers(report.sample, profile))

    def _gain(self) -> None:
        report = self.report
        if len(report.speeds) < 2:
            return
        large, small = report.speeds["large"], report.speeds["small"]
        report.costs = costs = Costs(large.decode_ms, small.decode_ms, large.read_ms, small.read_ms)
        report.handoff_ms = (large.request_ms + small.request_ms) / 2
        hopeless = _judge.worth(costs)
        if hopeless:
            self._find(*hopeless)
            return
        sample = report.sample
        if sample is None:
            level = self._relay.profile.in_force
            expected = level.utilization if level is not None else None
            why = self._unsampled() or "the sample failed"
            self._find(_judge.unsampled(costs, expected, report.devices, why))
        elif sample.utilization < 1.0:
            setup = Setup(
                costs,
                sample.utilization,
                sample.handoffs_per_1000,
                report.handoff_ms,
                devices=report.devices,
            )
            report.forecast, findings = _judge.gain(setup, sample)
            self._find(*findings)
