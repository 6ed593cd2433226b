from __future__ import annotations

import json
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relaygen import EngineUnreachableError, ModelNotFoundError
from relaygen.cli import _options, main
from relaygen.cli._options import PairOptions
from relaygen.engines.scripted import Failure, ScriptedEngine
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL
from relaygen.policies import LargeOnly
from relaygen.profiles import POLICIES, load

from .playing import PLAIN, TAGS, THINKING, child, command, environment, stage

REASONING = "Let me see. Now we add one and two. So it is three. Done.\n"
ANSWER = "The sum is three. So be it."


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def call(*args: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["run", *args], input=stdin)


def one_object(result: Result) -> dict[str, Any]:
    assert result.stdout.count("\n") == 1
    made = json.loads(result.stdout)
    assert isinstance(made, dict)
    return made


# Where things go.


def test_answer_on_stdout_reasoning_and_summary_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, THINKING)
    result = call(*TAGS, "1 + 2?")
    assert result.exit_code == 0
    assert result.stdout == ANSWER + "\n"
    assert result.stderr.startswith(REASONING)
    summary = result.stderr.removeprefix(REASONING)
    assert summary.startswith("\nL")
    assert "utilization" in summary
    assert "estimate" in summary


def test_without_thinking_all_is_the_answer_and_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN)
    result = call("1 + 2?")
    assert result.stdout == PLAIN
    assert "[bold]x[/bold]" in result.stdout
    assert ":smile:" in result.stdout
    assert "\x1b" not in result.output


def test_quiet_prints_the_answer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, THINKING)
    result = call(*TAGS, "--quiet", "?")
    assert (result.stdout, result.stderr) == (ANSWER + "\n", "")


def test_json_is_one_object_and_its_sums_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, THINKING.replace("three", "drei – 三"))
    result = call(*TAGS, "--json", "--seed", "7", "--policy", "random:0.5", "?")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "三" in result.stdout
    made = one_object(result)
    usage = made["usage"]
    assert "".join(segment["text"] for segment in made["segments"]) == made["text"]
    assert (
        usage["large_tokens"] + usage["small_tokens"] + usage["inserted_tokens"]
        == usage["completion_tokens"]
        == sum(segment["tokens"] for segment in made["segments"])
    )
    assert made["reasoning"] in made["text"]
    assert made["answer"] in made["text"]
    assert (made["policy"], made["profile"], made["seed"]) == ("random:0.5", "qwen3-32b+1.7b", 7)
    assert (made["finish"], made["error"]) == ("stop", None)
    assert set(made["estimate"]) == {
        "large_alone_seconds",
        "speedup",
        "ceiling_one_device",
        "ceiling_two_devices",
    }


def test_prices_money_and_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN, token_ms=1)
    result = call("--price-large", "10", "--price-small", "1", "?")
    assert "saved 0.00" in result.stderr
    assert "large model alone" in result.stderr
    for only in ("--price-large", "--price-small"):
        assert call(only, "1", "?").exit_code == 2


def test_no_cue_says_so_and_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, "Nothing fires here.")
    text = " ".join(call("?").stderr.split())
    assert "no cue fired" in text
    assert "--policy random:0.3" in text
    assert "relaygen profile show embedded" in text
    assert "no cue fired" not in call("--policy", "large", "?").stderr


# The question.


@pytest.mark.parametrize(
    ("args", "stdin", "asked"),
    [
        (["--", "-1 + 2?"], "", "-1 + 2?"),
        (["the argument"], "not this", "the argument"),
        ([], "from a pipe\n", "from a pipe"),
        ([], "\ufefftwo\nlines\r\n".encode(), "two\nlines"),
        (["--file", "-"], "from a pipe", "from a pipe"),
        (["--file", "FILE"], "", "from a file ä"),
    ],
)
def test_where_the_question_comes_from(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    args: list[str],
    stdin: str | bytes,
    asked: str,
) -> None:
    made = stage(monkeypatch, PLAIN, prompt="{content}")
    path = tmp_path / "question.txt"
    path.write_text("from a file ä\n", "utf-8")
    args = [str(path) if arg == "FILE" else arg for arg in args]
    result = call("--policy", "large", *args, stdin=stdin)
    assert result.exit_code == 0
    assert made.large.requests[0].ids == ScriptedEngine()._tokenizer.encode(asked)


