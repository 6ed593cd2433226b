"""Engines that anybody may have written: their mistakes are one line of ours, and end no text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest

from relaygen import (
    Conversation,
    EngineError,
    EngineReplyError,
    EngineUnreachableError,
    Generation,
    Limits,
    Message,
    Relay,
    UsageError,
)
from relaygen._guarded import Guarded, check_engine
from relaygen._hints import HintIds
from relaygen._types import Delta, EngineInfo, Piece, Role, Sampling, SegmentRequest
from relaygen.engines.scripted import ScriptedEngine, ScriptedTokenizer
from relaygen.policies import HandOff, LargeOnly, RelayPolicy, Stay
from relaygen.relay import Generating

from .support import CUES, PLAIN, THINKING, run, task

RELAY = RelayPolicy.of(CUES)
ENCODE = ScriptedTokenizer().encode
WORD = Piece(ENCODE("x")[0], b"x")

Stream = Callable[[SegmentRequest], Any]


class Streaming(ScriptedEngine):
    """Its stream is the one it was given."""

    def __init__(self, made: Stream, script: str = PLAIN) -> None:
        super().__init__(script)
        self.made = made

    def stream(self, request: SegmentRequest) -> Any:
        self.requests.append(request)
        return self.made(request)


class Broken(ScriptedEngine):
    """Raises something of its own wherever it is told to."""

    def __init__(self, *methods: str, script: str = PLAIN) -> None:
        super().__init__(script)
        self.methods = methods

    def breaks(self, method: str) -> None:
        if method in self.methods:
            raise KeyError(method)

    async def info(self) -> EngineInfo:
        self.breaks("info")
        return await super().info()

    async def render(self, conversation: Conversation) -> Any:
        self.breaks("render")
        return await super().render(conversation)

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        self.breaks("tokenize")
        return await super().tokenize(text, special=special)

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        async for delta in super().stream(request):
            yield delta
            self.breaks("stream")

    async def release(self, session: str) -> None:
        await super().release(session)
        self.breaks("release")

    async def aclose(self) -> None:
        self.breaks("aclose")


async def nothing(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
    return
    yield


async def no_delta(request: SegmentRequest) -> AsyncGenerator[Any, None]:
    yield WORD


async def no_pieces(request: SegmentRequest) -> AsyncGenerator[Any, None]:
    yield Delta(None)  # type: ignore[arg-type]


async def text_for_bytes(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
    yield Delta((Piece(1, "x"),))  # type: ignore[arg-type]


async def no_piece(request: SegmentRequest) -> AsyncGenerator[Any, None]:
    yield Delta((b"x",))  # type: ignore[arg-type]


async def no_id(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
    yield Delta((Piece([1], b"x"),))  # type: ignore[arg-type]


async def negative_id(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
    yield Delta((Piece(-1, b"x"),))


async def no_such_end(request: SegmentRequest) -> AsyncGenerator[Any, None]:
    yield Delta(end="stop")  # type: ignore[arg-type]


async def not_a_generator(request: SegmentRequest) -> Delta:
    return Delta(end="turn")


def not_async(request: SegmentRequest) -> Any:
    yield Delta(end="turn")


def raises_at_once(request: SegmentRequest) -> Any:
    raise KeyError("at once")


def returns_nothing(request: SegmentRequest) -> None:
    return None


BAD: dict[Stream, str] = {
    nothing: "the stream stopped without a finish reason",
    no_delta: "its stream gave a Piece, not a Delta",
    no_pieces: "its stream raised TypeError: object of type 'NoneType' has no len()",
    text_for_bytes: "its stream brought what is no piece: Piece(id=1, data='x', top=())",
    no_piece: "its stream brought what is no piece: b'x'",
    no_id: "its stream brought what is no piece: Piece(id=[1], data=b'x', top=())",
    negative_id: "its stream brought what is no piece: Piece(id=-1, data=b'x', top=())",
    no_such_end: "its stream ended with 'stop', which is none of turn, length, context, hint",
    not_a_generator: "its stream gave a coroutine, not an async generator",
    not_async: "its stream gave a generator, not an async generator",
    raises_at_once: "its stream raised KeyError: 'at once' (test_guarded.py, line ",
    returns_nothing: "its stream gave a NoneType, not an async generator",
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("made", BAD, ids=lambda made: made.__name__)
def test_a_stream_that_is_none_is_an_error_of_one_line(made: Stream) -> None:
    large = Streaming(made)
    with pytest.raises(EngineError) as caught:
        run(LargeOnly(), PLAIN, large=large)
    said = str(caught.value)
    assert said.startswith(f"large engine: {BAD[made]}")
    assert "\n" not in said
    assert len(large.released) == 1


@pytest.mark.parametrize("made", BAD, ids=lambda made: made.__name__)
def test_a_small_one_like_that_ends_no_text(made: Stream) -> None:
    small = Streaming(made)
    result = run(RELAY, THINKING, small=small)
    assert result.generation.text == THINKING
    assert any(BAD[made] in note for note in result.generation.notes)
    assert len(small.released) == 1


@pytest.mark.parametrize("method", ["info", "render", "tokenize", "stream"])
def test_what_an_engine_raises_is_one_line_that_names_the_place(method: str) -> None:
    large = Broken(method, script=THINKING)
    with pytest.raises(EngineError) as caught:
        run(LargeOnly(), THINKING, large=large)
    assert str(caught.value).startswith(
        f"large engine: its {method} raised KeyError: '{method}' (test_guarded.py, line "
    )
    assert isinstance(caught.value.__cause__, KeyError)
    assert "RELAYGEN_DEBUG" in caught.value.hint
    assert len(large.released) == 1


@pytest.mark.parametrize("method", ["info", "render", "tokenize", "stream"])
def test_what_the_small_engine_raises_ends_no_text(method: str) -> None:
    small = Broken(method, script=THINKING)
    small._vocabulary = "another"  # so that it renders and tokenizes
    result = run(RELAY, THINKING, small=small)
    assert result.generation.text == THINKING
    assert any(f"its {method} raised KeyError" in note for note in result.generation.notes)


def test_our_own_errors_stay_what_they_are() -> None:
    def made(request: SegmentRequest) -> Any:
        raise EngineUnreachableError("gone", hint="start it")

    with pytest.raises(EngineUnreachableError, match="large engine: gone") as caught:
        run(LargeOnly(), PLAIN, large=Streaming(made))
    assert caught.value.hint == "start it"


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("info", None, "its info gave a NoneType, not EngineInfo"),
        ("info", EngineInfo("x", "many"), "its info gave a context of 'many' tokens"),  # type: ignore
        ("info", EngineInfo("x", 0), "its info gave a context of 0 tokens"),
        ("render", "text", "its render gave a str, not Prompt"),
        ("tokenize", "text", "its tokenize gave a str, not a tuple of ids"),
        ("tokenize", None, "its tokenize gave a NoneType, not a tuple of ids"),
    ],
)
def test_an_answer_of_another_kind(
    method: str, answer: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(*_: object, **__: object) -> object:
        return answer

    large = ScriptedEngine(THINKING)
    monkeypatch.setattr(large, method, wrong)
    with pytest.raises(EngineReplyError, match=f"large engine: {said}"):
        run(LargeOnly(), THINKING, large=large)


def test_bytes_are_ids() -> None:
    class Bytes(ScriptedEngine):
        async def tokenize(self, text: str, *, special: bool = False) -> Any:
            return text.encode()

    assert asyncio.run(Guarded(Bytes(), "large").tokenize("ab")) == (97, 98)


# What a stream may not do.


def test_an_engine_that_does_not_stop_is_stopped_at_the_limit() -> None:
    async def endless(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        while True:
            yield Delta((WORD, WORD, WORD))

    made = run(LargeOnly(), "", large=Streaming(endless), limits=Limits(max_tokens=20))
    assert made.generation.text == "x" * 20
    assert made.generation.finish == "length"


def test_an_engine_that_hides_its_tokens_is_not_cut_by_its_words() -> None:
    """A token such as ``);`` is several pieces there: the server counts tokens, we cannot."""

    async def words(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        for _ in range(request.max_tokens - 1):
            yield Delta((Piece(None, b")"), Piece(None, b";")))
        yield Delta((), "turn")

    large = Streaming(words)
    large._text_only = True
    made = run(LargeOnly(), "", large=large, limits=Limits(max_tokens=20))
    assert made.generation.text == ");" * 19
    assert made.generation.finish == "stop"


def test_nor_does_it_go_on_for_ever() -> None:
    async def endless(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        while True:
            yield Delta((Piece(None, b"x"),) * 7)

    large = Streaming(endless)
    large._text_only = True
    made = run(LargeOnly(), "", large=large, limits=Limits(max_tokens=20, max_repeats=0))
    assert made.generation.finish == "length"
    assert len(large.requests) == 1


def test_a_probe_of_an_engine_that_does_not_stop_comes_back() -> None:
    async def endless(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        while True:
            yield Delta((WORD,))

    asked = SegmentRequest((), 1, Sampling(), "s")

    async def all() -> list[Delta]:
        return [delta async for delta in Guarded(Streaming(endless), "small").stream(asked)]

    assert asyncio.run(all()) == [Delta((WORD,)), Delta((), "length")]


def test_a_second_end_is_no_text() -> None:
    async def goes_on(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        yield Delta((WORD,), "turn")
        yield Delta((WORD,), "turn")

    assert run(LargeOnly(), "", large=Streaming(goes_on)).generation.text == "x"


def test_a_stream_that_goes_on_behind_a_hint_is_an_error() -> None:
    """Only there it is read on: what came then would be in the context and not in the text."""

    async def goes_on(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        while True:
            yield Delta((WORD,), "hint")

    large = Streaming(goes_on)
    engines: dict[Role, Any] = {"large": large, "small": ScriptedEngine(PLAIN)}
    tables = {role: HintIds(engine) for role, engine in engines.items()}

    async def all() -> Generation:
        return await Generating(engines, task(RELAY, thinking=None), hints=tables).whole()

    with pytest.raises(EngineReplyError, match="went on behind its end"):
        asyncio.run(all())
    assert len(large.released) == 1


class Stubborn(ScriptedEngine):
    """Does not let itself be aborted."""

    async def stream(self, request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        deltas = super().stream(request)
        try:
            async for delta in deltas:
                yield delta
        except GeneratorExit:
            raise OSError("no way") from None


def test_a_stream_that_cannot_be_aborted_loses_no_text() -> None:
    made = run(RELAY, PLAIN, large=Stubborn(PLAIN), small=Stubborn(PLAIN))
    assert made.generation.text == PLAIN
    assert made.generation.usage.fallbacks == 0
    assert {note.partition(" (")[0] for note in made.generation.notes} == {
        f"the {role} engine's stream could not be closed: OSError: no way"
        for role in ("large", "small")
    }


def test_leaving_is_not_stopped_by_a_stream_that_cannot_be_aborted() -> None:
    engines: dict[Role, Any] = {"large": Stubborn(PLAIN), "small": Stubborn(PLAIN)}

    async def leave() -> None:
        events = Generating(engines, task(RELAY, thinking=None)).events()
        await anext(events)
        await events.aclose()

    asyncio.run(leave())
    assert all(len(engine.released) == 1 for engine in engines.values())
    assert len(engines["large"].requests) == 1


def test_a_cancelled_generation_ends_whatever_the_engine_raises() -> None:
    async def slow(request: SegmentRequest) -> AsyncGenerator[Delta, None]:
        try:
            yield Delta((WORD,))
            await asyncio.sleep(60)
        finally:
            raise OSError("no way")

    large, small = Streaming(slow), ScriptedEngine("x")

    async def cancelled() -> None:
        job = task(RELAY, thinking=None, rescue=True)
        generating = Generating({"large": large, "small": small}, job)
        running = asyncio.ensure_future(generating.whole())
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.wait({running}, timeout=10)
        assert running.done()
        if not running.cancelled():
            running.exception()

    asyncio.run(cancelled())
    assert len(large.released) == len(small.released) == 1


# The end.


def test_every_engine_is_released_whatever_one_raises() -> None:
    large, small = Broken("release"), Broken("release")
    with pytest.raises(KeyError, match="release"):
        run(RELAY, PLAIN, large=large, small=small)
    assert len(large.released) == len(small.released) == 1
    large = Broken("release", "stream")  # what came first says more
    with pytest.raises(EngineError, match="its stream raised KeyError"):
        run(RELAY, PLAIN, large=large, small=small)
    assert len(large.released) == 1
    assert len(small.released) == 2


def test_every_engine_is_closed_whatever_one_raises() -> None:
    class Counted(ScriptedEngine):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    small = Counted(PLAIN)
    pair = Relay(Broken("aclose"), small)
    assert pair.generate("?").answer == PLAIN
    assert pair._loop is not None
    thread = pair._loop._thread
    with pytest.raises(EngineError, match="large engine: its aclose raised KeyError"):
        pair.close()
    assert small.closed == 1
    assert not thread.is_alive()
    pair.close()


def test_every_engine_is_closed_whichever_error_of_ours_one_raises() -> None:
    class Refusing(ScriptedEngine):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1
            raise UsageError("not now")

    large, small = Refusing(), Refusing()
    with pytest.raises(UsageError, match="not now"):
        asyncio.run(Relay(large, small).aclose())
    assert (large.closed, small.closed) == (1, 1)


# What is no engine.


def test_what_is_no_engine_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"the large engine is of type dict, which lacks aclose, "):
        Relay({}, ScriptedEngine())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the small engine is the class ScriptedEngine") as caught:
        Relay(ScriptedEngine(), ScriptedEngine)  # type: ignore[arg-type]
    assert caught.value.hint == "make one of it: ScriptedEngine(…)"
    check_engine(ScriptedEngine(), "large")


def test_margins_of_an_engine_of_ones_own() -> None:
    class Hiding(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Piece:
            return replace(super()._piece(id, top), top=())

    with Relay(ScriptedEngine(PLAIN), Hiding(PLAIN), policy="margin:0.8:0.3") as pair:
        with pytest.raises(EngineError, match="no log-probabilities") as caught:
            pair.generate("?")
        assert "fill Piece.top" in caught.value.hint

    class Shares(ScriptedEngine):
        def _piece(self, id: int, top: int) -> Piece:
            return replace(super()._piece(id, top), top=((id, 0.9), (0, 0.1))[:top])

    with (
        Relay(ScriptedEngine(PLAIN), Shares(PLAIN), policy="margin:0.8:0.3") as pair,
        pytest.raises(EngineReplyError, match=r"^small engine: its candidates are not log-"),
    ):
        pair.generate("?")
    broken = Broken("stream")
    with (
        Relay(ScriptedEngine(PLAIN), broken, policy="margin:0.8:0.3") as pair,
        pytest.raises(EngineError, match="small engine: its stream raised KeyError"),
    ):
        pair.generate("?")
    assert len(broken.released) == 1


def test_hints_of_an_engine_whose_tokenizer_breaks() -> None:
    with (
        Relay(Broken("tokenize"), ScriptedEngine(PLAIN)) as pair,
        pytest.raises(EngineError, match="large engine: its tokenize raised KeyError"),
    ):
        pair.generate([Message("user", "?")])


def test_a_policy_that_counts_on_an_engine_that_breaks() -> None:
    """Errors of the policy and of the engine are told apart."""

    class Counting(RelayPolicy):
        def start(self, start: Any) -> Any:
            class Session:
                def begin(self, *_: Any) -> None:
                    pass

                def feed(self, token: Any) -> Any:
                    return HandOff(token.index, "delegate", "x") if token.index == 2 else Stay()

                def probed(self, piece: Any) -> Any:
                    return Stay()

                def answer(self, on_duty: Role) -> Role:
                    return on_duty

            return Session()

    made = run(Counting(RELAY.cues), PLAIN, small=Broken("stream"))
    assert made.generation.text == PLAIN
    assert "small engine: its stream raised" in made.generation.notes[0]
