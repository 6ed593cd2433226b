"""Policies decide who writes next; each is a pure state machine in a module of its own."""

from .base import Decision, HandOff, Insert, Policy, Probe, Session, Start, Stay, Token
from .entropy import EntropyPolicy
from .margin import MarginPolicy
from .no_wait import NoWaitPolicy
from .one_shot import OneShotPolicy
from .random import RandomPolicy
from .relay import RelayPolicy
from .single import LargeOnly, SmallOnly
from .speculative_thinking import SpeculativeThinkingPolicy

__all__ = [
    "Decision",
    "EntropyPolicy",
    "HandOff",
    "Insert",
    "LargeOnly",
    "MarginPolicy",
    "NoWaitPolicy",
    "OneShotPolicy",
    "Policy",
    "Probe",
    "RandomPolicy",
    "RelayPolicy",
    "Session",
    "SmallOnly",
    "SpeculativeThinkingPolicy",
    "Start",
    "Stay",
    "Token",
]
