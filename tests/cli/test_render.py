from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaygen import (
    EntropyPolicy,
    Generation,
    Inserted,
    LargeOnly,
    ModelUsage,
    OneShotPolicy,
    RandomPolicy,
    RelayPolicy,
    Segment,
    StageChanged,
    Text,
    Usage,
)
from relaygen._types import Writer
from relaygen._words import plural
from relaygen.cli._render import Out, Screen
from relaygen.cli._summary import (
    BLOCKS,
    LETTERS,
    Line,
    Shown,
    seconds_text,
    short_summary,
    strip,
    summary,
)
from relaygen.policies import Policy

from .playing import PLAIN, TAGS, THINKING, child

RELAY = RelayPolicy.of(["So"])
ESCAPES = re.compile(r"\x1b\[[0-9;]*[mK]")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def generation(
    *parts: tuple[Writer, int],
    usage: Usage | None = None,
    cue: str = "So",
    finish: str = "stop",
    notes: tuple[str, ...] = (),
) -> Generation:
    segments = tuple(
        Segment(role, "answer", "x" * tokens, (1,) * tokens, cue if role == "small" else "")
        for role, tokens in parts
    )
    if usage is None:
        sums = {role: sum(n for r, n in parts if r == role) for role, _ in parts}
        usage = Usage(
            large=ModelUsage(tokens=sums.get("large", 0)),
            small=ModelUsage(tokens=sums.get("small", 0)),
            inserted_tokens=sums.get("inserted", 0),
            handoffs=len(parts) - 1,
            seconds=1.0,
        )
    text = "".join(segment.text for segment in segments)
    return Generation(text, "", text, segments, usage, finish, notes)  # type: ignore[arg-type]


def timed(seconds: float, *, decode: float = 0.1) -> Usage:
    """10 large tokens at `decode` seconds and 10 small ones at half of it."""
    return Usage(
        large=ModelUsage(tokens=10, seconds=3.0, decode_seconds=9 * decode, decoded=9),
        small=ModelUsage(tokens=10, seconds=1.0, decode_seconds=9 * decode / 2, decoded=9),
        handoffs=1,
        seconds=seconds,
        first_token_seconds=0.1,
    )


