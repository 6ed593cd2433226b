"""The two engines from what the operator says of them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .._errors import UsageError
from .._types import Role
from ..engines.base import Engine

EngineKind = Literal["auto", "vllm", "llama-server", "sglang", "completions"]

AFFINITY = ("X-Session-ID: {session}", "X-SMG-Routing-Key: {session}")
"""Sent by default: routers in front of several replicas keep a conversation together by them."""

_HOP = ("authorization", "host", "content-length", "content-type", "transfer-encoding")
_REPLAYS = "x-conversation-id"  # lets a llama-server go on after the client has left


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the servers of a pair are reached; all of it only for engines named by a URL.

    Attributes:
        large_model, small_model: the name under which the server has the model; None: its first.
        large_engine, small_engine: what kind of server it is.
        large_context, small_context: tokens, for servers that do not tell.
        large_timeout, small_timeout: seconds without a token after which it counts as stalled.
        first_timeout: seconds until the large model's first token: a long prompt is computed then.
        connect_timeout: seconds for a connection.
        large_key_file, small_key_file: hold the server's own API key.
        engine_header: ``Name: value``; ``{session}`` stands for the conversation.
        ca: certificates to trust, a PEM file.
        proxy: of HTTP; the environment's is not used.
        template: a chat template file for servers of the kind completions, and old ones of SGLang.
    """

    large_model: str | None = None
    small_model: str | None = None
    large_engine: EngineKind = "auto"
    small_engine: EngineKind = "auto"
    large_context: int | None = None
    small_context: int | None = None
    large_timeout: float = 60.0
    small_timeout: float = 20.0
    first_timeout: float = 600.0
    connect_timeout: float = 10.0
    large_key_file: Path | None = None
    small_key_file: Path | None = None
    engine_header: tuple[str, ...] = AFFINITY
    ca: Path | None = None
    proxy: str | None = None
    template: Path | None = None


def engine_at(url: str, role: Role, options: EngineOptions, env: Mapping[str, str]) -> Engine:
    """The engine behind a URL. Nothing is opened yet.

    Args:
        url: of the server.
        role: its part in the pair.
        options: how to reach it.
        env: where the server's key may be, as ``RELAYGEN_SERVE_LARGE_KEY``.

    Raises:
        UsageError: an option makes no sense, or a file cannot be read.
    """
    from ..engines.detect import DetectedEngine

    chosen: dict[str, Any] = {
        "kind": getattr(options, f"{role}_engine"),
        "model": getattr(options, f"{role}_model"),
        "api_key": engine_key(role, getattr(options, f"{role}_key_file"), env),
        "context": getattr(options, f"{role}_context"),
        "timeout": getattr(options, f"{role}_timeout"),
    }
    if options.template is not None:
        chosen["template"] = _read(options.template)
    engine: Engine = DetectedEngine(
        url,
        **chosen,
        # The large model can stand in for a small one that does not begin, but not the reverse.
        first_timeout=options.first_timeout if role == "large" else options.small_timeout,
        connect_timeout=options.connect_timeout,
        headers=headers(options.engine_header),
        ca=None if options.ca is None else str(_certificates(options.ca)),
        proxy=options.proxy,
        role=role,
    )
    return engine


def headers(lines: Sequence[str]) -> dict[str, str]:
    """Names and values from ``Name: value``.

    Raises:
        UsageError: a line is no header, or one that is not the operator's to set.
    """
    made = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not colon or not token or not value.isprintable() or not value.isascii():
            raise UsageError(f"{line!r} is no header", hint="write it as 'X-Session-ID: {session}'")
        if name.lower() in _HOP:
            raise UsageError(f"the header {name} cannot be set", hint="keys have their own flags")
        if name.lower() == _REPLAYS:
            raise UsageError(
                f"the header {name} lets a llama-server generate on after an abort",
                hint="use X-Session-ID",
            )
        made[name] = value
    return made


def engine_key(role: Role, file: Path | None, env: Mapping[str, str]) -> str | None:
    """The server's key, from its file or from the environment.

    Raises:
        UsageError: the file cannot be read, or holds more or less than one key.
    """
    if file is None:
        return env.get(f"RELAYGEN_SERVE_{role.upper()}_KEY") or None
    found = keys_in(_read(file))
    if len(found) != 1:
        raise UsageError(f"{file} holds {len(found)} keys, not one")
    return found[0]


def client_keys(file: Path | None, env: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of clients, from a file and from the environment.

    Raises:
        UsageError: the file cannot be read, or one of them holds none.
    """
    given = env.get("RELAYGEN_SERVE_API_KEYS", "")
    keys = keys_in(given.replace(",", "\n"))
    if given and not keys:  # whoever sets it does not want an open server
        raise UsageError("RELAYGEN_SERVE_API_KEYS holds no key", hint="separate keys by commas")
    if file is not None:
        found = keys_in(_read(file))
        if not found:
            raise UsageError(f"{file} holds no key", hint="write one key a line")
        keys += found
    return tuple(dict.fromkeys(keys))


def keys_in(text: str) -> list[str]:
    """One a line; empty lines and those that begin with # are none."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {why}") from None


def _certificates(path: Path) -> Path:
    if not os.access(path, os.R_OK):
        raise UsageError(f"cannot read {path}")
    try:
        ssl.create_default_context(cafile=path)
    except OSError:
        raise UsageError(
            f"{path} holds no certificates", hint="give a file of certificates in PEM form"
        ) from None
    return path
