from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from relaygen._errors import (
    EngineError,
    EngineStartError,
    EngineUnreachableError,
    MissingExtraError,
    ModelNotFoundError,
    NotGGUFError,
    UsageError,
)
from relaygen._types import Conversation, Message
from relaygen.engines.base import Engine
from relaygen.engines.embedded import EmbeddedEngine
from relaygen.engines.llama_server import LlamaServerEngine
from relaygen.engines.speculation import Speculation

from .gguf_files import tiny
from .replay import asked, collect, data_in

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child finds a stand-in for xllamacpp, and its logs are under the test's folder."""
    folder = tmp_path / "stub"
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "stub_xllamacpp.py", folder / "xllamacpp.py")
    here = os.environ.get("PYTHONPATH", "")  # the package may be found there
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), here))))
    logs = tmp_path / "logs"
    logs.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(logs))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny(tmp_path / "toy.gguf")


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    for _ in range(10**6):
        if condition():
            return
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def logs(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "logs").iterdir())


# What is checked before anything starts.


def test_model_files_are_checked_first(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        EmbeddedEngine(tmp_path / "none.gguf")
    with pytest.raises(ModelNotFoundError, match="is a folder"):
        EmbeddedEngine(tmp_path)
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(NotGGUFError):
        EmbeddedEngine(other)


@pytest.mark.parametrize("numbers", [{"ctx": 0}, {"parallel": 0}, {"threads": 0}, {"threads": -1}])
def test_numbers_are_checked_first(model: Path, numbers: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(numbers))} must be at least 1"):
        EmbeddedEngine(model, **{"ctx": 512, **numbers})  # type: ignore[arg-type]


def test_more_context_than_trained_for(model: Path) -> None:
    with pytest.raises(UsageError, match="context of 513 is more than toy") as caught:
        EmbeddedEngine(model, ctx=513)
    assert caught.value.hint == "ask for at most 512"


