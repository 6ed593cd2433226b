"""Checks that may fail: each failure becomes a finding, and who is gone is asked no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from .._checks import Finding, advice, own_words
from .._errors import ContextLengthError, EngineUnreachableError
from .._flags import longer_context
from .._types import Role
from ._report import Report

LOG = "look into the engine's log"
_LEAST_CONTEXT = 4096
"""What a short chat and its thinking need."""

Work = Callable[[Role], Awaitable[None]]


class TooLong(EngineUnreachableError):
    """A check was given up. Where its engine answers still, that is slow and did not fail."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no end within {seconds:g} s", hint=f"it hangs, or is slow: {LOG}")


class Attempts:
    """Where findings go, and what goes wrong on the way to them.

    Args:
        report: gets the findings.
        patience: seconds after which a check of this role is given up.
        again: asks an engine for as little as can be, to see whether it answers still.

    Attributes:
        gone: who does not answer any more.
    """

    def __init__(self, report: Report, patience: Mapping[Role, float], again: Work) -> None:
        self._report = report
        self._patience = patience
        self._again = again
        self.gone: set[Role] = set()

    def find(self, *findings: Finding) -> None:
        """Each once: three answers may fail alike."""
        known = self._report.findings
        for each in findings:
            if each not in known:
                known.append(each)

    async def note(self, check: str, role: Role, work: Work) -> None:
        """Do a check. Whatever fails is a finding."""
        if role in self.gone:
            return
        error = await self._failure(role, work)
        if error is not None:
            await self.failed(check, role, error)

    async def failed(self, check: str, role: Role, error: Exception) -> None:
        """A check failed, the first of an engine being ``reachable``."""
        words, first = own_words(error), check == "reachable"
        if isinstance(error, ContextLengthError):
            if first:
                self.gone.add(role)
            hint = longer_context(self._report.infos[role].kind, _LEAST_CONTEXT)
            self.find(Finding("error", role, words, hint, "context"))
        elif isinstance(error, EngineUnreachableError) and (first or await self._silent(role)):
            self.gone.add(role)
            text = f"does not answer: {words}"
            self.find(Finding("error", role, text, error.hint, "reachable"))
        elif isinstance(error, TooLong):
            self.find(Finding("warning", role, f"not examined: {words}", error.hint, check))
        else:
            self.find(Finding("error", role, f"failed: {words}", advice(error) or LOG, check))

    async def _silent(self, role: Role) -> bool:
        """Whether an engine whose connection broke does not answer the next request either."""
        return isinstance(await self._failure(role, self._again), EngineUnreachableError)

    async def _failure(self, role: Role, work: Work) -> Exception | None:
        """What went wrong, if something did; somebody's own engine may raise what it likes."""

        async def tried() -> Exception | None:
            try:
                await work(role)
            except Exception as error:
                return error
            return None

        try:
            return await asyncio.wait_for(tried(), self._patience[role])
        except asyncio.TimeoutError:
            return TooLong(self._patience[role])
