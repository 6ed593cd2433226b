"""What is known of pairs: the models' names, and what can draft for them. From ``pairs.toml``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args

from .._errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EngineName = Literal["vllm", "sglang", "llama-server"]
Spec = Literal["none", "draft", "eagle3", "ngram", "mtp"]

ENGINES: tuple[EngineName, ...] = get_args(EngineName)
"""The servers whose commands are known."""

SPECS: tuple[Spec, ...] = get_args(Spec)
"""Ways of speculative decoding; whether a model has it depends on the model and the engine."""


@dataclass(frozen=True, slots=True)
class Served:
    """One model of a pair.

    Attributes:
        model: its name at the model hub.
        gguf: its GGUF file's repository and quantization, for llama-server.
        vocabulary: rows of its output, padding included.
        drafters: what drafts, by way and engine.
        refused: why nothing does, by way and engine.
        draft_vocabulary: rows of the draft model's output; 0 where there is none.
    """

    model: str
    gguf: str
    vocabulary: int
    drafters: Mapping[tuple[Spec, EngineName], str]
    refused: Mapping[tuple[Spec, EngineName], str]
    draft_vocabulary: int = 0

    def drafter(self, spec: Spec, engine: EngineName) -> str:
        """What drafts; "" where nothing has to be named.

        Raises:
            UsageError: this model cannot be speculated so on this engine; the message says why.
        """
        if spec in ("none", "ngram"):
            return ""
        found = self.drafters.get((spec, engine))
        if found is None:
            why = self.refused[spec, engine]
            possible = [each for each in SPECS[1:] if self.speculates(each, engine)]
            raise UsageError(
                f"{self.model} has no {spec} on {engine}: {why}",
                hint=f"on {engine} there is {', '.join(possible)}",
            )
        return found

    def speculates(self, spec: Spec, engine: EngineName) -> bool:
        """Whether this model can be speculated so on this engine."""
        return spec == "ngram" or (spec, engine) in self.drafters


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A pair whose commands are known.

    Attributes:
        name: also that of its profile.
        engine: whose commands are printed where none is named.
        context: tokens of one conversation.
    """

    name: str
    engine: EngineName
    context: int
    large: Served
    small: Served


def pairs() -> dict[str, KnownPair]:
    """All of them by name, in alphabetical order."""
    text = (resources.files(__package__) / "pairs.toml").read_text("utf-8")
    return {name: _pair(name, facts) for name, facts in sorted(tomllib.loads(text).items())}


def pair(name: str) -> KnownPair:
    """One by name.

    Raises:
        UsageError: it is not known.
    """
    known = pairs()
    if name not in known:
        raise UsageError(
            f"no commands are known for the pair {name!r}", hint=f"known pairs: {', '.join(known)}"
        )
    return known[name]


def _pair(name: str, facts: Mapping[str, Any]) -> KnownPair:
    return KnownPair(
        name,
        facts["engine"],
        facts["context"],
        _served(facts["large"]),
        _served(facts["small"]),
    )


def _served(facts: Mapping[str, Any]) -> Served:
    drafters: dict[tuple[Spec, EngineName], str] = {}
    refused: dict[tuple[Spec, EngineName], str] = {}
    for spec in SPECS:
        why = facts["no"].get(spec, {})
        for engine in ENGINES:
            if engine in facts.get(spec, {}):
                drafters[spec, engine] = facts[spec][engine]
            elif isinstance(why, str):
                refused[spec, engine] = why
            elif engine in why:
                refused[spec, engine] = why[engine]
    return Served(
        facts["model"],
        facts["gguf"],
        facts["vocabulary"],
        drafters,
        refused,
        facts.get("draft", {}).get("vocabulary", 0),
    )
