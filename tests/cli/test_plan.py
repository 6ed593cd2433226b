"""``relaygen plan``: its tables and JSON, the files it reads, what it refuses, and its page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relaygen import ModelUsage, Usage
from relaygen._jsonable import usage_dict
from relaygen.cli import main
from relaygen.costs import handoff_ms, measured_costs

PAGE = Path(__file__).parents[2] / "docs" / "plan.md"
PAIR = ("--large-ms", "40", "--small-ms", "6.5", "--utilization", "0.7")


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["plan", *args])


def told(*args: str) -> dict[str, Any]:
    result = call(*args, "--json")
    assert result.exit_code == 0, result.stderr
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def usage(*, faster: float = 1.0, small: int = 30) -> Usage:
    """100 tokens of a question of 50: 10 ms and 4 ms to decode, 0.5 and 0.2 to read."""
    large = ModelUsage(tokens=100 - small, discarded=2, requests=4)
    large.decoded, large.evaluated = 68, 50 + small
    large.decode_seconds = 0.68 / faster
    large.first_seconds = 4 * 0.01 / faster + (50 + small) * 0.0005
    made = Usage(large, prompt_tokens=50, seconds=1.2)
    if small:
        made.small = ModelUsage(tokens=small, requests=3, decoded=27, evaluated=110)
        made.small.decode_seconds, made.small.first_seconds = 27 * 0.004, 3 * 0.004 + 110 * 0.0002
        made.handoffs = 6
    return made


def segments(*, evaluation: bool) -> list[Any]:
    runs = [("large", 20), ("small", 10), ("large", 30), ("small", 15), ("large", 20), ("small", 5)]
    if evaluation:
        return [[role, "reasoning", "", "", "…", tokens, 0.1] for role, tokens in runs]
    return [{"role": role, "tokens": tokens, "text": "…"} for role, tokens in runs]


def result(arm: str, made: Usage | None, **more: Any) -> str:
    value = {"arm": arm, "at_once": 1, "error": None, "segments": segments(evaluation=True)}
    return json.dumps({**value, "usage": usage_dict(made) if made else None, **more}) + "\n"


RESULTS = (
    result("relay", usage())
    + result("relay", usage())
    + result("relay+draft", usage(faster=1.6))
    + result("large", usage(small=0), segments=[["large", "reasoning", "", "", "…", 100, 1.0]])
    + result("large+draft", usage(small=0, faster=1.6))
    + result("relay", usage(faster=0.1), at_once=4)
    + result("relay", None, error="the engine is gone", segments=[])
)


def physics() -> dict[str, Any]:
    """Two contexts; reading n tokens takes 1 % of a step for each beyond the first."""
    steps = {"large": 40.0, "small": 6.0}
    made: dict[str, Any] = {"kind": "relaygen gpu_physics 1", "not_measured": ["HTTP"]}
    decode, catch_up, handoff = [], [], []
    for context, slower in ((512, 1.0), (4096, 1.1)):
        for role, step in steps.items():
            here = {"context": context, "role": role}
            for batch, more in ((1, 1.0), (4, 1.2)):
                decode.append({**here, "batch": batch, "ms": step * slower * more})
            for tokens in (1, 16, 64):
                ms = step * slower * (1 + 0.01 * (tokens - 1))
                catch_up.append({**here, "batch": 1, "tokens": tokens, "ms": ms})
                at = {"to": role, "context": context, "batch": 1, "tokens": tokens}
                handoff.append({**at, "ms": ms + slower, "reading_ms": ms})
    return {**made, "decode": decode, "catch_up": catch_up, "handoff": handoff}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files that the page names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results.jsonl").write_text(RESULTS)
    (tmp_path / "physics.json").write_text(json.dumps(physics()))
    return tmp_path


# The page.


def test_every_command_of_the_page_runs(folder: Path) -> None:
    lines = re.findall(r"^relaygen (plan .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        made = CliRunner().invoke(main, shlex.split(line))
        assert made.exit_code == 0, (line, made.stderr)


def test_the_worked_example_is_what_the_command_prints() -> None:
    command, shown = re.findall(r"```(?:sh)?\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[-2:]
    made = CliRunner().invoke(main, shlex.split(command)[1:])
    assert [line.rstrip() for line in made.stdout.splitlines()] == shown.splitlines()


# What it says.


def test_the_paper_is_forecast_within_three_percent() -> None:
    asked = ("--utilization", "0.698", "--relay-speedup", "1.29", "--large-spec-speedup", "1.79")
    made = told(*asked, "--measured-speedup", "2.20")
    assert abs(made["error"]) < 0.03
    assert made["plain_product"] == pytest.approx(1.29 * 1.79)
    assert made["plain_product_error"] == pytest.approx(1.29 * 1.79 / 2.20 - 1)
    assert made["unit"] == "tokens of the large model alone"
    assert made["inputs"]["relay_speedup"] == {"value": 1.29, "from": "given"}
    assert made["inputs"]["small_ms"]["from"] == "solved"
    assert made["ceiling"] == pytest.approx(1.79 / 0.698)
    assert made["break_even_tokens"] is None


def test_a_plan_by_hand() -> None:
    made = told(*PAIR, "--segment-tokens", "15", "--overhead-ms", "5", "--small-spec-speedup", "2")
    assert made["per_token"] == pytest.approx(0.7 * 40 + 0.3 * 3.25 + 0.04 * 5)
    assert made["speedup"] == pytest.approx(40 / made["per_token"])
    assert made["break_even_tokens"] == pytest.approx(10 / (40 - 3.25))
    assert made["plain_product"] == pytest.approx(40 / (0.7 * 40 + 0.3 * 6.5 + 0.2))
    assert made["inputs"]["handoffs"] == {"value": pytest.approx(40), "from": "given"}
    assert made["error"] is None
    assert told(*PAIR, "--handoffs", "40")["segment_tokens"] == pytest.approx(15)


def test_every_option_reaches_the_model() -> None:
    reads = ("--large-catch-up-ms", "0.5", "--small-catch-up-ms", "0.2")
    made = told(*PAIR, *reads, "--prompt-tokens", "40", "--tokens", "100", "--devices", "1")
    assert made["terms"]["catch-up"] == pytest.approx(0.7 * 0.2 + 0.3 * 0.5)
    assert made["terms"]["prompt"] == pytest.approx(0.4 * 0.7)
    assert made["devices"] == 1
    hidden = told(*PAIR, *reads, "--hidden-catch-up")
    assert hidden["terms"]["catch-up"] == 0.0


def test_what_drafts_is_named_where_something_does() -> None:
    plain, drafting = call(*PAIR).stdout, call(*PAIR, "--large-spec-speedup", "1.5").stdout
    assert "drafting" not in plain
    assert "reading along" not in plain
    assert "large model's drafting" in drafting


def test_the_verdict_is_the_last_line() -> None:
    def verdict(*args: str) -> str:
        return call(*args).stdout.splitlines()[-1]

    assert verdict(*PAIR) == (
        "Faster than the large model alone: 1.34x; limited by large decode, 93 % of the time."
    )
    slow = verdict(*PAIR, "--segment-tokens", "2", "--overhead-ms", "50")
    assert slow.startswith("Slower than the large model alone: 0.89x; segments of 2 tokens lose, ")
    assert slow.endswith("they would need 3.")
    assert verdict(*PAIR[:-1], "1").startswith("As fast as the large model alone: 1.00x; ")


def test_break_even_in_words() -> None:
    assert "none: any length pays" in call(*PAIR, "--segment-tokens", "9").stdout
    dear = call("--large-ms", "5", "--small-ms", "6", "--utilization", "0.5")
    assert "none: no length pays" in dear.stdout


def test_many_streams() -> None:
    asked = (*PAIR, "--concurrency", "1", "--concurrency", "32")
    one, many = told(*asked)["concurrency"]
    assert one["ms_per_token"] == pytest.approx(29.95)
    assert many["large_busy"] == pytest.approx(1.0)
    assert many["ms_per_token"] == pytest.approx(32 * 28, rel=1e-3)
    room = told(*asked, "--batch", "32")["concurrency"][1]
    assert room["ms_per_token"] == pytest.approx(29.95)
    rows = [line.split() for line in call(*asked).stdout.splitlines()]
    assert ["32", "36", "896.00", "ms", "100", "%", "7", "%", "1.43x"] in rows


# Files.


def test_results_of_an_evaluation(folder: Path) -> None:
    """Costs of what ran alone without drafting; the rest from the arm."""
    made = told("--costs", "results.jsonl", "--devices", "1")
    inputs = {name: each["value"] for name, each in made["inputs"].items()}
    costs = measured_costs(usage())
    assert costs is not None
    assert inputs["large_ms"] == pytest.approx(costs.large_decode) == pytest.approx(10)
    assert inputs["small_ms"] == pytest.approx(costs.small_decode) == pytest.approx(4)
    assert inputs["large_catch_up_ms"] == pytest.approx(0.5)
    assert inputs["small_catch_up_ms"] == pytest.approx(0.2)
    assert inputs["overhead_ms"] == pytest.approx(handoff_ms(usage()))
    assert inputs["utilization"] == pytest.approx(0.7)
    assert inputs["handoffs"] == pytest.approx(60)
    assert (inputs["prompt_tokens"], inputs["tokens"]) == (50, 100)
    assert made["inputs"]["large_spec_speedup"] == {"value": 1.0, "from": "default"}
    assert {made["inputs"][name]["from"] for name in ("large_ms", "tokens")} == {"results.jsonl"}


def test_drafting_is_measured_on_the_large_model_alone(folder: Path) -> None:
    made = told("--costs", "results.jsonl", "--arm", "relay+draft")
    assert made["inputs"]["large_spec_speedup"]["value"] == pytest.approx(1.6)
    assert made["inputs"]["large_ms"]["value"] == pytest.approx(10)


def test_what_drafts_reads_along(folder: Path) -> None:
    slow = usage(small=0, faster=1.6)
    slow.large.first_seconds += 0.3 * 50 / 1000  # 0.3 ms more for each token of the question
    Path("own.jsonl").write_text(result("relay", usage()) + result("large+draft", slow))
    inputs = told("--costs", "own.jsonl", "--utilization", "0.7", "--arm", "relay+draft")["inputs"]
    assert inputs["large_spec_catch_up_ms"]["value"] == pytest.approx(0.3)
    assert inputs["large_catch_up_ms"]["value"] == pytest.approx(0.5)


def test_what_nobody_reads_is_counted_by_who_writes_last(folder: Path) -> None:
    inputs = told("--costs", "results.jsonl")["inputs"]
    assert inputs["large_skips"]["value"] == pytest.approx(0.05)
    assert inputs["small_skips"]["value"] == 0.0
    alone = told("--costs", "results.jsonl", "--arm", "large")
    assert alone["inputs"]["small_skips"]["value"] == pytest.approx(1.0)
    assert alone["terms"]["catch-up"] == 0.0
    Path("counts.json").write_text(json.dumps({"usage": usage_dict(usage())}))
    assert told("--costs", "counts.json")["inputs"]["large_skips"]["from"] == "default"


def test_a_hand_off_costs_what_it_does_in_the_arm_itself(folder: Path) -> None:
    late = usage(faster=1.6)
    late.large.seconds = late.large.first_seconds + late.large.decode_seconds + 0.6
    Path("own.jsonl").write_text(result("relay", usage()) + result("relay+draft", late))
    made = told("--costs", "own.jsonl", "--arm", "relay+draft")["inputs"]["overhead_ms"]["value"]
    assert made == pytest.approx(handoff_ms(late))
    plain = told("--costs", "own.jsonl")["inputs"]["overhead_ms"]["value"]
    other = told("--costs", "own.jsonl", "--utilization", "0.7", "--arm", "relay+ngram")
    assert other["inputs"]["overhead_ms"]["value"] == plain == pytest.approx(handoff_ms(usage()))


def test_drafting_of_the_small_model_is_measured_on_it(folder: Path) -> None:
    made = usage(small=0)
    made.large, made.small = ModelUsage(), ModelUsage(tokens=9, decoded=8, decode_seconds=0.016)
    with Path("results.jsonl").open("a") as file:
        file.write(result("relay+draft+small-ngram", usage()) + result("small+small-ngram", made))
    inputs = told("--costs", "results.jsonl", "--arm", "relay+draft+small-ngram")["inputs"]
    assert inputs["small_spec_speedup"]["value"] == pytest.approx(2.0)
    assert inputs["large_spec_speedup"]["value"] == pytest.approx(1.6)


def test_an_option_goes_before_a_trace_and_a_trace_before_costs(folder: Path) -> None:
    one = {"segments": [{"role": "large", "tokens": 60}, {"role": "small", "tokens": 40}]}
    done = {"type": "done", "at": 1.0, "generation": one}
    Path("events.jsonl").write_text(f'{{"type": "text", "text": "…"}}\n{json.dumps(done)}\n')
    made = told("--costs", "results.jsonl", "--trace", "events.jsonl", "--large-ms", "20")
    assert made["inputs"]["utilization"] == {"value": 0.6, "from": "events.jsonl"}
    assert made["inputs"]["handoffs"] == {"value": 10, "from": "events.jsonl"}
    assert made["inputs"]["large_ms"] == {"value": 20, "from": "given"}
    assert made["inputs"]["small_ms"]["from"] == "results.jsonl"
    assert told("--costs", "results.jsonl", "--utilization", "0.5")["speedup"] != made["speedup"]


def test_a_whole_generation_in_one_object(folder: Path) -> None:
    value = {"segments": segments(evaluation=False), "usage": usage_dict(usage()), "error": None}
    Path("one.json").write_text(json.dumps(value, indent=1))
    assert told("--costs", "one.json")["inputs"]["utilization"]["value"] == pytest.approx(0.7)


def test_physics_by_length_of_what_is_read(folder: Path) -> None:
    shared = ("--utilization", "0.8", "--segment-tokens", "16", "--context", "600")
    made = told("--costs", "physics.json", *shared)
    inputs = {name: each["value"] for name, each in made["inputs"].items()}
    assert (inputs["large_ms"], inputs["small_ms"]) == (40, 6)
    assert inputs["large_catch_up_ms"] == pytest.approx(40 * 0.15 / 16)
    assert inputs["small_catch_up_ms"] == pytest.approx(6 * 0.63 / 64)
    assert inputs["overhead_ms"] == pytest.approx(1.0)
    assert made["not_measured"] == ["HTTP"]
    assert told("--costs", "physics.json", *shared[:4])["inputs"]["large_ms"]["value"] == 44
    between = told("--costs", "physics.json", "--utilization", "0.5", "--segment-tokens", "40")
    assert between["inputs"]["small_catch_up_ms"]["value"] == pytest.approx(6.6 * 0.39 / 40)
    assert "The costs leave out: HTTP." in call("--costs", "physics.json", *shared).stdout


def test_physics_by_batch(folder: Path) -> None:
    """Four at once take 1.2 steps; more than were measured are no faster."""
    asked = ("--costs", "physics.json", "--utilization", "1", "--handoffs", "1", "--concurrency")
    alone, four, eight = (told(*asked, n)["concurrency"][0] for n in ("1", "4", "8"))
    assert four["tokens_per_ms"] == pytest.approx(alone["tokens_per_ms"] * 4 / 1.2, rel=0.01)
    assert eight["tokens_per_ms"] == pytest.approx(four["tokens_per_ms"], rel=0.01)


# What it refuses.


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "how is the text shared?"),
        (("--utilization", "0.7"), "what does a token of the large model cost?"),
        (("--utilization", "0.7", "--large-ms", "4"), "what does a token of the small model cost?"),
        ((*PAIR, "--segment-tokens", "9", "--handoffs", "3"), "say the same"),
        ((*PAIR, "--relay-speedup", "1.2"), "--relay-speedup stands for --small-ms"),
        ((*PAIR, "--prompt-tokens", "9"), "without --tokens"),
        ((*PAIR, "--devices", "1", "--hidden-catch-up"), "cannot hide on one device"),
        (("--utilization", "0.698", "--relay-speedup", "1.5"), "free small model"),
        (("--costs", "physics.json", "--utilization", "0.7"), "how long segments are"),
        (("--costs", "results.jsonl", "--trace", "results.jsonl", "--arm", "x"), "no generation"),
        (("--costs", "odd.json", "--utilization", "0.7"), "does not tell what a token"),
        (("--costs", "list.json"), "no JSON objects"),
        (("--costs", "text.txt"), "text.txt, line 1: this is not JSON"),
        (("--costs", "latin.txt"), "cannot read latin.txt: it is not UTF-8"),
        (("--trace", "broken.json"), "not readable"),
        (("--trace", "empty.json"), "no token of either model"),
        (("--costs", "half.json", "--utilization", "0.7", "--handoffs", "9"), "not measured at"),
        (("--costs", "hurt.json", "--utilization", "0.7", "--handoffs", "9"), "not readable"),
    ],
)
def test_what_it_refuses(folder: Path, args: tuple[str, ...], said: str) -> None:
    Path("odd.json").write_text('{"segments": []}')
    Path("list.json").write_text("[1]")
    Path("text.txt").write_text("So\n")
    Path("latin.txt").write_bytes(b"\xe9")
    Path("broken.json").write_text('{"usage": {"large": 3}}')
    Path("empty.json").write_text('{"segments": []}')
    Path("half.json").write_text(json.dumps({**physics(), "catch_up": []}))
    Path("hurt.json").write_text(json.dumps({**physics(), "decode": [{"batch": 1}]}))
    made = call(*args)
    assert made.exit_code == 2
    assert said in made.stderr.splitlines()[0]


def test_help_loads_no_file_and_names_no_policy() -> None:
    shown = call("--help").stdout
    assert "--relay-speedup" in shown
    assert "Policies" not in shown
    assert "plan" in CliRunner().invoke(main, ["--help"]).stdout
