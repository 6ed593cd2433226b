"""The Python API: one object for a pair, sync and async."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ._errors import EngineError, EngineUnreachableError, RelayGenError, UsageError
from ._events import Event
from ._guarded import Guarded, check_engine
from ._hints import HintIds
from ._pair import EngineSpec, SpeculationSpec, make_engine, speculation_of
from ._profile import Profile
from ._results import Generation
from ._sessions import check_policy
from ._sync import Iteration, LoopThread
from ._task import Limits, Task
from ._types import Conversation, Message, Role, Sampling
from .engines.base import Engine
from .policies.base import Policy
from .relay import Generating

T = TypeVar("T")

EMBEDDED_PROFILE = "embedded"
"""The profile of the default pair."""

Question = str | Sequence[Message] | Conversation
"""One user message, several turns, or a whole conversation with everything it has."""


class Relay:
    """A large and a small model that write one answer together.

    Args:
        large, small: an engine; the URL of a server; a GGUF path, a catalogue name or a hub
            id (these run embedded); ``module:function``, which makes an engine; None for the
            embedded default.
        profile: a shipped profile's name, a file, or a `Profile`.
        policy: a policy, or its name with an option, for example ``random:0.3``.
        ctx: tokens of context of an embedded engine, per conversation.
        threads: CPU threads of an embedded engine; None for all usable ones.
        ngl: layers of an embedded engine on the GPU.
        spec: speculative decoding of an embedded large model: ``draft`` (the small model guesses),
            ``ngram``, or a `Speculation`.
        small_spec: likewise of the small one, which has no smaller model to draft: ``ngram``.
        parallel: conversations whose cache an embedded engine keeps at once.

    Engines start with the first generation. Use it as a context manager (sync or async, not both),
    or call `close`.

    Raises:
        ProfileError, UsageError, ModelError, MissingExtraError: see each.
    """

    def __init__(
        self,
        large: EngineSpec = None,
        small: EngineSpec = None,
        *,
        profile: Profile | str | Path = EMBEDDED_PROFILE,
        policy: Policy | str = "relay",
        ctx: int = 4096,
        threads: int | None = None,
        ngl: int = 0,
        parallel: int = 1,
        spec: SpeculationSpec = None,
        small_spec: SpeculationSpec = None,
    ) -> None:
        from .profiles import load, own_policy_at

        self.profile = profile if isinstance(profile, Profile) else load(profile)
        if isinstance(policy, str):
            _, policy = own_policy_at(None, policy, self.profile)
        check_policy(policy)
        self.policy = policy
        asked: dict[Role, tuple[EngineSpec, SpeculationSpec]] = {
            "large": (large, spec),
            "small": (small, small_spec),
        }
        self.engines: Mapping[Role, Engine] = {
            role: make_engine(
                named,
                role,
                ctx=ctx,
                threads=threads,
                ngl=ngl,
                parallel=parallel,
                speculation=speculation_of(drafting, role, small),
            )
            for role, (named, drafting) in asked.items()
        }
        for role, engine in self.engines.items():
            check_engine(engine, role)
        self._hints = {role: HintIds(self._guarded(role)) for role in self.engines}
        self._checked: set[Role] = set()
        self._loop: LoopThread | None = None

    def _guarded(self, role: Role) -> Engine:
        return Guarded(self.engines[role], role)

    def task(
        self,
        question: Question,
        *,
        system: str | None = None,
        policy: Policy | str | None = None,
        sampling: Sampling | None = None,
        limits: Limits | None = None,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Task:
        """One generation's description, with this relay's profile as defaults.

        Args:
            question: the user's words, or a conversation.
            system: a system message in front of it.
            policy: instead of the relay's own.
            sampling: instead of the profile's.
            limits: token budgets.
            stop: strings that end the answer, or one.
            seed: makes it reproducible, as far as the engines are deterministic.
            template_kwargs: reach the chat template, for example ``enable_thinking``.
            more: further fields of `Task`, for example ``constraint`` or ``retries``.

        Raises:
            UsageError: a value is out of range or does not fit the profile.
        """
        from .profiles import make_policy, notes

        conversation = self._conversation(question, system, template_kwargs)
        if isinstance(policy, str):
            policy = make_policy(policy, self.profile)
        profile, policy = self.profile, self.policy if policy is None else policy
        check_policy(policy)
        return Task(
            conversation,
            policy,
            thinking=profile.marks,
            answer_role=profile.answer_role,
            sampling=sampling or profile.sampling,
            limits=limits or Limits(),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            seed=seed,
            notes=(*notes(profile, policy), *more.pop("notes", ())),
            **more,
        )

    def _conversation(
        self, question: Question, system: str | None, template_kwargs: Mapping[str, Any] | None
    ) -> Conversation:
        if isinstance(question, Conversation):
            conversation = question
        else:
            messages = [Message("user", question)] if isinstance(question, str) else list(question)
            if not messages:
                raise UsageError("the conversation has no message")
            conversation = Conversation(tuple(messages), self.profile.prefill)
        if system is not None:
            messages = [Message("system", system), *conversation.messages]
            conversation = replace(conversation, messages=tuple(messages))
        if template_kwargs is not None:
            conversation = replace(conversation, template_kwargs=dict(template_kwargs))
        try:
            "".join(message.content for message in conversation.messages).encode()
        except UnicodeEncodeError:
            raise UsageError("a message is not valid Unicode text") from None
        return conversation

    def generating(
        self, task: Task, *, key: str | None = None, compare_templates: bool = True
    ) -> Generating:
        """A generation that has not started; `events` runs it, `snapshot` looks at it.

        `key` names it at the engines, in place of a random name.
        Without `compare_templates` the small model's own rendering of the conversation is not
        asked for where ids are shared.

        Raises:
            UsageError: the task's policy is none.
        """
        check_policy(task.policy)
        return Generating(
            {role: self.engines[role] for role in task.policy.roles},
            task,
            key=key,
            hints=self._hints if task.hints else None,
            compare_templates=compare_templates,
        )

    async def astream(self, question: Question, **options: Any) -> AsyncGenerator[Event, None]:
        """The events of one generation as they happen; options as in `task`.

        Raises:
            EngineError: an engine failed that nobody could stand in for.
        """
        task = self.task(question, **options)
        await self.check_margins(task.policy)
        async for event in self.generating(task).events():
            yield event

    async def agenerate(self, question: Question, **options: Any) -> Generation:
        """One generation, a conversation of its own; options as in `task`.

        Raises:
            EngineError: an engine failed that nobody could stand in for.
        """
        task = self.task(question, **options)
        await self.check_margins(task.policy)
        return await self.generating(task).whole()

    async def check_margins(self, policy: Policy) -> None:
        """Margins are checked, not believed: once per engine, for policies that read them.

        Raises:
            EngineError: the engine gives no margins, or scales them by temperature.
        """
        for role in policy.margins - self._checked:
            try:
                raw = await self._margins_of(self._guarded(role))
            except EngineUnreachableError:
                if role == "small" and "large" in policy.roles:
                    continue  # the large model goes on alone, and the result says so
                raise
            except EngineError as error:
                error.role = error.role or role
                raise
            if raw is None:
                raise EngineError(
                    "it gives no log-probabilities of two candidates, which this policy needs",
                    role=role,
                    hint="switch speculative decoding off on this engine, fill Piece.top where it "
                    "is your own, or choose another policy",
                )
            if not raw:
                raise EngineError(
                    "its log-probabilities change with temperature, so margins mean nothing",
                    role=role,
                    hint="SGLang: set SGLANG_RETURN_ORIGINAL_LOGPROB=1; "
                    "vLLM: --logprobs-mode raw_logprobs",
                )
            self._checked.add(role)

    async def _margins_of(self, engine: Engine) -> bool | None:
        if (await engine.info()).drafts:
            return None  # drafted tokens come without candidates, whatever the first one says
        from .engines._margins import margins_are_raw

        key = uuid.uuid4().hex
        prompt = await engine.render(Conversation((Message("user", "One and one?"),)))
        try:
            return await margins_are_raw(engine, prompt.ids, key)
        finally:
            await engine.release(key)

    def _thread(self) -> LoopThread:
        if self._loop is None:
            self._loop = LoopThread()
        return self._loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something async on this relay's own event loop."""
        return self._thread().call(coroutine)

    def generate(self, question: Question, **options: Any) -> Generation:
        """`agenerate` for callers without an event loop."""
        return self.run(self.agenerate(question, **options))

    def stream(self, question: Question, **options: Any) -> Iterator[Event]:
        """`astream` for callers without an event loop; closing the iterator aborts."""
        iteration: Iteration[Event] = self._thread().iterate(self.astream(question, **options))
        return iter(iteration)

    async def aclose(self) -> None:
        """Free the engines.

        Raises:
            EngineError: one could not be freed; the other one is.
        """
        failed: RelayGenError | None = None
        for role in self.engines:
            try:
                await self._guarded(role).aclose()
            except RelayGenError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Free the engines and the thread. Safe to call twice.

        Raises:
            EngineError: as `aclose`.
        """
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.call(self.aclose())
            finally:
                loop.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Relay:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
