"""Chat templates of our own side, for servers that have none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._errors import EngineReplyError, MissingExtraError, UsageError
from .._types import Conversation, Message
from ._chat import as_json

if TYPE_CHECKING:
    from jinja2 import Template


class ChatTemplate:
    """A Jinja chat template as model files carry them.

    Args:
        source: the template's text.

    Raises:
        MissingExtraError: jinja2 is not installed.
        UsageError: that is no template.
    """

    def __init__(self, source: str) -> None:
        try:
            from jinja2 import TemplateSyntaxError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise MissingExtraError("jinja2", extra="serve") from None
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        try:
            self._template: Template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise UsageError(
                f"the chat template is wrong in line {error.lineno}: {error.message}"
            ) from None

    def render(self, messages: Sequence[Message], conversation: Conversation, opened: bool) -> str:
        """The prompt's text.

        Args:
            messages: what to render.
            conversation: for tools and further arguments.
            opened: whether the assistant's turn is opened at the end.

        Raises:
            EngineReplyError: the template refuses the messages.
        """
        from jinja2 import TemplateError

        arguments: dict[str, Any] = {
            "bos_token": "",  # the server adds it
            "eos_token": "",
            **conversation.template_kwargs,
            "messages": [_with_objects(as_json(each)) for each in messages],
            "tools": [dict(each) for each in conversation.tools] or None,
            "add_generation_prompt": opened,
        }
        try:
            return self._template.render(arguments)
        except (TemplateError, TypeError, ValueError) as error:
            why = " ".join(str(error).split())
            raise EngineReplyError(
                f"the chat template refuses the conversation: {why}", refused=True
            ) from None


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    """Templates write the arguments of calls as JSON themselves."""
    for call in message.get("tool_calls", ()):
        function = call["function"]
        try:
            function["arguments"] = json.loads(function["arguments"])
        except ValueError:
            continue
    return message


def _tojson(value: Any, **options: Any) -> str:
    known: Mapping[str, Any] = {"ensure_ascii": False, **options}
    return json.dumps(value, **known)


def _refuse(why: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(why)