@pytest.mark.parametrize(
    ("args", "stdin", "says"),
    [
        ([], "", "empty"),
        ([" \n"], "", "empty"),
        (["--file", __file__, "?"], "", "twice"),
        ([], b"\xff\xfe", "UTF-8"),
        (["\udcff"], "", "UTF-8"),
        (["--file", "/no/such/file"], "", "No such file"),
    ],
)
def test_questions_that_make_no_sense(
    monkeypatch: pytest.MonkeyPatch, args: list[str], stdin: str | bytes, says: str
) -> None:
    made = stage(monkeypatch, PLAIN)
    result = call(*args, stdin=stdin)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""
    assert not made.asked


# Options.


def test_options_reach_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stage(monkeypatch, PLAIN)
    args = ["--temperature", "0.5", "--top-p", "0.8", "--top-k", "9", "--min-p", "0.1"]
    result = call(*args, "--max-tokens", "20", "--max-segment-tokens", "3", "--seed", "5", "?")
    assert result.exit_code == 0
    request = made.large.requests[0]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0.5,
        0.8,
        9,
        0.1,
    )
    assert (request.seed, request.max_tokens) == (5, 20)
    assert made.small.requests[0].max_tokens == 3 + 3
    assert "cut at a limit" in result.stderr


def test_the_profiles_sampling_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stage(monkeypatch, PLAIN)
    call("--top-k", "5", "?")
    sampling = made.large.requests[0].sampling
    assert (sampling.temperature, sampling.top_k) == (load("embedded").sampling.temperature, 5)


def test_stop_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN)
    assert call("--stop", "zzz", "--stop", " Thus", "?").stdout.endswith("are at 3.\n")


def test_no_thinking_reaches_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = ScriptedEngine.render

    async def render(self: ScriptedEngine, conversation: Any) -> Any:
        seen.append(conversation)
        return await real(self, conversation)

    monkeypatch.setattr(ScriptedEngine, "render", render)
    stage(monkeypatch, "Three.")
    call(*TAGS, "--no-thinking", "--system", "Be brief.", "?")
    assert seen[0].template_kwargs == {"enable_thinking": False}
    assert [message.role for message in seen[0].messages] == ["system", "user"]
    assert call(*TAGS, "?").exit_code == 0
    assert seen[-1].template_kwargs == {}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--profile", "nope"], "no profile 'nope'"),
        (["--policy", "nope"], "no policy 'nope'"),
        (["--policy", "random"], "share"),
        (["--top-p", "2"], "top_p"),
        (["--temperature", "-1"], "temperature"),
        (["--max-tokens", "0"], "--max-tokens"),
        (["--stop", ""], "empty"),
        (["--max-reasoning-tokens", "9"], "marks its thinking"),
        (["--seed", "-1"], "--seed"),
        (["--price-large", "1"], "both prices"),
    ],
)
def test_mistakes_are_found_before_anything_is_opened(
    monkeypatch: pytest.MonkeyPatch, args: list[str], says: str
) -> None:
    made = stage(monkeypatch, PLAIN)
    result = call(*args, "?")
    assert result.exit_code == 2
    assert says in result.stderr
    assert not made.asked


def test_thinking_that_a_profile_opens_cannot_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = stage(monkeypatch, PLAIN)
    path = tmp_path / "opening.toml"
    path.write_text(
        'name = "opening"\ndescription = "d"\nlarge = "l"\nsmall = "s"\nthinking = "tags"\n'
        'prefill = "<think>\\n"\ncues = ["So"]\n[provenance]\nsource = "here"\n'
    )
    result = call("--profile", str(path), "--no-thinking", "?")
    assert result.exit_code == 2
    assert "opens the thinking itself" in result.stderr
    assert not made.asked


def test_help_has_groups_and_policies() -> None:
    text = call("--help").stdout
    positions = [text.index(f"\n{name}:\n") for name in ("The pair", "The generation", "Output")]
    assert positions == sorted(positions)
    for name, (_, says) in POLICIES.items():
        assert name in text
        assert says.split()[0] in text[text.index("\nPolicies:") :]


# The trace.