def plain(lines: Iterable[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def said(made: Generation, shown: Shown | None = None, width: int = 200) -> str:
    return plain(summary(made, shown or Shown(RELAY, "embedded"), width=width, glyphs=LETTERS))


# The strip.


def drawn(made: Generation, width: int) -> str:
    return plain([strip(made, width=width, glyphs=LETTERS)])


def test_strip_shows_the_segments_in_proportion() -> None:
    made = generation(("large", 4), ("small", 2), ("large", 2))
    assert drawn(made, 8) == "LLLLSSLL"
    assert drawn(made, 16) == "LLLLLLLLSSSSLLLL"
    assert drawn(made, 4) == "LLSL"
    assert [mark for _, mark in strip(made, width=8, glyphs=BLOCKS)] == ["large", "small", "large"]


def test_an_insertion_is_never_lost() -> None:
    made = generation(("large", 500), ("inserted", 1), ("small", 499))
    assert drawn(made, 40).count("i") == 1
    assert drawn(made, 40).index("i") == 20


def test_short_segments_keep_their_share() -> None:
    parts: list[tuple[Writer, int]] = [("large", 7), ("small", 3)] * 100
    assert drawn(generation(*parts), 50).count("S") == 15


@given(
    st.lists(st.tuples(st.sampled_from(("large", "small")), st.integers(1, 60)), min_size=1),
    st.integers(1, 200),
)
def test_strip_is_as_wide_as_asked_and_its_shares_hold(
    parts: list[tuple[Writer, int]], width: int
) -> None:
    made = generation(*parts)
    line = drawn(made, width)
    assert len(line) == width
    share = made.usage.small_tokens / made.usage.completion_tokens
    assert abs(line.count("S") - share * width) < 1.0 + width / made.usage.completion_tokens


def test_blocks_differ_in_shape_and_letters_are_ascii() -> None:
    assert len(set(BLOCKS)) == 3
    assert "".join(LETTERS).isascii()
    assert [LETTERS.of(role) for role in ("large", "small", "inserted")] == list(LETTERS)


# The summary.


@pytest.mark.parametrize("width", [40, 41, 80, 200])
@pytest.mark.parametrize("cut", ["interrupted", "failed", None])
def test_nothing_is_wider_than_the_terminal(width: int, cut: str | None) -> None:
    usage = timed(123456.0)
    usage.large.discarded = usage.inserted_tokens = 99999
    usage.large.tokens, usage.small.tokens, usage.large.seconds = 123456, 98765, 99999.0
    usage.fallbacks = 3
    made = generation(
        ("large", 30),
        ("inserted", 2),
        ("small", 9),
        usage=usage,
        finish="length",
        notes=("x " * 90,),
    )
    shown = Shown(RELAY, "a-profile", (5.0, 1.0), on_cpu=True, cut=cut)  # type: ignore[arg-type]
    for line in [
        *summary(made, shown, width=width, glyphs=BLOCKS),
        *short_summary(made, width=width),
    ]:
        assert len(plain([line])) <= width


def test_the_numbers_of_each_model() -> None:
    usage = timed(4.0)
    usage.small.discarded = 2
    text = said(generation(("large", 10), ("small", 10), usage=usage))
    assert "L large       10         0  3.0 s 100 ms" in text
    assert "S small       10         2  1.0 s  50 ms" in text
    assert "inserted" not in text
    assert "utilization 50 % · 1 hand-off\n" in text
    assert "20 tokens in 4.0 s · 200 ms per token · first token after 0.10 s" in text


def test_what_was_drafted_is_said_of_models_that_tell() -> None:
    usage = timed(4.0)
    assert "drafted" not in said(generation(("large", 10), ("small", 10), usage=usage))
    usage.large.drafted, usage.large.accepted = 8, 6
    text = said(generation(("large", 10), ("small", 10), usage=usage))
    assert "large: 8 tokens drafted, 6 accepted (75 %)\n" in text
    assert "small: " not in text
    usage.large.drafted, usage.large.accepted = 0, 0
    assert "drafted" not in said(generation(("large", 10), ("small", 10), usage=usage))


def test_insertions_have_a_row() -> None:
    assert "\ni inserted     3\n" in said(generation(("large", 5), ("inserted", 3)))


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (2.0 / 0.98, "estimate: 0.98x, slower than the large model alone (2.0 s)"),
        (2.0, "estimate: 1.00x, as fast as the large model alone (2.0 s)"),
        (0.1, "estimate: 20.00x, faster than the large model alone (2.0 s)"),
        (2000.0, "estimate: 0.00x, slower than the large model alone (2.0 s)"),
    ],
)
def test_the_estimate_is_never_hidden_or_clipped(seconds: float, says: str) -> None:
    assert says in said(generation(("large", 10), ("small", 10), usage=timed(seconds)))


def test_too_little_for_an_estimate() -> None:
    made = generation(("large", 1), ("small", 9))
    text = said(made)
    assert "estimate for the large model alone: not enough large tokens to estimate" in text
    assert "ceiling" not in text


def test_the_ceiling_is_that_of_the_devices_there_are() -> None:
    made = generation(("large", 10), ("small", 10), usage=timed(2.0))
    assert "ceiling at this utilization on two devices: 1.33x" in said(made)
    reading = timed(2.0)
    reading.large.evaluated, reading.large.first_seconds = 10, 0.6
    made = generation(("large", 10), ("small", 10), usage=reading)
    assert "ceiling at this utilization on two devices: 1.33x" in said(made)
    shared = said(made, Shown(RELAY, "embedded", on_cpu=True))
    assert "ceiling at this utilization on one device: 0.95x" in shared


def test_one_model_is_not_compared_with_itself() -> None:
    text = said(generation(("large", 10)))
    assert "estimate" not in text
    assert "ceiling" not in text


