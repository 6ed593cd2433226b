"""A large and a small language model write one answer together.

`Relay` is the way in; `relaygen.policies`, `relaygen.engines` and `relaygen.profiles` hold the
parts. Importing this package loads none of the libraries that a part needs: no HTTP, no validation,
no terminal, no engine.
"""

from ._api import Relay
from ._benchmark import Benchmark, Spread, benchmark
from ._errors import (
    ChecksumError,
    ContextLengthError,
    DiskSpaceError,
    DownloadError,
    EngineError,
    EngineReplyError,
    EngineStartError,
    EngineUnreachableError,
    MissingExtraError,
    ModelError,
    ModelNotFoundError,
    NotGGUFError,
    PolicyError,
    ProfileError,
    RelayGenError,
    UsageError,
)
from ._events import Done, Event, FellBack, HandedOff, Inserted, Probed, StageChanged, Text
from ._profile import Profile, ProfileLevel, Provenance
from ._results import Generation, ModelUsage, Segment, Usage
from ._task import Limits, Thinking
from ._types import Conversation, Message, Sampling
from ._version import __version__
from .engines.base import Engine
from .engines.speculation import Speculation
from .policies import (
    EntropyPolicy,
    LargeOnly,
    MarginPolicy,
    NoWaitPolicy,
    OneShotPolicy,
    Policy,
    RandomPolicy,
    RelayPolicy,
    SmallOnly,
    SpeculativeThinkingPolicy,
)

__all__ = [
    "Benchmark",
    "ChecksumError",
    "ContextLengthError",
    "Conversation",
    "DiskSpaceError",
    "Done",
    "DownloadError",
    "Engine",
    "EngineError",
    "EngineReplyError",
    "EngineStartError",
    "EngineUnreachableError",
    "EntropyPolicy",
    "Event",
    "FellBack",
    "Generation",
    "HandedOff",
    "Inserted",
    "LargeOnly",
    "Limits",
    "MarginPolicy",
    "Message",
    "MissingExtraError",
    "ModelError",
    "ModelNotFoundError",
    "ModelUsage",
    "NoWaitPolicy",
    "NotGGUFError",
    "OneShotPolicy",
    "Policy",
    "PolicyError",
    "Probed",
    "Profile",
    "ProfileError",
    "ProfileLevel",
    "Provenance",
    "RandomPolicy",
    "Relay",
    "RelayGenError",
    "RelayPolicy",
    "Sampling",
    "Segment",
    "SmallOnly",
    "Speculation",
    "SpeculativeThinkingPolicy",
    "Spread",
    "StageChanged",
    "Text",
    "Thinking",
    "Usage",
    "UsageError",
    "__version__",
    "benchmark",
]
