"""Planned failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from .._errors import UsageError

FailureKind = Literal["reset", "stall", "garbage", "error", "end", "http500", "slow"]

SLOWDOWN = 10.0
KINDS: Mapping[FailureKind, str] = {
    "reset": "The connection breaks.",
    "stall": "Nothing more comes.",
    "garbage": "The next token's event is replaced by bytes that are none.",
    "error": "An error event, and the end.",
    "end": "The reply ends without a finish reason.",
    "http500": "No stream at all, whatever TOKEN is.",
    "slow": f"The rest takes {SLOWDOWN:g} times as long.",
}
"""What happens, by kind."""
GARBAGE = b'data: \xff\xfe\x00{"id":\x80\x81\xfe,,]\n\n'


@dataclass(frozen=True, slots=True)
class Failure:
    """What goes wrong, and when.

    Attributes:
        kind: what.
        token: after how many tokens of the request; ``http500`` does not look at it.
        request: in which generation, counted from 0 since the engine's start; None: any.
        session: in which session's (the ``x-session-id`` header's) requests; None: any.
        count: how many requests it befalls, each once; None: all.

    Raises:
        UsageError: a value makes no sense.
    """

    kind: FailureKind
    token: int = 0
    request: int | None = None
    session: str | None = None
    count: int | None = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(
                f"there is no failure {self.kind!r}", hint=f"failures: {', '.join(KINDS)}"
            )
        for name in ("token", "request", "count"):
            value = getattr(self, name)
            if value is None and name != "token":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"{name} must be a whole number of at least 0, not {value!r}")
        if self.session is not None and not isinstance(self.session, str):
            raise UsageError(f"session must be a text, not {self.session!r}")

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Failure:
        """From JSON.

        Raises:
            UsageError: something is missing or unknown.
        """
        unknown = set(value) - {field.name for field in fields(cls)}
        if unknown or "kind" not in value:
            wrong = f"{min(unknown)!r} is unknown" if unknown else "kind is missing"
            raise UsageError(f"this is no failure: {wrong}")
        return cls(**value)

    @classmethod
    def parse(cls, spec: str) -> Failure:
        """From ``KIND[:TOKEN[:REQUEST]]``.

        Raises:
            UsageError: it is none.
        """
        kind, *numbers = spec.split(":")
        if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
            raise UsageError(
                f"{spec!r} is no failure", hint="KIND[:TOKEN[:REQUEST]], for example reset:12"
            )
        token, request, *_ = [*map(int, numbers), None, None]
        return cls(kind, token or 0, request)  # type: ignore[arg-type]  # it is checked


@dataclass(slots=True)
class _Planned:
    failure: Failure
    left: int | None


class FailurePlan:
    """The failures still to come."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []

    def add(self, failure: Failure) -> None:
        """One more; among those that match a request the first added comes first."""
        self._planned.append(_Planned(failure, failure.count))

    def clear(self) -> None:
        """None any more."""
        self._planned.clear()

    def take(self, request: int, session: str) -> Failure | None:
        """What befalls this request; give it back if it did not come to that."""
        for planned in self._planned:
            failure = planned.failure
            if planned.left == 0 or failure.request not in (None, request):
                continue
            if failure.session in (None, session):
                if planned.left is not None:
                    planned.left -= 1
                return failure
        return None

    def give_back(self, failure: Failure) -> None:
        """The request was over before the failure was due."""
        for planned in self._planned:
            if planned.failure is failure and planned.left is not None:
                planned.left += 1

    def pending(self) -> list[dict[str, Any]]:
        """As JSON values; ``left`` is how many requests it will still befall."""
        return [{**asdict(p.failure), "left": p.left} for p in self._planned if p.left != 0]
