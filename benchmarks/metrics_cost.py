"""What counting and tracing cost the server: CPU per streamed token, with and without.

    python benchmarks/metrics_cost.py

One process, no sockets: the application streams a text of two scripted engines, in turn with nobody
watching, as it is, and with traces whose spans are thrown away. The process' CPU time is divided by
the tokens; the median of the rounds (of what each round took more) is printed with the quartiles.
Then a page of ``/metrics``.
Needs the extra ``[serve]``, and ``[otel]`` for the third row.
"""

from __future__ import annotations

import asyncio
import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from relaygen import Relay
from relaygen.engines.scripted import ScriptedEngine
from relaygen.serve._app import make_app
from relaygen.serve._logs import Log
from relaygen.serve._service import Service
from relaygen.serve._settings import Settings
from relaygen.serve._watch import Watcher

SENTENCE = "We look at word {0} of the text here. So the small model writes {0} of them or so. "
SENTENCES = 30
ROUNDS = 60
WARM_UP = 3
BODY = json.dumps(
    {"messages": [{"role": "user", "content": "?"}], "stream": True, "temperature": 0}
).encode()


def served(traces: Any = None) -> Any:
    """An application over two engines that take no time."""
    script = "".join(SENTENCE.format(number) for number in range(SENTENCES))
    relay = Relay(ScriptedEngine(script), ScriptedEngine(script), profile="embedded")
    return make_app(relay, Settings(default_max_tokens=8000), log=Log(io.StringIO()), traces=traces)


async def stream(app: Any) -> float:
    """CPU seconds of one streamed chat."""
    sent = iter([{"type": "http.request", "body": BODY, "more_body": False}])
    stay = asyncio.Event()

    async def receive() -> Any:
        message = next(sent, None)
        if message is None:
            await stay.wait()
        return message

    async def send(message: Any) -> None:
        """Nobody reads."""

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "raw_path": b"",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"content-type", b"application/json")],
        "state": {},
    }
    began = time.process_time()
    await app(scope, receive, send)
    return time.process_time() - began


def unwatched(app: Any) -> Any:
    """The application with nobody told of anything."""
    service: Service = app.state.service
    service.watcher._observers = Watcher()._observers
    return app


def traced() -> Any:
    """An application whose spans are made and thrown away."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    from relaygen.serve._tracing import Traces

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Nowhere()))
    return served(Traces(provider))


def line(name: str, values: list[float], per: float, unit: str) -> str:
    """Median and quartiles."""
    low, middle, high = (1e6 * value / per for value in statistics.quantiles(values, n=4))
    return f"{name:12} {middle:8.2f} {unit} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Measure and print."""
    makers: dict[str, Callable[[], Any]] = {
        "nobody": lambda: unwatched(served()),
        "metrics": served,
        "with traces": traced,
    }
    apps = {name: make() for name, make in makers.items()}
    taken: dict[str, list[float]] = {name: [] for name in apps}
    for number in range(WARM_UP + ROUNDS):
        for name, app in apps.items():
            seconds = asyncio.run(stream(app))
            if number >= WARM_UP:
                taken[name].append(seconds)
    text = apps["metrics"].state.service.metrics.page().decode()
    counts = dict(row.rsplit(" ", 1) for row in text.splitlines() if not row.startswith("#"))
    chats = WARM_UP + ROUNDS
    tokens = (
        sum(float(n) for k, n in counts.items() if k.startswith("relaygen_tokens_total")) / chats
    )
    handed = sum(float(n) for k, n in counts.items() if k.startswith("relaygen_handoffs_")) / chats
    print(f"{tokens:.0f} tokens and {handed:.0f} hand-offs a chat, {ROUNDS} rounds; CPU:")
    alone = taken.pop("nobody")
    print(line("nobody", alone, tokens, "us a token"))
    for name, values in taken.items():
        more = [value - base for value, base in zip(values, alone, strict=True)]
        print(line(name, more, tokens, "us a token more"))
    metrics = apps["metrics"].state.service.metrics
    pages = []
    for _ in range(ROUNDS):
        began = time.process_time()
        metrics.page()
        pages.append(time.process_time() - began)
    print(line("page", pages, 1, f"us for {len(counts)} series"))


if __name__ == "__main__":
    main()
