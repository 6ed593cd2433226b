"""What tokens cost on this machine's accelerator: random weights in the shapes of a real pair.

    python benchmarks/gpu_physics.py --out physics.json
    relaygen plan --costs physics.json --utilization 0.7 --segment-tokens 15

Needs torch and, for the shapes of Qwen3-32B and Qwen3-1.7B in bfloat16, 69 GB for the weights and
0.4 MB for each token of each sequence; what does not fit is skipped and named. Nothing is fetched.
``--shapes tiny --device cpu`` shows that it works.

Measured, by context length and batch: a decode step; reading 1 to 256 tokens at once (catch-up),
with the next token coming out of it; and a whole hand-off, from the ids that one model has written
to the first token of the other, by way of the host. Plain torch with fused projections; on CUDA
each step is replayed as a CUDA graph. The values of weights decide nothing about time, but random
ones cannot show what drafting gains.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from _random_model import SHAPES, Model, Shape, build, forward, make_room, mask_of

KIND = "relaygen gpu_physics 1"
NOT_MEASURED = (
    "HTTP and the engine's scheduler",
    "sampling beyond the most probable token",
    "text of tokens and the search for cues",
    "drafting",
    "the engine's own kernels",
    "tensor parallelism",
    "quantized weights",
    "requests of both models at the same time",
)


@dataclass(frozen=True)
class Setting:
    """How to measure."""

    device: str
    small_device: str
    dtype: str
    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    tokens: tuple[int, ...]
    runs: int
    steps: int
    graphs: bool

    def device_of(self, role: str) -> str:
        """Where this model is."""
        return self.device if role == "large" else self.small_device


@dataclass
class Step:
    """One shape of work, ready to be done again and again.

    Attributes:
        ids: takes the tokens to read.
        best: holds the most probable next tokens.
        go: does it; returns before it is done on CUDA.
    """

    ids: Any
    best: Any
    go: Callable[[], object]


def prepared(model: Model, batch: int, tokens: int, start: int, *, graphs: bool) -> Step:
    """Reading so many tokens of each sequence behind `start`, and choosing the next one."""
    import torch

    device = model.norm.device
    ids = torch.randint(model.shape.vocabulary, (batch, tokens), device=device)
    best = torch.zeros(batch, dtype=torch.long, device=device)
    mask = mask_of(model, tokens, start)

    def go() -> None:
        best.copy_(forward(model, ids, start, mask).argmax(-1))

    if not graphs:
        go()
        return Step(ids, best, go)
    aside = torch.cuda.Stream(device)
    aside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(aside):
        for _ in range(3):  # libraries choose and allocate before anything is captured
            go()
    torch.cuda.current_stream(device).wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph):
        go()
    return Step(ids, best, graph.replay)


def timed(work: Callable[[], object], device: str, *, runs: int, steps: int) -> list[float]:
    """Milliseconds of one step in each run."""
    import torch

    def wait() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)

    work()
    wait()
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(steps):
            work()
        wait()
        found.append(1000.0 * (time.perf_counter() - start) / steps)
    return found


def spread(found: Sequence[float]) -> dict[str, float]:
    """The median, and what was seen."""
    return {"ms": statistics.median(found), "low": min(found), "high": max(found)}


def handing(writer: Step, reader: Step) -> Callable[[], object]:
    """From ids on the writer's device to the reader's first token on the host."""
    import torch

    kept = reader.ids.tolist()

    def go() -> None:
        # Whether it is time to hand over is decided on the host.
        for text, written in zip(kept, writer.best.tolist(), strict=True):
            text[-1] = written
        reader.ids.copy_(torch.tensor(kept))
        reader.go()
        reader.best.tolist()

    return go


def rows(models: dict[str, Model], setting: Setting, tables: dict[str, list[Any]]) -> Iterator[str]:
    """Fill the tables; yields what is being done."""
    import torch

    full: tuple[type[BaseException], ...] = (torch.cuda.OutOfMemoryError,)
    graphs, often = setting.graphs, {"runs": setting.runs, "steps": setting.steps}
    longest = max(setting.tokens)
    for context, batch in product(setting.contexts, setting.batches):
        steps: dict[tuple[str, int], Step] = {}
        read: dict[tuple[str, int], float] = {}
        for role, model in models.items():
            yield f"{model.shape.name}, context {context}, batch {batch}"
            place = {"role": role, "context": context, "batch": batch}
            for tokens in (1, *(n for n in setting.tokens if n > 1)):
                try:
                    if tokens == 1:
                        make_room(model, batch, context + longest)
                    step = prepared(model, batch, tokens, context, graphs=graphs)
                    found = timed(step.go, setting.device_of(role), **often)
                except full:
                    tables["skipped"].append({**place, "tokens": tokens, "why": "out of memory"})
                    torch.cuda.empty_cache()
                    break
                steps[role, tokens] = step
                read[role, tokens] = statistics.median(found)
                if tokens == 1:
                    tables["decode"].append({**place, **spread(found)})
                tables["catch_up"].append({**place, "tokens": tokens, **spread(found)})
        for (role, tokens), step in steps.items():
            other = steps.get(("small" if role == "large" else "large", 1))
            if other is None:
                continue
            found = timed(handing(other, step), setting.device_of(role), runs=setting.runs, steps=1)
            place = {"to": role, "context": context, "batch": batch, "tokens": tokens}
            tables["handoff"].append({**place, **spread(found), "reading_ms": read[role, tokens]})


def environment(setting: Setting) -> dict[str, Any]:
    """What these figures belong to."""
    import torch

    told = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
    }
    if setting.device.startswith("cuda"):
        devices = [torch.device(name) for name in {setting.device, setting.small_device}]
        told["cuda"] = torch.version.cuda
        told["devices"] = [torch.cuda.get_device_name(device) for device in devices]
    return told


def measure(
    setting: Setting, shapes: tuple[Shape, Shape], say: Callable[[str], object]
) -> dict[str, Any]:
    """Everything, as it is written to the file."""
    import torch

    torch.manual_seed(0)
    length = max(setting.contexts) + max(setting.tokens)
    models: dict[str, Model] = {}
    tables: dict[str, list[Any]] = {
        name: [] for name in ("decode", "catch_up", "handoff", "skipped")
    }
    with torch.inference_mode():
        for role, shape in zip(("large", "small"), shapes, strict=True):
            say(f"building {shape.name}")
            models[role] = build(
                shape,
                device=setting.device_of(role),
                dtype=getattr(torch, setting.dtype),
                length=length,
            )
        for line in rows(models, setting, tables):
            say(line)
    return {
        "kind": KIND,
        "environment": environment(setting),
        "setting": asdict(setting),
        "models": {
            role: {**asdict(model.shape), "parameters": model.shape.parameters}
            for role, model in models.items()
        },
        "not_measured": NOT_MEASURED,
        **tables,
    }


def numbers(text: str) -> tuple[int, ...]:
    found = tuple(sorted({int(part) for part in text.split(",")}))
    if found[0] < 1:
        raise argparse.ArgumentTypeError("numbers from 1, separated by commas")
    return found


def parsed(arguments: Iterable[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", choices=SHAPES, default="qwen3")
    parser.add_argument("--device", default="cuda", help="of the large model")
    parser.add_argument("--small-device", help="by default the large model's")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--contexts", type=numbers, default=(512, 4096, 16384), metavar="N,…")
    parser.add_argument("--batches", type=numbers, default=(1, 4, 16), metavar="N,…")
    parser.add_argument(
        "--tokens",
        type=numbers,
        default=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        metavar="N,…",
        help="to catch up with",
    )
    parser.add_argument("--runs", type=int, default=9, help="of which the median counts")
    parser.add_argument("--steps", type=int, default=8, help="in each run")
    parser.add_argument("--no-graphs", action="store_true", help="launch each kernel by itself")
    parser.add_argument("--out", type=Path, help="by default the standard output")
    return parser.parse_args(None if arguments is None else list(arguments))


def main(arguments: Iterable[str] | None = None) -> None:
    asked = parsed(arguments)
    setting = Setting(
        device=asked.device,
        small_device=asked.small_device or asked.device,
        dtype=asked.dtype,
        contexts=asked.contexts,
        batches=asked.batches,
        tokens=asked.tokens,
        runs=asked.runs,
        steps=asked.steps,
        graphs=asked.device.startswith("cuda") and not asked.no_graphs,
    )

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    text = json.dumps(measure(setting, SHAPES[asked.shapes], say), indent=1) + "\n"
    if asked.out is None:
        sys.stdout.write(text)
    else:
        asked.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