def test_a_cpu_is_called_one() -> None:
    made = generation(("large", 10), ("small", 10))
    assert "share one CPU" in said(made, Shown(RELAY, "embedded", on_cpu=True))
    assert "share one CPU" not in said(made)
    assert "share one CPU" not in said(made, Shown(LargeOnly(), "embedded", on_cpu=True))


def test_a_small_model_that_ends_every_segment_at_once() -> None:
    usage = Usage(large=ModelUsage(tokens=9), handoffs=6)
    text = said(generation(("large", 9), usage=usage), Shown(RELAY, "embedded"))
    assert "cues fired, but the small model ended its turn at once each time" in text
    assert "no cue fired" not in text


def test_money_saved_and_lost() -> None:
    made = generation(("large", 10), ("small", 10))
    saved = said(made, Shown(RELAY, "embedded", (10.0, 1.0)))
    assert "saved 0.000090 (45 %) against the large model alone, at these prices" in saved
    assert "paid 0.000090 (450 %) more" in said(made, Shown(RELAY, "embedded", (1.0, 10.0)))


@pytest.mark.parametrize(
    ("policy", "parts", "cue", "says"),
    [
        (RELAY, [("large", 9)], "", "no cue fired: the large model wrote everything"),
        (OneShotPolicy(), [("large", 9)], "", "no cue fired: the large model wrote everything"),
        (RELAY, [("large", 9), ("small", 9)], "", "the small model wrote in the answer only"),
        (RandomPolicy(0.1), [("large", 9)], "", "no sentence was handed to the small model"),
        (RELAY, [("large", 9), ("small", 9)], "So", None),
        (RandomPolicy(0.1), [("large", 9), ("small", 9)], "", None),
        (LargeOnly(), [("large", 9)], "", None),
    ],
)
def test_where_no_cue_fired_it_says_so(
    policy: Policy, parts: list[tuple[Writer, int]], cue: str, says: str | None
) -> None:
    text = said(generation(*parts, cue=cue), Shown(policy, "mine"))
    if says is None:
        assert "no cue" not in text
        assert "no sentence" not in text
    else:
        assert says in text
    if says and policy.name != "random":
        assert "relaygen profile show mine lists the cues" in text
        assert f"--policy {'one-shot' if policy is RELAY else 'relay'}" in text


def test_where_a_small_model_that_leads_wrote_everything_it_says_so() -> None:
    shown = Shown(EntropyPolicy(), "mine")
    assert "the small model wrote everything" in said(generation(("small", 9)), shown)
    assert "wrote everything" not in said(generation(("small", 9), ("large", 9)), shown)


def test_where_the_small_model_failed_no_cue_is_blamed() -> None:
    made = generation(("large", 9), cue="")
    made.usage.fallbacks, made.usage.handoffs = 1, 2
    assert "no cue" not in said(made)


def test_how_it_ended_and_notes() -> None:
    parts: list[tuple[Writer, int]] = [("large", 9)]
    assert "--max-tokens" in said(generation(*parts, finish="length"))
    assert "in circles" in said(generation(*parts, finish="repetition"))
    cut = said(generation(*parts, finish="cancelled"), Shown(RELAY, "p", cut="interrupted"))
    assert cut.startswith("interrupted: this is what was written until then\n")
    assert "no cue" not in cut
    assert said(generation(*parts, notes=("one", "two"))).endswith("note: one\nnote: two")
    usage = timed(1.0)
    usage.fallbacks = 2
    assert "2 fallbacks: the small" in said(generation(("large", 10), usage=usage))


def test_nothing_was_written() -> None:
    assert said(generation()) == "no token was written"


def test_an_aborted_models_time_is_not_called_zero() -> None:
    assert re.search(r"L large +9 +0 +– +–\n", said(generation(("large", 9))))
    assert re.search(r"S small +0 +0 0.00 s +–\n", said(generation(("large", 9))))


