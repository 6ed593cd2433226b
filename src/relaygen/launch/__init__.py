"""Commands that start a known pair's servers, with and without speculative decoding. Pure."""

from ._commands import Command, commands, relay_command, remarks
from ._pairs import ENGINES, SPECS, KnownPair, Served, pair, pairs

__all__ = [
    "ENGINES",
    "SPECS",
    "Command",
    "KnownPair",
    "Served",
    "commands",
    "pair",
    "pairs",
    "relay_command",
    "remarks",
]