def test_trace_has_every_event_and_ends_with_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage(monkeypatch, THINKING)
    path = tmp_path / "trace.jsonl"
    result = call(*TAGS, "--trace", str(path), "?")
    assert result.exit_code == 0
    events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    answer = [e["text"] for e in events if e["type"] == "text" and e["stage"] == "answer"]
    assert "".join(answer) == ANSWER
    assert [event["type"] for event in events].count("done") == 1
    assert events[-1]["type"] == "done"
    assert events[-1]["generation"]["answer"] == ANSWER
    assert {"handoff", "stage", "text"} <= {event["type"] for event in events}
    times = [event["at"] for event in events]
    assert times == sorted(times)


def test_trace_never_overwrites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = stage(monkeypatch, PLAIN)
    path = tmp_path / "trace.jsonl"
    path.write_text("precious\n")
    result = call("--trace", str(path), "?")
    assert result.exit_code == 2
    assert "not empty" in result.stderr
    assert "hint:" in result.stderr
    assert path.read_text() == "precious\n"
    assert call("--trace", str(tmp_path / "no" / "folder"), "?").exit_code == 2
    assert not made.asked
    path.write_text("")
    assert call("--trace", str(path), "?").exit_code == 0
    assert path.read_text().count("\n") > 3


def test_a_trace_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN)
    result = call("--trace", "/dev/full", "?")
    assert result.exit_code == 1
    assert "cannot write /dev/full" in result.stderr


# Failures.


def gone(**where: int) -> Failure:
    return Failure(EngineUnreachableError("connection reset"), **where)


def test_a_failing_large_engine_leaves_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    stage(monkeypatch, PLAIN, large={"failures": [gone(token=4)]})
    result = call("--trace", str(path), "?")
    assert result.exit_code == 5
    assert result.stdout == "We add [1\n"
    assert "failed: this is what was written until then" in result.stderr
    assert result.stderr.splitlines()[-1] == "error: large engine: connection reset"
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["type"], last["generation"]["finish"]) == ("done", "cancelled")


def test_json_of_a_failed_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN, large={"failures": [gone(token=4)]})
    result = call("--json", "?")
    assert result.exit_code == 5
    made = one_object(result)
    assert (made["answer"], made["finish"]) == ("We add [1", "cancelled")
    assert made["error"] == "large engine: connection reset"
    assert result.stderr == "error: large engine: connection reset\n"


def test_a_failing_small_engine_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN, small={"failures": [gone(token=2)]})
    result = call("?")
    assert result.exit_code == 0
    assert result.stdout == PLAIN
    assert "1 fallback: the small model failed" in result.stderr


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_an_engine_that_does_not_start(monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    async def info(self: ScriptedEngine) -> None:
        raise EngineUnreachableError("connection refused", hint="start it")

    made = stage(monkeypatch, PLAIN)
    monkeypatch.setattr(made.small, "info", info.__get__(made.small))
    result = call(*args, "?")
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr == "error: small engine: connection refused\nhint: start it\n"
    assert call("--policy", "large", "?").exit_code == 0


def test_an_unexpected_failure_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, PLAIN)
    monkeypatch.setattr("relaygen.relay.segment_seed", lambda *of: 1 / 0)  # a mistake of ours
    assert isinstance(call("?").exception, ZeroDivisionError)


def test_engines_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[ScriptedEngine] = []

    async def aclose(self: ScriptedEngine) -> None:
        closed.append(self)

    monkeypatch.setattr(ScriptedEngine, "aclose", aclose)
    made = stage(monkeypatch, PLAIN)
    assert call("?").exit_code == 0
    assert closed == [made.large, made.small]
    assert made.large.released
    failing = stage(monkeypatch, PLAIN, large={"failures": [gone()]})
    assert call("?").exit_code == 5
    assert closed[2:] == [failing.large, failing.small]


# In a process of its own.


def test_ctrl_c_keeps_what_was_written() -> None:
    started = child("run", *TAGS, "?", script=THINKING, token_ms=20)
    started.until("add one")
    started.interrupt()
    assert started.end() == 130
    written, _, summary = started.stderr.decode().partition("\n\n")
    assert REASONING.startswith(written.rstrip("\n"))
    assert "add one" in written
    assert summary.startswith("interrupted: this is what was written until then")
    assert "Traceback" not in summary
    assert started.stdout == b""