def test_short_summary() -> None:
    made = generation(("large", 10), ("small", 10), usage=timed(1.0), notes=("careful",))
    made.usage.fallbacks = 1
    assert plain(short_summary(made, width=200)) == (
        "10 large + 10 small tokens · utilization 50 % · 1 hand-off · 1.0 s · estimate 2.00x, "
        "faster"
        " · 1 fallback\nnote: careful"
    )
    assert "utilization" not in plain(short_summary(generation(), width=200))


def test_no_line_ends_or_begins_with_a_separator() -> None:
    made = generation(("large", 10), ("small", 10), usage=timed(1.0))
    for width in range(40, 100):
        for line in plain(short_summary(made, width=width)).splitlines():
            assert line.strip("· ") == line.strip()


def test_words_for_numbers() -> None:
    assert [seconds_text(s) for s in (0, 0.044, 1, 8.24, 99.94, 123.4)] == [
        "0.00 s",
        "0.04 s",
        "1.0 s",
        "8.2 s",
        "99.9 s",
        "123 s",
    ]
    assert [plural(n, "turn") for n in (0, 1, 2)] == ["0 turns", "1 turn", "2 turns"]


# The screen.


def codes(text: str) -> list[str]:
    return re.findall(r"\x1b\[([0-9;]*)m", text)


def test_colours_by_writer_each_piece_on_its_own() -> None:
    out = Terminal()
    screen = Screen(out=out, err=Terminal())
    for role in ("large", "small", "large"):
        screen.show(Text("[b]x[/b]", role, "answer"))
    large, small = "38;5;98", "3;38;5;30"
    assert codes(out.getvalue()) == [large, "0", small, "0", large, "0"]
    assert ESCAPES.sub("", out.getvalue()) == "[b]x[/b]" * 3


