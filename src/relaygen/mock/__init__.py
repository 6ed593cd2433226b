"""A latency-shaped mock engine over HTTP, with vLLM's routes; it plays a trace.

Two of them with the same trace behave like two perfect models: whatever the hand-offs, the joined
text must equal the trace, and ids that do not are refused. Needs the extra ``[serve]``::

    with serving(MockConfig(trace="short", token_ms=6.5)) as url:
        ...
"""

from ._app import make_app
from ._config import MockConfig
from ._failures import KINDS as FAILURE_KINDS
from ._failures import Failure, FailureKind
from ._log import own_time
from ._serving import listen, make_server, serving
from ._trace import Trace, load_trace, trace_names
from ._vocabulary import Vocabulary

__all__ = [
    "FAILURE_KINDS",
    "Failure",
    "FailureKind",
    "MockConfig",
    "Trace",
    "Vocabulary",
    "listen",
    "load_trace",
    "make_app",
    "make_server",
    "own_time",
    "serving",
    "trace_names",
]