async def test_missing_extra(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        await EmbeddedEngine(model, ctx=512).info()
    assert "relaygen[llama]" in caught.value.hint


# A child that works.


async def test_everything_goes_through_the_child(model: Path, tmp_path: Path) -> None:
    engine = EmbeddedEngine(model, ctx=256, parallel=2, threads=3)
    assert isinstance(engine, Engine)
    assert (engine.pid, engine.server) == (None, None)
    assert logs(tmp_path) == []
    await engine.release("never seen")
    info = await engine.info()
    assert (info.model, info.context, info.slots) == ("toy.gguf", 256, 2)
    assert info.vocabulary.startswith("gguf:")
    prompt = await engine.render(Conversation((Message("user", "x"),)))
    assert (prompt.text, prompt.assistant) == ("Q: A:", " A:")
    assert await engine.tokenize("abc") == (0, 0, 0)
    deltas = await collect(engine, asked([0], 3))
    assert data_in(deltas) == b"aaa"
    await engine.release("s")

    assert engine.pid is not None
    params = json.loads(model.with_suffix(".json").read_text())
    (key,) = params.pop("api_keys")
    assert params == {
        "n_ctx": 512,  # for both conversations together
        "n_parallel": 2,
        "n_threads": [3, 3],
        "n_gpu_layers": 0,
        "n_batch": 64,
        "n_ubatch": 64,
        "fit_params": False,
        "kv_unified": False,
        "cache_ram_mib": 0,
        "cache_idle_slots": False,
        "warmup": True,
        "ui": False,
        "endpoint_slots": True,
        "endpoint_metrics": False,
        "endpoint_props": False,
        "verbosity": 1,
        "hostnames": ["127.0.0.1"],
        "port": 0,
    }
    assert key not in command_line(engine.pid)
    assert engine.server is not None
    with pytest.raises(EngineError, match="refused the API key"):
        await LlamaServerEngine(engine.server.url).info()

    pid = engine.pid
    await engine.aclose()
    await engine.aclose()
    assert gone(pid)
    assert logs(tmp_path) == []
    with pytest.raises(EngineUnreachableError, match="was closed") as caught:
        await engine.info()
    assert not caught.value.retryable


async def test_each_child_has_its_own_key(model: Path) -> None:
    keys: set[str] = set()
    for _ in range(2):
        engine = EmbeddedEngine(model, ctx=256)
        await engine.info()
        keys.add(*json.loads(model.with_suffix(".json").read_text())["api_keys"])
        await engine.aclose()
    assert len(keys) == 2


async def test_on_a_gpu_steps_are_larger(model: Path) -> None:
    engine = EmbeddedEngine(model, ctx=256, ngl=-1)
    await engine.info()
    params = json.loads(model.with_suffix(".json").read_text())
    assert (params["n_gpu_layers"], params["n_batch"]) == (-1, 512)
    await engine.aclose()


@pytest.mark.parametrize("ngl", [0, 7])
async def test_a_draft_model(model: Path, tmp_path: Path, ngl: int) -> None:
    drafter = tiny(tmp_path / "drafter.gguf")
    spec = Speculation("draft", model=drafter)
    engine = EmbeddedEngine(model, ctx=256, threads=3, ngl=ngl, speculation=spec)
    await engine.info()
    told = json.loads(model.with_suffix(".json").read_text())["speculative"]
    cpu = {"n_threads": 3, "poll": 0}
    assert told == {
        "types": ["draft-simple"],
        "ngram_simple": {},
        "draft": {
            "mparams": {"path": str(drafter)},
            "n_max": 3,
            "n_gpu_layers": ngl,
            "cpuparams": cpu,
            "cpuparams_batch": cpu,
        },
    }
    await engine.aclose()


async def test_drafts_from_the_text_itself(model: Path) -> None:
    spec = Speculation("ngram", tokens=5, lookup=4)
    engine = EmbeddedEngine(model, ctx=256, speculation=spec)
    await engine.info()
    told = json.loads(model.with_suffix(".json").read_text())["speculative"]
    assert told["types"] == ["ngram-simple"]
    assert told["ngram_simple"] == {"size_n": 4, "size_m": 5}
    await engine.aclose()


def test_a_draft_model_is_checked_first(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say which model drafts"):
        EmbeddedEngine(model, ctx=256, speculation=Speculation("draft"))
    with pytest.raises(ModelNotFoundError):
        EmbeddedEngine(
            model, ctx=256, speculation=Speculation("draft", model=tmp_path / "none.gguf")
        )


async def test_first_calls_at_once_start_one_child(model: Path, tmp_path: Path) -> None:
    engine = EmbeddedEngine(model, ctx=256)
    await asyncio.gather(engine.info(), engine.tokenize("a"), engine.info())
    assert len(logs(tmp_path)) == 1
    await engine.aclose()


async def test_ctrl_c_is_the_parents_business(model: Path) -> None:
    engine = EmbeddedEngine(model, ctx=256)
    await engine.info()
    assert engine.pid is not None
    assert os.getpgid(engine.pid) != os.getpgid(0)
    os.kill(engine.pid, signal.SIGINT)
    await asyncio.sleep(0.05)
    assert await engine.tokenize("a") == (0,)
    await engine.aclose()


async def test_a_log_of_ones_own_stays(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    engine = EmbeddedEngine(model, ctx=256, log=log)
    await engine.info()
    await engine.aclose()
    assert "this is no address" in log.read_text()
    assert json.loads(model.with_suffix(".json").read_text())["verbosity"] == 3
    assert logs(tmp_path) == []


def test_one_engine_in_two_event_loops(model: Path) -> None:
    engine = EmbeddedEngine(model, ctx=256)
    first = asyncio.run(engine.info())
    pid = engine.pid
    assert asyncio.run(engine.info()) is first
    assert engine.pid == pid
    asyncio.run(engine.aclose())
    assert pid is not None
    assert gone(pid)


async def test_an_engine_dropped_unclosed_takes_its_child_along(
    model: Path, tmp_path: Path
) -> None:
    engine = EmbeddedEngine(model, ctx=256)
    await engine.info()
    pid = engine.pid
    assert pid is not None
    del engine
    gc.collect()
    await until(lambda: gone(pid))
    assert logs(tmp_path) == []


# A child that does not start.


async def test_start_fails(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tiny(tmp_path / "fails.gguf"), ctx=256, role="large")
    with pytest.raises(EngineStartError) as caught:
        await engine.info()
    assert str(caught.value) == (
        "large engine: the process for fails.gguf did not start: exit status 1 | this is no "
        "address | load: no such tensor | RuntimeError: Failed to init server, please check"
    )
    (log,) = logs(tmp_path)
    assert str(log) in caught.value.hint
    assert engine.pid is None
    await engine.aclose()


async def test_start_exits(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tiny(tmp_path / "exits.gguf"), ctx=256)
    with pytest.raises(EngineStartError, match="exit status 3"):
        await engine.tokenize("a")


async def test_start_takes_too_long(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tiny(tmp_path / "hangs.gguf"), ctx=256, start_timeout=0.5)
    with pytest.raises(EngineStartError, match=r"did not start within 0\.5 s"):
        await asyncio.wait_for(engine.info(), 60)


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tiny(tmp_path / "hangs.gguf"), ctx=256)
    task = asyncio.ensure_future(engine.info())
    await until(lambda: engine.pid)
    pid = engine.pid
    assert pid is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(pid)
    assert engine.pid is None
    assert logs(tmp_path) == []


class Commanding(EmbeddedEngine):
    command: Sequence[str] = ()

    def _command(self) -> Sequence[str]:
        return self.command


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["/no/such/program"], "No such file or directory"),
        ([sys.executable, "-c", "print('hello')"], "something unusable"),
        ([sys.executable, "-c", "print('[]')"], "something unusable"),
        ([sys.executable, "-c", "import sys; sys.exit(7)"], "exit status 7"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], "killed by SIGKILL"),
        ([sys.executable, "-c", "print('x' * 2000, file=__import__('sys').stderr)"], "x…$"),
    ],
)
async def test_strange_children(model: Path, command: list[str], says: str) -> None:
    engine = Commanding(model, ctx=256)
    engine.command = command
    with pytest.raises(EngineStartError, match=says) as caught:
        await engine.info()
    assert "\n" not in str(caught.value)
    await engine.aclose()


