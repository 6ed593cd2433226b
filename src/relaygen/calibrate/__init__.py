"""Calibration: which cues start easy stretches for one pair of models, with evidence.

Offline. The large model's own generations (*traces*) are scored by the small model, the run-time
detectors cut them into segments, and statistics over traces choose the cues of a profile. Nothing
here loads numpy, scipy or torch before it is needed.
"""

from __future__ import annotations

from ._candidates import PAPER, default_candidates, mine
from ._records import Scores, Trace
from ._segments import Firing, Sentence, sentences

__all__ = [
    "PAPER",
    "Firing",
    "Scores",
    "Sentence",
    "Trace",
    "default_candidates",
    "mine",
    "sentences",
]
