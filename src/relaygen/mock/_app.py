"""The ASGI application: vLLM's routes, and the mock's own below ``/mock``."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._errors import MissingExtraError, UsageError
from .._version import __version__
from ._clock import Receive
from ._config import MockConfig
from ._failures import Failure
from ._generation import Engine
from ._parameters import BadRequestError, read_ids
from ._routes import (
    ChatRoute,
    CompletionRoute,
    Scope,
    Send,
    check_model,
    parse_body,
    render_body,
    send_json,
)
from ._vocabulary import byte_level

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

App = Callable[[Scope, Receive, Send], Awaitable[None]]


def make_app(config: MockConfig) -> App:
    """A mock engine as an ASGI application.

    Raises:
        UsageError: there is no such trace.
        MissingExtraError: starlette is not installed.
    """
    try:
        from starlette.responses import JSONResponse, PlainTextResponse, Response
        from starlette.routing import Route, Router
    except ImportError:
        raise MissingExtraError("starlette", extra="serve") from None
    engine = Engine(config)
    vocabulary = engine.vocabulary

    async def body_of(request: Request) -> dict[str, Any]:
        return parse_body(await request.body())

    async def tokenize(request: Request) -> Response:
        body = await body_of(request)
        check_model(engine, body)
        special = body.get("add_special_tokens")
        if "messages" in body:
            ids = vocabulary.encode(render_body(engine, body), special=True)
        elif isinstance(body.get("prompt"), str):
            ids = vocabulary.encode(body["prompt"], special=True)
            if special in (None, True):
                engine.player.remember(ids)
        else:
            raise BadRequestError("Field required: prompt", kind="Bad Request", param="prompt")
        strings = None
        if body.get("return_token_strs"):
            strings = [byte_level(vocabulary.data(id)) for id in ids]
        return JSONResponse(
            {
                "count": len(ids),
                "max_model_len": config.context,
                "tokens": ids,
                "token_strs": strings,
            }
        )

    async def detokenize(request: Request) -> Response:
        body = await body_of(request)
        check_model(engine, body)
        data = vocabulary.decode(read_ids(body.get("tokens"), "tokens"))
        return JSONResponse({"prompt": data.decode(errors="replace")})

    async def models(request: Request) -> Response:
        model = {
            "id": config.model,
            "object": "model",
            "created": 0,
            "owned_by": "vllm",
            "root": config.model,
            "parent": None,
            "max_model_len": config.context,
        }
        return JSONResponse({"object": "list", "data": [model]})

    async def health(request: Request) -> Response:
        return Response()

    async def version(request: Request) -> Response:
        return JSONResponse({"version": f"0.32.0+relaygen.{__version__}"})

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(_metrics(engine))

    async def log(request: Request) -> Response:
        if request.method == "DELETE":
            engine.log.clear()
            return JSONResponse({})
        return JSONResponse(engine.log.entries(request.query_params.get("session")))

    async def failures(request: Request) -> Response:
        if request.method == "DELETE":
            engine.failures.clear()
        elif request.method == "POST":
            try:
                planned = json.loads(await request.body())
                for one in planned if isinstance(planned, list) else [planned]:
                    engine.failures.add(Failure.of(one))
            except (ValueError, TypeError) as error:
                raise BadRequestError(str(error)) from None
        return JSONResponse(engine.failures.pending())

    async def cache(request: Request) -> Response:
        if request.method == "DELETE":
            engine.cache.clear()
        blocks = {"blocks": len(engine.cache), "capacity": engine.cache.capacity}
        counts = {name: getattr(engine.cache, name) for name in ("queries", "hits", "evicted")}
        return JSONResponse(blocks | counts)

    async def trace(request: Request) -> Response:
        played = engine.trace
        shown = {"name": played.name, "thinking": played.thinking, "text": played.text}
        return JSONResponse({**shown, "ids": engine.player.ids})

    router = Router(
        [
            Route(CompletionRoute.path, CompletionRoute(engine), methods=["POST"]),
            Route(ChatRoute.path, ChatRoute(engine), methods=["POST"]),
            Route("/tokenize", tokenize, methods=["POST"]),
            Route("/detokenize", detokenize, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/ping", health, methods=["GET", "POST"]),
            Route("/version", version),
            Route("/metrics", metrics),
            Route("/mock/log", log, methods=["GET", "DELETE"]),
            Route("/mock/failures", failures, methods=["GET", "POST", "DELETE"]),
            Route("/mock/cache", cache, methods=["GET", "DELETE"]),
            Route("/mock/trace", trace),
        ],
        redirect_slashes=False,
    )
    return _guarded(router, config.api_key)


def _guarded(router: App, api_key: str) -> App:
    """Errors in vLLM's form, and its bare 401 below ``/v1``."""
    expected = f"Bearer {api_key}".encode()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if api_key and scope["type"] == "http" and scope["path"].startswith("/v1"):
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, expected):
                await send_json(send, {"error": "Unauthorized"}, 401)
                return
        try:
            await router(scope, receive, send)
        except BadRequestError as error:
            await send_json(send, error.body, error.status)
        except UsageError as error:
            await send_json(send, BadRequestError(str(error)).body, 400)

    return app


def _metrics(engine: Engine) -> str:
    """What vLLM exports, in Prometheus' text format."""
    log, cache = engine.log, engine.cache
    labels = f'engine="0",model_name="{engine.config.model}"'
    values: Mapping[str, tuple[str, float]] = {
        "num_requests_running": ("gauge", log.running),
        "num_requests_waiting": ("gauge", 0),
        "kv_cache_usage_perc": ("gauge", len(cache) / cache.capacity if cache.capacity else 0.0),
        "prefix_cache_queries_total": ("counter", cache.queries),
        "prefix_cache_hits_total": ("counter", cache.hits),
        "prompt_tokens_total": ("counter", log.prompt_tokens),
        "generation_tokens_total": ("counter", log.generation_tokens),
    }
    lines = []
    for name, (kind, value) in values.items():
        lines.append(f"# TYPE vllm:{name.removesuffix('_total')} {kind}")
        lines.append(f"vllm:{name}{{{labels}}} {value}")
    lines.append("# TYPE vllm:request_success counter")
    for reason, count in log.finished.items():
        lines.append(f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {count}')
    return "\n".join(lines) + "\n"