def luminance(colour: int) -> float:
    """Relative luminance of one of the 216 cube colours, as WCAG defines it."""
    levels = (0, 95, 135, 175, 215, 255)
    red, green, blue = (levels[(colour - 16) // step % 6] / 255 for step in (36, 6, 1))
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_are_readable_on_white_and_on_black() -> None:
    out = Terminal()
    Out(out).lines([tuple((role, role) for role in ("large", "small", "inserted"))])
    colours = [int(number) for number in re.findall(r"38;5;(\d+)m", out.getvalue())]
    assert len(set(colours)) == 3
    for colour in colours:
        assert 1.05 / (luminance(colour) + 0.05) > 3.5
        assert (luminance(colour) + 0.05) / 0.05 > 3.5


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_when_a_terminal_has_colours(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    out = Out(stream)
    out.write("x", "small")
    assert ("\x1b" in stream.getvalue()) == coloured
    assert out.glyphs == (BLOCKS if coloured else LETTERS)


def test_what_is_no_terminal_is_plain_unless_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    Out(stream).write("x", "small")
    assert stream.getvalue() == "x"
    monkeypatch.setenv("FORCE_COLOR", "1")
    Out(stream).write("y", "small")
    assert codes(stream.getvalue())
    assert not Out(stream).terminal


def test_sixteen_colours_leave_most_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    out = Out(stream)
    out.write("l", "large")
    out.write("s", "small")
    assert stream.getvalue() == "l\x1b[3;35ms\x1b[0m"


def test_control_characters_are_not_obeyed_by_a_terminal() -> None:
    text = "a\x1b[31mb\x07\r\x9b2J\tc\nd"
    terminal, pipe = Terminal(), io.StringIO()
    Out(terminal).write(text)
    Out(pipe).write(text)
    assert terminal.getvalue() == "a\ufffd[31mb\ufffd\ufffd\ufffd2J\tc\nd"
    assert pipe.getvalue() == text


def test_an_encoding_without_blocks() -> None:
    class Ascii(Terminal):
        encoding = "ascii"

    stream = Ascii()
    out = Out(stream)
    out.write("x – y")
    assert stream.getvalue() == "x ? y"
    assert out.glyphs == LETTERS


def test_reasoning_and_answer_part_on_one_terminal() -> None:
    log: list[str] = []

    class Shared(Terminal):
        def write(self, text: str) -> int:
            log.append(text)
            return len(text)

    screen = Screen(out=Shared(), err=Shared())
    screen.show(Text("Hm.", "large", "reasoning"))
    screen.show(Inserted("end_of_thinking", "\n</think>\n\n", 4, "budget"))
    screen.show(StageChanged("answer", 5))
    screen.show(Text("Yes", "small", "answer"))
    screen.end()
    screen.end()
    assert ESCAPES.sub("", "".join(log)) == "Hm.\n</think>\n\nYes\n"


def test_reasoning_in_a_pipe_is_exact() -> None:
    out, err = io.StringIO(), io.StringIO()
    with Screen(out=out, err=err) as screen:
        screen.show(Text("Hm.", "large", "reasoning"))
        screen.show(Inserted("end_of_thinking", "\n</think>\n\n", 4, "budget"))
        screen.show(StageChanged("answer", 5))
        screen.show(Text("Yes\n", "small", "answer"))
    assert (out.getvalue(), err.getvalue()) == ("Yes\n", "Hm.\n")


def test_reasoning_alone_ends_its_line() -> None:
    err = io.StringIO()
    with Screen(out=io.StringIO(), err=err) as screen:
        screen.show(Text("Hm", "large", "reasoning"))
    assert err.getvalue() == "Hm\n"


def test_hidden_reasoning_and_hidden_text() -> None:
    out, err = io.StringIO(), io.StringIO()
    quiet = Screen(out=out, err=err, reasoning=False)
    silent = Screen(out=out, err=err, answer=False)
    for screen, stage in itertools.product((quiet, silent), ("reasoning", "answer")):
        screen.show(Text(stage, "large", stage))  # type: ignore[arg-type]
    assert (out.getvalue(), err.getvalue()) == ("answer", "")


def test_a_status_goes_when_text_comes() -> None:
    err = Terminal()
    screen = Screen(out=io.StringIO(), err=err)
    screen.status("starting …")
    screen.status("reading …")
    screen.show(Text("x", "large", "answer"))
    assert err.getvalue().count("\r\x1b[K") == 2
    assert err.getvalue().endswith("\r\x1b[K")
    pipe = io.StringIO()
    Screen(out=io.StringIO(), err=pipe).status("starting …")
    quiet = Terminal()
    Screen(out=io.StringIO(), err=quiet, status=False).status("starting …")
    assert (pipe.getvalue(), quiet.getvalue()) == ("", "")


def test_a_status_of_hidden_text_says_that_it_is_written() -> None:
    err = Terminal()
    screen = Screen(out=io.StringIO(), err=err, answer=False)
    for _ in range(3):
        screen.show(Text("x", "large", "answer"))
    assert err.getvalue().count("writing …") == 1


# Real terminals.


def test_a_real_terminal_of_40_columns() -> None:
    started = child("run", *TAGS, "?", script=THINKING, columns=40)
    assert started.end() == 0
    text = started.text
    assert "\x1b[38;5;98m" in text
    assert "\x1b[3;38;5;30m" in text
    shown = ESCAPES.sub("", text)
    before, _, after = shown.partition("So be it.\n\n")
    assert before.endswith("Done.\n\nThe sum is three. ")
    lines = after.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert len(lines[0]) == 40
    assert set(lines[0]) <= set(BLOCKS)


def test_no_color_on_a_real_terminal() -> None:
    started = child("run", "--quiet", "?", columns=80, env={"NO_COLOR": "1"})
    assert started.end() == 0
    assert started.text == PLAIN
    loud = child("run", "?", columns=80, env={"NO_COLOR": "1"})
    assert loud.end() == 0
    assert not codes(loud.text)
    assert re.search(r"^L+S+[LS]+$", loud.text, re.MULTILINE)


def test_forced_colour_in_a_pipe() -> None:
    started = child("run", "--quiet", "?", env={"FORCE_COLOR": "1"})
    assert started.end() == 0
    assert codes(started.text)
    assert ESCAPES.sub("", started.text) == PLAIN