def test_ctrl_c_with_json_and_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    started = child("run", "--json", "--trace", str(path), "?", token_ms=20)
    for _ in range(1000):
        if path.exists() and "First" in path.read_text():
            break
        time.sleep(0.01)
    started.interrupt()
    assert started.end() == 130
    made = json.loads(started.stdout)
    assert made["finish"] == "cancelled"
    assert PLAIN.startswith(made["text"])
    assert "First" in made["text"]
    assert started.stderr == b""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert events[-1]["generation"]["text"] == made["text"]
    assert "".join(event.get("text", "") for event in events) == made["answer"]


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_ctrl_c_before_the_first_token(args: list[str]) -> None:
    started = child("run", *args, "?", columns=80, ttft_ms=30_000)
    started.until("reading the question")
    started.interrupt()
    assert started.end() == 130
    assert ("no token was written" in started.text) == (not args)
    assert ('"finish":"cancelled"' in started.text) == bool(args)


def test_a_terminal_without_a_question_is_not_waited_for() -> None:
    started = child("run", columns=80)
    assert started.end() == 2
    assert "error: there is no question\nhint: " in started.text


def test_a_reader_that_leaves_is_no_error() -> None:
    line = f"{shlex.join(command('run', '--quiet', '?', token_ms=5))} | head -c 5"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], env=environment(), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, b"We ad", b"")


def test_text_appears_as_it_is_generated() -> None:
    started = child("run", "?", token_ms=5, ttft_ms=200, script="One. Two. So three. " * 3)
    started.until("One. Two.")
    assert started.process.poll() is None
    assert started.end() == 0


# Opening the pair.


class Opened:
    def __init__(self, large: object, small: object, **options: Any) -> None:
        self.options = {"large": large, "small": small, **options}


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Calls of `resolve`; only /here.gguf is on the disk."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def resolve(spec: str, **options: Any) -> Path:
        calls.append((spec, options))
        if not options.get("fetch", True) and spec != "/here.gguf":
            raise ModelNotFoundError("not here")
        return Path(spec)

    monkeypatch.setattr(_options, "resolve", resolve)
    monkeypatch.setattr("relaygen._api.Relay", Opened)
    return calls


def opened(**options: Any) -> dict[str, Any]:
    relay: object = _options.open_relay(PairOptions(**options), load("embedded"), LargeOnly())
    assert isinstance(relay, Opened)
    return relay.options


def test_models_are_fetched_with_progress(resolved: list[tuple[str, dict[str, Any]]]) -> None:
    options = opened(ctx=99, threads=3, ngl=1)
    assert (options["ctx"], options["threads"], options["ngl"]) == (99, 3, 1)
    assert options["large"] == Path(EMBEDDED_LARGE.name)
    assert options["small"] == Path(EMBEDDED_SMALL.name)
    fetched = [how for _, how in resolved if how.get("fetch", True)]
    assert [(how["mirror"], callable(how["progress"])) for how in fetched] == [(True, True)] * 2


@pytest.mark.parametrize(
    ("policy", "roles"),
    [("large", {"large"}), ("small", {"small"}), ("relay", {"large", "small"})],
)
def test_only_models_that_are_asked_are_opened(
    policy: str, roles: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(monkeypatch, PLAIN)
    result = call("--policy", policy, "1 + 2?")
    assert (result.exit_code, result.stdout) == (0, PLAIN)
    assert made.roles == [roles]


def test_what_is_there_is_not_fetched(resolved: list[tuple[str, dict[str, Any]]]) -> None:
    options = opened(large="http://localhost:1", small="/here.gguf", no_mirror=True)
    assert options["large"] == "http://localhost:1"
    assert options["small"] == Path("/here.gguf")
    assert resolved == [("/here.gguf", {"fetch": False})]
    opened(large="owner/repo", small="/here.gguf", no_mirror=True)
    assert resolved[-2][1]["mirror"] is False


def test_a_fetch_that_is_stopped_says_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def resolve(spec: str, **options: Any) -> Path:
        raise KeyboardInterrupt if options.get("fetch", True) else ModelNotFoundError("not here")

    monkeypatch.setattr(_options, "resolve", resolve)
    result = call("?")
    assert result.exit_code == 130
    assert "resume" in result.stderr


def test_both_on_the_cpu() -> None:
    assert PairOptions().on_cpu
    assert not PairOptions(ngl=9).on_cpu
    assert not PairOptions(small="https://localhost:1").on_cpu
