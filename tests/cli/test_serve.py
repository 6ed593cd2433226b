from __future__ import annotations

import builtins
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from relaygen import MissingExtraError, Relay
from relaygen._profile import Profile
from relaygen.cli import _options, main
from relaygen.cli._options import PairOptions
from relaygen.cli.serve import serve
from relaygen.engines.detect import DetectedEngine
from relaygen.engines.scripted import ScriptedEngine
from relaygen.policies import Policy
from relaygen.serve import _app, _server
from relaygen.serve._settings import Settings

from .playing import PLAIN, environment

URLS = ("--large", "http://gpu:1", "--small", "http://gpu:2")


class Started:
    """What would have been served."""

    relay: Relay
    settings: Settings
    policy: str
    address: tuple[str, int]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    made = Started()

    def open_relay(pair: PairOptions, profile: Profile, policy: Policy) -> Relay:
        engine = ScriptedEngine(PLAIN)
        return Relay(engine, engine, profile=profile, policy=policy)

    def make_app(relay: Relay, settings: Settings, *, policy: str) -> object:
        made.relay, made.settings, made.policy = relay, settings, policy
        return object()

    def listen(host: str, port: int) -> socket.socket:
        made.address = host, port
        return socket.create_server(("127.0.0.1", 0))

    def run(app: object, sock: socket.socket, *, started: object) -> None:
        sock.close()

    monkeypatch.setattr(_options, "open_relay", open_relay)
    monkeypatch.setattr(_app, "make_app", make_app)
    monkeypatch.setattr(_server, "listen", listen)
    monkeypatch.setattr(_server, "serve", run)
    return made


def call(*args: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["serve", *args], env=env)


# Flags, environment, file.


def test_without_flags_the_embedded_pair_on_loopback(started: Started) -> None:
    result = call()
    assert result.exit_code == 0, result.output
    assert started.settings == Settings()
    assert started.address == ("127.0.0.1", 8000)
    assert started.policy == "relay"
    assert "serving 'relaygen' at http://127.0.0.1:" in result.stderr
    assert "warning" not in result.stderr


def test_servers_without_a_profile_are_warned_of(started: Started) -> None:
    assert "does not look for <think>" in call(*URLS).stderr
    assert "<think>" not in call(*URLS, "--profile", "embedded").stderr
    env = {"RELAYGEN_SERVE_PROFILE": "qwen3-32b+1.7b"}
    assert "<think>" not in call(*URLS, env=env).stderr


def test_an_address_that_is_no_url(started: Started) -> None:
    result = call("--large", "gpu:8001", "--small", "http://gpu:8002")
    assert result.exit_code == 2
    assert "hint: write http://gpu:8001" in result.stderr


