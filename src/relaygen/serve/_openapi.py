"""The OpenAPI page: the bodies that are read by hand, and the replies."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ._guard import OPEN_PATHS
from ._requests import ChatRequest, CommonRequest, CompletionRequest, schema
from ._settings import Settings

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

_USAGE: dict[str, Any] = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
        "prompt_tokens": {"type": "integer"},
        "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"},
        "completion_tokens_details": {"type": "object"},
        "prompt_tokens_details": {"type": "object"},
    },
}

_RELAY: dict[str, Any] = {
    "type": "object",
    "description": "Who wrote what, and what it cost.",
    "required": [
        "policy", "tokens", "utilization", "handoffs", "fallbacks", "paused", "seconds",
        "estimate", "cached_share", "speculation", "finish", "notes",
    ],
    "properties": {
        "policy": {"type": "string"},
        "tokens": {"type": "object", "additionalProperties": {"type": "integer"}},
        "utilization": {"type": ["number", "null"]},
        "handoffs": {"type": "integer"},
        "fallbacks": {"type": "integer"},
        "paused": {"type": ["string", "null"]},
        "seconds": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        "estimate": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        "cached_share": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        "speculation": {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
        "finish": {"type": "string"},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}  # fmt: skip

_COMPLETION: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage", "relay"],
    "properties": {
        "id": {"type": "string"},
        "object": {"enum": ["chat.completion", "text_completion"]},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 1},
        "usage": {"$ref": "#/components/schemas/Usage"},
        "relay": {"$ref": "#/components/schemas/Relay"},
    },
}

_CARD: dict[str, Any] = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
        "relay": {"type": "object"},
    },
}

_CARDS: dict[str, Any] = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
    },
}

_STATE: dict[str, Any] = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"type": "string"}},
}

_FAILURES: dict[str, str] = {
    "400": "The request makes no sense, or asks for what is not supported.",
    "401": "The API key is missing or wrong.",
    "404": "There is no such model.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is no JSON by its content type.",
    "429": "Too many requests; the header Retry-After says when to come back.",
    "502": "An engine failed.",
    "503": "An engine cannot be reached, dropped the connection or did not answer in time; or the "
    "server is shutting down.",
}


def describe(app: FastAPI, settings: Settings) -> None:
    """Let the application give its full description."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            app.openapi_schema = _completed(made, settings)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _completed(made: dict[str, Any], settings: Settings) -> dict[str, Any]:
    components: dict[str, Any] = {
        "Error": _ERROR,
        "Usage": _USAGE,
        "Relay": _RELAY,
        "Completion": _COMPLETION,
        "Model": _CARD,
    }
    bodies: dict[str, tuple[type[CommonRequest], str]] = {
        "/v1/chat/completions": (ChatRequest, "Completion"),
        "/v1/completions": (CompletionRequest, "Completion"),
    }
    for path, (model, reply) in bodies.items():
        shape = schema(model)
        components |= shape.pop("$defs", {})
        components[model.__name__] = shape
        operation = made["paths"][path]["post"]
        reference = {"$ref": f"#/components/schemas/{model.__name__}"}
        operation["requestBody"] = {"required": True, "content": _json(reference)}
        content = {**_json(_ref(reply)), "text/event-stream": {"schema": {"type": "string"}}}
        answer = {"description": "The reply.", "content": content}
        operation["responses"] = {"200": answer, **_failures(*_FAILURES)}
    gets = {
        "/health": (_STATE, ()),
        "/ready": (_STATE, ()),
        "/v1/models": (_CARDS, ("401",)),
        "/v1/models/{model}": (_ref("Model"), ("401", "404")),
    }
    for path, (shape, failures) in gets.items():
        answers = {"200": {"description": "The reply.", "content": _json(shape)}}
        made["paths"][path]["get"]["responses"] = {**answers, **_failures(*failures)}
    made["paths"]["/ready"]["get"]["responses"]["503"] = {
        "description": "Not ready.",
        "content": _json(_STATE),
    }
    page = {"description": "The counts.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    made["paths"]["/metrics"]["get"]["responses"] = {"200": page}
    made["components"] = {"schemas": components}
    if settings.api_keys:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
        for path in OPEN_PATHS:
            made["paths"][path]["get"]["security"] = []
    if settings.root_path:
        made["servers"] = [{"url": settings.root_path}]
    return made


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(shape: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": shape}}


def _failures(*statuses: str) -> dict[str, Any]:
    return {
        status: {"description": _FAILURES[status], "content": _json(_ref("Error"))}
        for status in statuses
    }
