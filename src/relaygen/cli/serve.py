"""``relaygen serve``: the pair as one OpenAI-compatible model."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from relaygen._errors import MissingExtraError
from relaygen._profile import Profile
from relaygen._types import Role
from relaygen.cli import _options
from relaygen.cli._config import config_option
from relaygen.cli._help import GroupedCommand, Number, collecting, option
from relaygen.cli._options import PairOptions, pair_options
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL
from relaygen.policies import Policy
from relaygen.serve._engines import AFFINITY, EngineOptions, client_keys, engine_at
from relaygen.serve._settings import Settings, traces_url

if TYPE_CHECKING:
    from relaygen._api import Relay

ENGINES = "Engines named by a URL"
SERVER = "The server"
REPLIES = "Replies"
FAILURES = "Failures and limits"
SECURITY = "Security"

_URL_PATIENCE_S, _LOAD_PATIENCE_S = 30.0, 600.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PACKAGES = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "prometheus_client")
_KINDS = click.Choice(["auto", "vllm", "llama-server", "sglang", "completions"])
_LONGEST_S = 7 * 24 * 3600.0
_SECONDS = Number(min=0, min_open=True, max=_LONGEST_S)
_COUNT = click.IntRange(min=1)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_S, _E = Settings(), EngineOptions()
DEFAULTS: Mapping[Role, str] = {"large": EMBEDDED_LARGE.name, "small": EMBEDDED_SMALL.name}

if TYPE_CHECKING:
    _Texts = click.ParamType[str]
else:
    _Texts = click.ParamType  # it takes no argument before click 8.3


class _Lines(_Texts):
    """A text that may hold spaces: in the environment, one a line."""

    name = "text"

    def split_envvar_value(self, rv: str) -> list[str]:
        """The lines."""
        return [line.strip() for line in rv.splitlines() if line.strip()]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As it is."""
        return str(value)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What is ours of the flags; see `Settings` for most of them."""

    host: str
    port: int
    root_path: str
    otlp_endpoint: str | None
    served_model_name: str
    reasoning_field: Any
    annotate: bool
    strict: bool
    default_max_tokens: int
    pause: Any
    rescue: bool
    no_hints: bool
    max_concurrent: int
    max_queue: int
    max_body: int
    write_timeout: float
    drain: float
    api_key_file: Path | None
    cors_origin: tuple[str, ...]

    def settings(
        self, keys: tuple[str, ...], environment: Mapping[str, str], *, urls: bool
    ) -> Settings:
        """As the server takes them.

        Args:
            keys: of clients.
            environment: of the process.
            urls: whether the engines are servers, where delegation may not pay.

        Raises:
            UsageError: a value makes no sense.
        """
        return Settings(
            served_model_name=self.served_model_name,
            api_keys=keys,
            reasoning_field=self.reasoning_field,
            annotate=self.annotate,
            strict=self.strict,
            rescue=self.rescue,
            hints=not self.no_hints,
            pause=self.pause or ("auto" if urls else "off"),
            default_max_tokens=self.default_max_tokens,
            max_concurrent=self.max_concurrent,
            max_queue=self.max_queue,
            max_body=self.max_body,
            write_timeout=self.write_timeout,
            drain=self.drain,
            cors_origins=self.cors_origin,
            root_path=self.root_path.rstrip("/"),
            traces_url=traces_url(self.otlp_endpoint, environment),
        )


def _role_options(role: str, timeout: float) -> list[Any]:
    return [
        option(
            ENGINES,
            f"--{role}-model",
            metavar="NAME",
            help=f"The {role} model's name at its server. Default: the first it has.",
        ),
        option(
            ENGINES,
            f"--{role}-engine",
            type=_KINDS,
            default="auto",
            show_default=True,
            help=f"The kind of the {role} model's server; auto asks it.",
        ),
        option(
            ENGINES,
            f"--{role}-context",
            type=_COUNT,
            metavar="TOKENS",
            help="Length of its context, where a server of the kind completions does not tell.",
        ),
        option(
            ENGINES,
            f"--{role}-timeout",
            type=_SECONDS,
            metavar="SECONDS",
            default=timeout,
            show_default=True,
            help="It counts as stalled after so long without a token.",
        ),
        option(
            ENGINES,
            f"--{role}-key-file",
            type=_FILE,
            metavar="FILE",
            help=f"Holds its server's API key; or set RELAYGEN_SERVE_{role.upper()}_KEY.",
        ),
    ]


engine_options = collecting(
    EngineOptions,
    "engines",
    [
        *_role_options("large", _E.large_timeout),
        *_role_options("small", _E.small_timeout),
        option(
            ENGINES,
            "--first-timeout",
            type=_SECONDS,
            metavar="SECONDS",
            default=_E.first_timeout,
            show_default=True,
            help="The large model's first token may take so long: it computes the prompt then.",
        ),
        option(
            ENGINES,
            "--connect-timeout",
            type=_SECONDS,
            metavar="SECONDS",
            default=_E.connect_timeout,
            show_default=True,
            help="A connection may take so long.",
        ),
        option(
            ENGINES,
            "--engine-header",
            type=_Lines(),
            multiple=True,
            metavar="'NAME: VALUE'",
            default=AFFINITY,
            show_default=True,
            help="Header that both get; {session} is one value per generation, for routers that "
            "keep a conversation on one replica. Repeatable.",
        ),
        option(
            ENGINES,
            "--ca",
            type=_FILE,
            metavar="FILE",
            help="Certificates to trust for https, in PEM.",
        ),
        option(
            ENGINES,
            "--proxy",
            metavar="URL",
            help="HTTP proxy on the way to the engines; the environment's is not used.",
        ),
        option(
            ENGINES,
            "--template",
            type=_FILE,
            metavar="FILE",
            help="Chat template (Jinja) for servers of the kind completions, or an old SGLang.",
        ),
    ],
)

server_options = collecting(
    ServerOptions,
    "server",
    [
        option(SERVER, "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True,
               help="Where to listen."),
        option(SERVER, "--port", type=click.IntRange(0, 65535), metavar="N", default=8000,
               show_default=True, help="Likewise; 0 takes a free one."),
        option(SERVER, "--root-path", metavar="PATH", default="",
               help="Path under which a proxy in front has this server, as /llm."),
        option(SERVER, "--served-model-name", metavar="NAME", default=_S.served_model_name,
               show_default=True,
               help="What clients call the pair; NAME@POLICY and NAME@LEVEL pick one."),
        option(SERVER, "--otlp-endpoint", metavar="URL",
               help="OpenTelemetry collector that gets traces by OTLP over HTTP, as "
               "http://127.0.0.1:4318. Default: OTEL_EXPORTER_OTLP_ENDPOINT, else no traces."),
        option(REPLIES, "--reasoning-field", default=_S.reasoning_field, show_default=True,
               type=click.Choice(["reasoning_content", "reasoning", "both"]),
               help="Under which name the thinking is sent."),
        option(REPLIES, "--annotate", is_flag=True,
               help="Each chunk says which model wrote it, unless the request decides."),
        option(REPLIES, "--strict", is_flag=True,
               help="Refuse unknown request fields, instead of naming them in a header."),
        option(REPLIES, "--default-max-tokens", type=_COUNT, metavar="N",
               default=_S.default_max_tokens, show_default=True,
               help="Limit of a chat request that sets none."),
        option(FAILURES, "--pause", type=click.Choice(["auto", "off"]),
               help="auto pauses a conversation's delegation while it costs more time than it "
               "saves. Default: auto where both engines are URLs, else off."),
        option(FAILURES, "--rescue", is_flag=True,
               help="Where the large engine dies in an answer, the small model finishes it."),
        option(FAILURES, "--no-hints", is_flag=True,
               help="Never let an engine stop by itself at a token that hands over."),
        option(FAILURES, "--max-concurrent", type=_COUNT, metavar="N",
               default=_S.max_concurrent, show_default=True, help="Requests that run at once."),
        option(FAILURES, "--max-queue", type=click.IntRange(min=0), metavar="N",
               default=_S.max_queue, show_default=True,
               help="Requests that wait; more are answered 429."),
        option(FAILURES, "--max-body", type=_COUNT, metavar="BYTES", default=_S.max_body,
               show_default=True, help="Largest request."),
        option(FAILURES, "--write-timeout", type=_SECONDS, metavar="SECONDS",
               default=_S.write_timeout, show_default=True,
               help="A client is dropped that for so long does not read, or does not send its "
               "whole request."),
        option(FAILURES, "--drain", type=Number(0, _LONGEST_S), metavar="SECONDS",
               default=_S.drain, show_default=True,
               help="Running requests may go on for so long after SIGTERM or Ctrl-C."),
        option(SECURITY, "--api-key-file", type=_FILE, metavar="FILE",
               help="Keys of clients, one a line; also the environment's "
               "RELAYGEN_SERVE_API_KEYS, separated by commas. Default: no key is asked for."),
        option(SECURITY, "--cors-origin", multiple=True, metavar="ORIGIN",
               help="Origin whose pages may call, as https://ui.example; * for all. Repeatable."),
    ],
)  # fmt: skip


@click.command(
    cls=GroupedCommand,
    context_settings={"auto_envvar_prefix": "RELAYGEN_SERVE"},
    epilog="Every flag has a twin in the environment: RELAYGEN_SERVE_MAX_QUEUE for --max-queue. "
    "A flag wins over the environment, and that over the --config file.",
)
@pair_options
@engine_options
@server_options
@config_option(SERVER)
def serve(pair: PairOptions, engines: EngineOptions, server: ServerOptions) -> None:
    """Serve the pair as one model to any OpenAI client.

    The engines are two servers (vLLM, llama-server, or any with OpenAI's completions), each named
    by its URL; without URLs both models run embedded.
    """
    profile, policy = pair.plan()
    keys = client_keys(server.api_key_file, os.environ)
    urls = all(_options.is_url(spec) for spec in (pair.large, pair.small))
    settings = server.settings(keys, os.environ, urls=urls)
    try:
        from relaygen.serve._app import make_app
        from relaygen.serve._server import listen
        from relaygen.serve._server import serve as run
        from relaygen.serve._tracing import check_extra
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise MissingExtraError(error.name, extra="serve") from None
    untraced = ""
    if settings.traces_url:
        try:
            check_extra()
        except MissingExtraError as error:
            if server.otlp_endpoint is not None:
                raise
            untraced = f"no traces, which the environment asks for: {error}; {error.hint}"
            settings = replace(settings, traces_url="")

    with listen(server.host, server.port) as sock:  # an address that is taken shows at once
        try:
            relay = open_engines(pair, engines, profile, policy)
        except MissingExtraError as error:
            error.hint += "; or give --large and --small the URLs of two servers"
            raise
        host = f"[{server.host}]" if ":" in server.host else server.host
        address = f"http://{host}:{sock.getsockname()[1]}{settings.root_path}"
        at_level = f" at level {profile.level}" if profile.level else ""
        say(
            f"serving {settings.served_model_name!r} at {address}/v1, policy {pair.policy}, "
            f"profile {profile.name}{at_level}; docs at {address}/docs"
        )
        if server.host not in _LOOPBACK and not keys:
            say(
                f"warning: {server.host} is reachable from outside and no API key is asked for; "
                "set --api-key-file"
            )
        if urls and _defaulted("profile"):
            say(
                f"warning: profile {profile.name} is the embedded pair's and does not look for "
                "<think>; name your pair's with --profile (`relaygen profile list`)"
            )
        if untraced:
            say(f"warning: {untraced}")
        app = make_app(relay, settings, policy=pair.policy)
        run(app, sock, started=_report(relay, urls))


def open_engines(
    pair: PairOptions, engines: EngineOptions, profile: Profile, policy: Policy
) -> Relay:
    """The relay over servers, embedded models, or one of each."""
    specs: dict[Role, str | None] = {"large": pair.large, "small": pair.small}
    found: dict[Role, Any] = {
        role: engine_at(spec, role, engines, os.environ)
        for role, spec in specs.items()
        if spec is not None and _options.is_url(spec)
    }
    if not found:
        return _options.open_relay(pair, profile, policy)
    from relaygen._api import Relay

    for role, spec in specs.items():
        if role not in found:
            found[role] = _options.located(spec or DEFAULTS[role], pair.no_mirror)
    return Relay(
        **found,
        profile=profile,
        policy=policy,
        ctx=pair.ctx,
        threads=pair.threads,
        ngl=pair.ngl,
        spec=pair.spec,
        small_spec=pair.small_spec,
    )


def _defaulted(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.DEFAULT


def say(line: str) -> None:
    """A line for the operator."""
    click.echo(line, err=True)
    sys.stderr.flush()


def _report(relay: Relay, urls: bool) -> Callable[[], Awaitable[None]]:
    async def report() -> None:
        from relaygen._checks import check_pair

        patience = _URL_PATIENCE_S if urls else _LOAD_PATIENCE_S
        for finding in await check_pair(relay.engines, prefix=urls, patience=patience):
            say(str(finding))

    return report
