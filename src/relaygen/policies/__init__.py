"""Policies decide who writes next; each is a pure state machine in a module of its own."""

from .base import Decision, HandOff, Insert, Policy, Probe, Session, Start, Stay, Token
from .margin import MarginPolicy
from .one_shot import OneShotPolicy
from .random import RandomPolicy
from .relay import RelayPolicy
from .single import LargeOnly, SmallOnly

__all__ = [
    "Decision",
    "HandOff",
    "Insert",
    "LargeOnly",
    "MarginPolicy",
    "OneShotPolicy",
    "Policy",
    "Probe",
    "RandomPolicy",
    "RelayPolicy",
    "Session",
    "SmallOnly",
    "Start",
    "Stay",
    "Token",
]
