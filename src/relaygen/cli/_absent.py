"""Stands for the model that a piece of work does not ask, so that nobody fetches or starts it."""

from __future__ import annotations

from typing import NoReturn

from relaygen._types import Conversation, EngineInfo, Prompt, Role, SegmentRequest


class Absent:
    """An engine that must not be asked anything."""

    def __init__(self, role: Role) -> None:
        self._role = role

    async def info(self) -> EngineInfo:
        """Not to be asked."""
        self._refuse()

    async def render(self, conversation: Conversation) -> Prompt:
        """Not to be asked."""
        self._refuse()

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Not to be asked."""
        self._refuse()

    def stream(self, request: SegmentRequest) -> NoReturn:
        """Not to be asked."""
        self._refuse()

    async def release(self, session: str) -> None:
        """There is none."""

    async def aclose(self) -> None:
        """There is nothing to close."""

    def _refuse(self) -> NoReturn:
        raise AssertionError(f"this work has no {self._role} model")
