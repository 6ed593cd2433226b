"""How the server behaves; the command line, the environment and a file fill this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .._errors import UsageError

ReasoningField = Literal["reasoning_content", "reasoning", "both"]
"""Under which name the thinking is sent: both names are in use among clients."""


_TRACES_PATH = "/v1/traces"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything about serving but the engines.

    Attributes:
        served_model_name: of the pair; ``name@policy`` picks a policy.
        api_keys: any of which a client must send; empty for an open server.
        reasoning_field: name of the thinking in replies.
        annotate: whether each chunk says which model wrote it, unless the request decides.
        strict: whether unknown request fields are refused, instead of ignored and named.
        rescue: whether the small model finishes where the large engine dies.
        hints: whether engines may be told ids at which to stop by themselves.
        pause: ``auto`` pauses a conversation's delegation while it costs more than it saves.
        retries: tries more of the large engine before a request's first token.
        default_max_tokens: of a chat completion without a limit of its own; engines end at their
            context anyway.
        max_concurrent: requests that generate at once.
        max_queue: requests that wait beyond those; more are answered 429.
        max_body: bytes of a request.
        write_timeout: seconds after which a client that does not read, or does not send its whole
            request, is dropped.
        ping: seconds of silence after which a stream gets a comment, so that proxies keep it.
        drain: seconds that running requests have after the server was told to stop.
        cors_origins: browsers' origins that may call; ``*`` for all.
        root_path: where a proxy in front mounts the server.
        traces_url: where spans are sent, by OTLP over HTTP; "" for nowhere.

    Raises:
        UsageError: a value makes no sense.
    """

    served_model_name: str = "relaygen"
    api_keys: tuple[str, ...] = ()
    reasoning_field: ReasoningField = "reasoning_content"
    annotate: bool = False
    strict: bool = False
    rescue: bool = False
    hints: bool = True
    pause: Literal["auto", "off"] = "off"
    retries: int = 2
    default_max_tokens: int = 16_384
    max_concurrent: int = 256
    max_queue: int = 256
    max_body: int = 16 * 1024 * 1024
    write_timeout: float = 60.0
    ping: float = 15.0
    drain: float = 30.0
    cors_origins: tuple[str, ...] = ()
    root_path: str = ""
    traces_url: str = ""

    def __post_init__(self) -> None:
        name = self.served_model_name
        if not name or "@" in name or not name.isprintable() or not name.isascii():
            raise UsageError(
                f"served-model-name {name!r} must be printable ASCII without @",
                hint="what follows an @ in a request's model picks the policy",
            )
        if self.root_path and not self.root_path.startswith("/"):
            raise UsageError(f"root-path must begin with /, not {self.root_path!r}")
        for key in self.api_keys:
            if not key.isascii() or not key.isprintable() or " " in key:
                raise UsageError("an API key holds other characters than printable ASCII")


def traces_url(collector: str | None, environment: Mapping[str, str]) -> str:
    """Where spans are sent; "" for nowhere.

    Args:
        collector: its address; None for what OpenTelemetry's own variables say, of which one holds
            such an address and the other, which goes before it, the whole address for traces.
        environment: of the process.

    Raises:
        UsageError: it is no address.
    """
    named = "--otlp-endpoint"
    if collector is None:
        if whole := environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""):
            return whole
        named = "OTEL_EXPORTER_OTLP_ENDPOINT"
        collector = environment.get(named, "")
        if not collector:
            return ""
    if not collector.startswith(("http://", "https://")):
        raise UsageError(
            f"{named} {collector!r} is not an address", hint="for example http://127.0.0.1:4318"
        )
    return collector.rstrip("/").removesuffix(_TRACES_PATH) + _TRACES_PATH
