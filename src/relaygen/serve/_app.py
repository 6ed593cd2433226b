"""The ASGI application: routes, their OpenAPI page, errors in OpenAI's form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .._api import Relay
from .._version import __version__
from ._errors import ApiError, internal, not_found
from ._guard import Guard, Keys
from ._logs import Log
from ._metrics import CONTENT_TYPE
from ._openapi import describe
from ._playground import add_playground
from ._service import ANNOTATE_HEADER, IGNORED_HEADER, Service, response
from ._settings import Settings
from ._tracing import Traces, open_traces

_DESCRIPTION = "A large and a small language model write one answer together."


def make_app(
    relay: Relay,
    settings: Settings | None = None,
    *,
    policy: str = "",
    log: Log | None = None,
    traces: Traces | None = None,
) -> FastAPI:
    """The application over a pair. Its `state.service` is what stops it gently.

    Args:
        relay: the pair; closed with the application's end.
        settings: how to serve.
        policy: how the relay's own policy is written, for replies; its name if left out.
        log: None: lines of JSON on the standard error.
        traces: where spans go; None: where the settings say. Closed with the application's end.

    Raises:
        MissingExtraError: the settings want traces and OpenTelemetry is not installed.
    """
    settings = settings or Settings()
    if traces is None and settings.traces_url:
        traces = open_traces(settings.traces_url)
    service = Service(relay, settings, policy=policy, log=log, traces=traces)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            try:
                await relay.aclose()
            finally:  # an engine of somebody's own may fail to close
                if traces is not None:
                    await asyncio.to_thread(traces.close)

    app = FastAPI(
        title="RelayGen",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    _add_routes(app, service)
    _answer_heads(app)
    page = add_playground(app)
    _add_handlers(app)
    app.add_middleware(
        Guard,
        keys=Keys(settings.api_keys),
        root_path=settings.root_path,
        log=service.log,
        watcher=service.watcher,
        public=(*page, *_described(app)),
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id", ANNOTATE_HEADER],
            expose_headers=["x-request-id", IGNORED_HEADER, "retry-after"],
        )
    describe(app, settings)
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["operations"])
    async def health() -> Response:
        """The process is alive."""
        return JSONResponse({"status": "ok"})

    @app.get("/ready", tags=["operations"])
    async def ready() -> Response:
        """The large engine answers; 503 where it does not, or while the server drains."""
        return await service.ready()

    @app.get("/metrics", tags=["operations"])
    async def metrics() -> Response:
        """Counts for Prometheus."""
        return Response(service.metrics.page(), media_type=CONTENT_TYPE)

    @app.get("/v1/models", tags=["models"])
    async def models() -> Response:
        """The pair under its name, and with each policy."""
        cards = [service.models.card(name) for name in service.models.names()]
        return JSONResponse({"object": "list", "data": cards})

    @app.get("/v1/models/{model:path}", tags=["models"])
    async def model(model: str) -> Response:
        """One of them."""
        try:
            return JSONResponse(service.models.card(model))
        except ApiError as error:
            return response(error)

    @app.post("/v1/chat/completions", tags=["generation"])
    async def chat(request: Request) -> Response:
        """A chat completion, streamed or whole."""
        return await service.complete(request, "chat")

    @app.post("/v1/completions", tags=["generation"])
    async def completions(request: Request) -> Response:
        """A text continued as it is, streamed or whole."""
        return await service.complete(request, "text")

    async def absent(request: Request) -> Response:
        path = request.url.path.rpartition("/v1/")[2]
        return response(
            not_found(f"/v1/{path} is not served; use /v1/chat/completions", code="unknown_url")
        )

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    for path in ("/v1/responses", "/v1/messages"):
        for rest in ("", "/{rest:path}"):
            app.add_api_route(path + rest, absent, methods=methods, include_in_schema=False)


def _answer_heads(app: FastAPI) -> None:
    """HEAD wherever GET is: that is how some load balancers ask, and FastAPI leaves it out."""
    for route in list(app.routes):
        if isinstance(route, APIRoute) and route.methods == {"GET"}:
            app.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)


def _described(app: FastAPI) -> tuple[str, ...]:
    """The paths of the API's description, which needs no key: it says nothing about this server but
    that it asks for one, and a browser sends none with a page."""
    paths = (app.openapi_url, app.docs_url, app.redoc_url, app.swagger_ui_oauth2_redirect_url)
    return tuple(path for path in paths if path)


def _add_handlers(app: FastAPI) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == HTTPStatus.NOT_FOUND:
            return response(not_found("there is no such path", code="unknown_url"))
        message = HTTPStatus(error.status_code).phrase.lower()
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            message = f"{request.method} is not allowed here"
        problem = ApiError(
            error.status_code, message, code="method_not_allowed", headers=error.headers
        )
        return response(problem)

    async def unusable(request: Request, error: Exception) -> Response:
        return response(ApiError(400, "the request makes no sense"))

    async def broken(request: Request, error: Exception) -> Response:
        return response(internal())

    handlers: tuple[tuple[Any, Any], ...] = (
        (HTTPException, refused),
        (RequestValidationError, unusable),
        (Exception, broken),
    )
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)
