"""Diagnosis of a pair: what works, what is hidden, what a relay would gain, what to change."""

from ._examine import Examination
from ._report import Report, Speed, report_dict
from ._verdict import Verdict, status, verdict

__all__ = ["Examination", "Report", "Speed", "Verdict", "report_dict", "status", "verdict"]
