"""What the relay itself costs: measured on mock engines, and on real ones."""

from ._figures import Figures, played, shortened
from ._live import Arm, LiveResult, measure_live
from ._measure import Measured, measure
from ._mocks import LARGE, SMALL, Shape, mocks
from ._points import Point, Sweep, points

__all__ = [
    "LARGE",
    "SMALL",
    "Arm",
    "Figures",
    "LiveResult",
    "Measured",
    "Point",
    "Shape",
    "Sweep",
    "measure",
    "measure_live",
    "mocks",
    "played",
    "points",
    "shortened",
]
