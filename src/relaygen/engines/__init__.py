"""Engines: the protocol and the adapters. Adapters are imported where they are used."""

from .base import Engine

__all__ = ["Engine"]