# A child that dies later.


async def test_killed_in_mid_stream(model: Path, tmp_path: Path) -> None:
    engine = EmbeddedEngine(model, ctx=512, role="small")
    stream = engine.stream(asked([0], 200))
    await stream.__anext__()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineUnreachableError, match="has died: killed by SIGKILL") as caught:
        _ = [delta async for delta in stream]
    for call in (engine.info(), engine.tokenize("a"), collect(engine, asked([0]))):
        with pytest.raises(EngineUnreachableError, match="has died") as again:
            await call
        assert not again.value.retryable
    assert not caught.value.retryable
    assert caught.value.role == "small"
    (log,) = logs(tmp_path)
    assert str(log) in caught.value.hint
    await engine.aclose()
    assert log.exists()


@pytest.mark.parametrize("call", ["render", "tokenize"])
async def test_killed_while_a_call_waits(model: Path, call: str) -> None:
    engine = EmbeddedEngine(model, ctx=256)
    await engine.info()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGSTOP)
    waiting = engine.render(Conversation(())) if call == "render" else engine.tokenize("a")
    task: asyncio.Future[object] = asyncio.ensure_future(waiting)
    await asyncio.wait({task}, timeout=0.1)
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineUnreachableError, match="has died") as caught:
        await task
    assert not caught.value.retryable
    await engine.aclose()


async def test_only_an_abort_waits_for_the_step_under_way(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[str] = []

    async def remember(self: LlamaServerEngine, session: str) -> None:
        settled.append(session)

    monkeypatch.setattr(LlamaServerEngine, "settled", remember)
    engine = EmbeddedEngine(model, ctx=512)
    await collect(engine, asked([1], 3, session="whole"))
    assert settled == []
    stream = engine.stream(asked([1], 100, session="left"))
    await stream.__anext__()
    await stream.aclose()
    assert settled == ["left"]
    await engine.aclose()


async def test_an_error_that_is_no_death_stays_what_it_is(model: Path) -> None:
    engine = EmbeddedEngine(model, ctx=256, parallel=2)
    with pytest.raises(EngineError, match="the context holds 256"):
        await collect(engine, asked([0] * 256))
    await engine.aclose()


_PARENT = """
import asyncio, sys
from relaygen.engines.embedded import EmbeddedEngine

async def main():
    engine = EmbeddedEngine(sys.argv[1], ctx=256)
    task = asyncio.ensure_future(engine.info())
    while engine.pid is None:
        await asyncio.sleep(0.01)
    if "hangs" not in sys.argv[1]:
        await task
    print(engine.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["toy", "hangs"])
def test_the_child_ends_when_the_parent_is_killed(tmp_path: Path, name: str) -> None:
    model = tiny(tmp_path / f"{name}.gguf")
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, model], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    if name == "hangs":
        asyncio.run(
            until(model.with_suffix(".json").exists)
        )  # it is loading, the interpreter locked
    assert not gone(pid)
    parent.kill()
    parent.communicate()
    asyncio.run(until(lambda: gone(pid)))
