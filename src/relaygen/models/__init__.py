"""Models on the disk: the embedded pair's catalogue, fetching, and finding what a user names."""

from relaygen.models._catalogue import (
    CATALOGUE,
    EMBEDDED_LARGE,
    EMBEDDED_SMALL,
    EmbeddedModel,
    Mirror,
)
from relaygen.models._fetch import pull, pull_hub_file
from relaygen.models._progress import FetchProgress, FetchStep, ProgressEvent
from relaygen.models._resolve import resolve
from relaygen.models._store import Store, home, size_text

__all__ = [
    "CATALOGUE",
    "EMBEDDED_LARGE",
    "EMBEDDED_SMALL",
    "EmbeddedModel",
    "FetchProgress",
    "FetchStep",
    "Mirror",
    "ProgressEvent",
    "Store",
    "home",
    "pull",
    "pull_hub_file",
    "resolve",
    "size_text",
]