def test_without_llama_the_hint_names_the_urls_too(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def located(spec: str, no_mirror: bool) -> str:
        raise MissingExtraError("huggingface_hub", extra="llama")

    monkeypatch.setattr(_options, "located", located)
    result = call("--large", "http://gpu:8001")
    assert result.exit_code == 3
    assert "or give --large and --small the URLs of two servers" in result.stderr


def test_urls_are_detected_and_delegation_is_watched(started: Started) -> None:
    assert call(*URLS).exit_code == 0
    paused = [started.settings.pause]
    engines = started.relay.engines
    assert [type(engine) for engine in engines.values()] == [DetectedEngine, DetectedEngine]
    call(*URLS, "--pause", "off")
    assert [*paused, started.settings.pause] == ["auto", "off"]


def test_every_flag_reaches_the_server(started: Started, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-1\n")
    result = call(
        *URLS, "--policy", "random:0.25", "--profile", "qwen3-32b+1.7b", "--host", "::1",
        "--port", "0", "--root-path", "/llm/", "--served-model-name", "pair",
        "--otlp-endpoint", "http://otel:4318",
        "--reasoning-field", "both", "--annotate", "--strict", "--rescue", "--no-hints",
        "--default-max-tokens", "5", "--max-concurrent", "6", "--max-queue", "0",
        "--max-body", "7", "--write-timeout", "8", "--drain", "0", "--api-key-file", str(keys),
        "--cors-origin", "a", "--cors-origin", "b",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert started.settings == Settings(
        served_model_name="pair",
        api_keys=("sk-1",),
        reasoning_field="both",
        annotate=True,
        strict=True,
        rescue=True,
        hints=False,
        pause="auto",
        default_max_tokens=5,
        max_concurrent=6,
        max_queue=0,
        max_body=7,
        write_timeout=8,
        drain=0,
        cors_origins=("a", "b"),
        root_path="/llm",
        traces_url="http://otel:4318/v1/traces",
    )
    assert (started.address, started.policy) == (("::1", 0), "random:0.25")
    assert "/llm/v1, policy random:0.25, profile qwen3-32b+1.7b" in result.stderr


def test_a_level_reaches_the_server(started: Started, tmp_path: Path) -> None:
    path = tmp_path / "leveled.toml"
    shipped = (resources.files("relaygen.profiles") / "data" / "embedded.toml").read_text("utf-8")
    path.write_text(f'{shipped}\n[levels.fast]\ncues = ["Thus"]\n', "utf-8")
    result = call("--profile", str(path), env={"RELAYGEN_SERVE_LEVEL": "fast"})
    assert "policy relay, profile embedded at level fast; docs" in result.stderr
    assert started.relay.profile.level == "fast"
    assert started.relay.profile.cues == ("Thus",)


def test_flags_go_before_the_environment_and_that_before_the_file(
    started: Started, tmp_path: Path
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        "max-queue = 1\nmax_concurrent = 1\ndrain = 1.5\nstrict = true\n"
        'cors-origin = ["x"]\nserved-model-name = "from-file"\n'
    )
    env = {"RELAYGEN_SERVE_MAX_QUEUE": "2", "RELAYGEN_SERVE_MAX_CONCURRENT": "2"}
    result = call("--config", str(file), "--max-queue", "3", env=env)
    assert result.exit_code == 0, result.output
    made = started.settings
    assert (made.max_queue, made.max_concurrent, made.drain) == (3, 2, 1.5)
    assert (made.strict, made.cors_origins) == (True, ("x",))
    assert made.served_model_name == "from-file"


def test_the_file_has_a_twin_in_the_environment_too(started: Started, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("max-queue = 9\n")
    assert call(env={"RELAYGEN_SERVE_CONFIG": str(file)}).exit_code == 0
    assert started.settings.max_queue == 9


def test_headers_in_the_environment_are_one_a_line(started: Started) -> None:
    env = {"RELAYGEN_SERVE_ENGINE_HEADER": "X-A: {session}\nX-B: two words"}
    assert call(*URLS, env=env).exit_code == 0
    engine = started.relay.engines["large"]
    assert isinstance(engine, DetectedEngine)
    assert engine._options["headers"] == {"X-A": "{session}", "X-B": "two words"}


def test_traces_are_asked_for_by_opentelemetrys_own_variable(started: Started) -> None:
    assert call(env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318"}).exit_code == 0
    assert started.settings.traces_url == "http://otel:4318/v1/traces"
    assert call(env={"RELAYGEN_SERVE_OTLP_ENDPOINT": "https://mine"}).exit_code == 0
    assert started.settings.traces_url == "https://mine/v1/traces"


def test_without_the_extra_traces_are_an_error_only_where_the_flag_asks(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    monkeypatch.setattr(_options, "open_relay", lambda *pair: pytest.fail("it was opened"))
    result = call("--otlp-endpoint", "http://otel:4318")
    assert result.exit_code == 3
    assert "hint: install it with: pip install 'relaygen[otel]'" in result.stderr
    assert "serving" not in result.stderr
    result = call(*URLS, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318"})
    assert result.exit_code == 0
    assert "serving" in result.stderr
    assert "warning: no traces, which the environment asks for: opentelemetry" in result.stderr
    assert "pip install 'relaygen[otel]'" in result.stderr
    assert started.settings.traces_url == ""


def test_keys_come_from_the_environment(started: Started) -> None:
    assert call(env={"RELAYGEN_SERVE_API_KEYS": "a,b"}).exit_code == 0
    assert started.settings.api_keys == ("a", "b")


def test_no_key_is_a_flags_value() -> None:
    for parameter in serve.params:
        if parameter.name is not None and "key" in parameter.name:
            assert parameter.name.endswith("_file")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max-queues = 1", "there is no flag --max-queues"),
        ("config = 'x'", "there is no flag --config"),
        ("max-queue = 'many'", "many"),
        ("max-queue = [1]", "max-queue must be one value"),
        ("max-queue = true", "max-queue is no flag of true or false"),
        ("strict = 'yes'", "strict must be true or false"),
        ("cors-origin = 'x'", "cors-origin must be a list"),
        ("= 3", "is not TOML"),
    ],
)
def test_a_file_that_is_wrong(started: Started, tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    result = call("--config", str(file))
    assert result.exit_code == 2
    assert why in result.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = call("--config", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "cannot read" in result.output


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--served-model-name", "a@b"), "without @"),
        (("--root-path", "llm"), "must begin with /"),
        (("--write-timeout", "nan"), "no such number"),
        (("--large-timeout", "inf"), "not in the range"),
        (("--policy", "nope"), "no policy"),
        ((*URLS, "--engine-header", "nonsense"), "is no header"),
        (("--large", "http://", "--small", "http://gpu:2"), "is not the address of a server"),
    ],
)
def test_values_that_make_no_sense(started: Started, args: tuple[str, ...], why: str) -> None:
    result = call(*args)
    assert result.exit_code == 2
    assert why in result.stderr


def test_an_open_address_without_keys_is_warned_of(started: Started) -> None:
    assert "warning: 0.0.0.0 is reachable from outside" in call("--host", "0.0.0.0").stderr
    env = {"RELAYGEN_SERVE_API_KEYS": "a"}
    assert "warning" not in call("--host", "0.0.0.0", env=env).stderr


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("relaygen.serve._")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "fastapi":
            raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    result = call(*URLS)
    assert result.exit_code == 3
    assert "pip install 'relaygen[serve]'" in result.stderr


# In a process of its own.


@contextmanager
def child(*args: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.cli.test_serve", "--port", "0", *args],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "serving" in line, line + process.stderr.read()
        yield line.split("'relaygen' at ")[1].split("/v1,")[0], process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_served_pair_answers_reports_and_ends_gently() -> None:
    with child("--profile", "embedded") as (url, process):
        assert process.stderr is not None
        report = [process.stderr.readline() for _ in range(3)]
        assert report[0] == "large engine: scripted (scripted), context 32768\n"
        assert report[2] == "pair: equal vocabularies: token ids cross a hand-off\n"
        body = {"messages": [{"role": "user", "content": "?"}]}
        reply = httpx.post(f"{url}/v1/chat/completions", json=body)
        assert reply.json()["choices"][0]["message"]["content"] == PLAIN
        assert reply.json()["relay"]["handoffs"] > 0
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read().splitlines()
        assert process.wait(20) == 0
    (line,) = [json.loads(line) for line in rest]
    assert (line["route"], line["status"]) == ("/v1/chat/completions", 200)


def test_ctrl_c_ends_it_with_130() -> None:
    with child() as (url, process):
        assert httpx.get(f"{url}/health").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_a_taken_port_is_an_error_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = call(*URLS, "--port", port)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].startswith(f"error: cannot listen on 127.0.0.1:{port}")


def _play() -> None:
    """The child."""

    def open_relay(pair: PairOptions, profile: Profile, policy: Policy) -> Relay:
        large, small = ScriptedEngine(PLAIN), ScriptedEngine(PLAIN)
        small._prompts = large._prompts  # only one of them renders
        return Relay(large, small, profile=profile, policy=policy)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_options, "open_relay", open_relay)
        main(["serve", *sys.argv[1:]], prog_name="relaygen")


if __name__ == "__main__":
    _play()
