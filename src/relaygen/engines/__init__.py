"""Engines: the protocol and its data. Adapters are imported where they are used."""

from .._types import Conversation, Delta, End, EngineInfo, Piece, Prompt, SegmentRequest
from .base import Engine

__all__ = [
    "Conversation",
    "Delta",
    "End",
    "Engine",
    "EngineInfo",
    "Piece",
    "Prompt",
    "SegmentRequest",
]
