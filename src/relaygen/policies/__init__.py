"""Policies decide who writes next; each is a pure state machine in a module of its own."""

from .._types import Kind, Piece, Role, Stage
from .base import After, Decision, HandOff, Insert, Policy, Probe, Session, Start, Stay, Token
from .entropy import EntropyPolicy
from .margin import MarginPolicy
from .no_wait import NoWaitPolicy
from .one_shot import OneShotPolicy
from .random import RandomPolicy
from .relay import RelayPolicy
from .single import LargeOnly, SmallOnly
from .speculative_thinking import SpeculativeThinkingPolicy

__all__ = [
    "After",
    "Decision",
    "EntropyPolicy",
    "HandOff",
    "Insert",
    "Kind",
    "LargeOnly",
    "MarginPolicy",
    "NoWaitPolicy",
    "OneShotPolicy",
    "Piece",
    "Policy",
    "Probe",
    "RandomPolicy",
    "RelayPolicy",
    "Role",
    "Session",
    "SmallOnly",
    "SpeculativeThinkingPolicy",
    "Stage",
    "Start",
    "Stay",
    "Token",
]
