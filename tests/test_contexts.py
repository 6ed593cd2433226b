"""Request contexts: shared ids, or text that crosses."""

from __future__ import annotations

import asyncio

from relaygen._contexts import Contexts
from relaygen._types import Piece, Prompt, Role
from relaygen.engines.scripted import ScriptedEngine, ScriptedTokenizer

ENGINE = ScriptedEngine("")


def ids(contexts: Contexts, role: str) -> tuple[int, ...]:
    return asyncio.run(contexts.ids(role, ENGINE))  # type: ignore[arg-type]


def test_shared_ids_are_one_list() -> None:
    contexts = Contexts({"large": Prompt((1, 2), "p")}, shared=True)
    contexts.write("large", Piece(3, b"a"), "a")
    contexts.write("small", Piece(4, b"b"), "b")
    contexts.insert("x", (9,))
    assert ids(contexts, "large") == ids(contexts, "small") == (1, 2, 3, 4, 9)
    assert contexts.size("small") == 5


def encoded(text: str) -> tuple[int, ...]:
    return asyncio.run(ENGINE.tokenize(text))


def test_only_new_text_crosses_between_vocabularies() -> None:
    contexts = Contexts({"large": Prompt((1,), "p"), "small": Prompt((2,), "q")}, shared=False)
    contexts.write("large", Piece(3, b" Thus"), " Thus")
    contexts.write("large", Piece(4, b" it"), " it")
    assert contexts.size("small") == 1 + len(" Thus it")
    contexts.write("small", Piece(9, "日".encode()), "日")
    assert contexts.size("large") == 3 + 3
    contexts = Contexts({"large": Prompt((1,), "p"), "small": Prompt((2,), "q")}, shared=False)
    contexts.write("large", Piece(3, b" Thus"), " Thus")
    contexts.write("large", Piece(4, b" it"), " it")
    assert ids(contexts, "small") == (2, *encoded(" Thus it"))
    contexts.write("small", Piece(5, b" is"), " is")
    assert ids(contexts, "small") == (2, *encoded(" Thus it"), 5)
    assert ids(contexts, "large") == (1, 3, 4, *encoded(" is"))


class _Listening(ScriptedEngine):
    def __init__(self) -> None:
        super().__init__("")
        self.asked: list[tuple[str, bool]] = []

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        self.asked.append((text, special))
        return await super().tokenize(text)


def test_markers_cross_as_special_tokens_and_words_never_do() -> None:
    contexts = Contexts({"large": Prompt((1,), ""), "small": Prompt((2,), "")}, shared=False)
    contexts.write("large", Piece(3, b" <|end|>"), " <|end|>")
    contexts.write("large", Piece(4, b"</think>"), "</think>", special=True)
    contexts.write("large", Piece(5, b"So"), "So")
    contexts.insert("</think>", (7,))
    engine = _Listening()
    asyncio.run(contexts.ids("small", engine))
    assert engine.asked == [
        (" <|end|>", False),
        ("</think>", True),
        ("So", False),
        ("</think>", True),
    ]
    own = _Listening()
    asyncio.run(contexts.ids("large", own))
    assert own.asked == [("</think>", True)]


def test_an_engine_that_hides_ids_is_sent_text() -> None:
    prompts: dict[Role, Prompt] = {"large": Prompt((1,), "<p>"), "small": Prompt((), "<q>")}
    contexts = Contexts(prompts, shared=False, text_only=["small"])
    contexts.write("large", Piece(7, b"Thus"), "Thus")
    contexts.write("small", Piece(None, b" so."), " so.")
    contexts.insert("</think>", ())
    assert contexts.text("small") == "<q>Thus so.</think>"
    assert contexts.text("large") is None
    assert asyncio.run(contexts.ids("small", ScriptedEngine())) == ()
    expected = (1, 7, *ScriptedTokenizer().encode(" so."), *ScriptedTokenizer().encode("</think>"))
    assert asyncio.run(contexts.ids("large", ScriptedEngine())) == expected


def test_the_size_of_a_text_is_estimated_from_its_bytes() -> None:
    contexts = Contexts({"large": Prompt((), "x" * 30)}, shared=True, text_only=["large"])
    assert contexts.size("large") == 10
    contexts.write("large", Piece(None, "é".encode() * 3), "é" * 3)
    assert contexts.size("large") == 12
