"""Every error that a user can cause, with what to do about it.

The tree; the number is the exit status of the command line::

    RelayGenError                     1
    ├── UsageError                    2   the call, a flag or a value makes no sense
    │   ├── ProfileError              2   a profile is missing, unreadable or invalid
    │   └── PolicyError               2   a policy of one's own raises or breaks its promises
    ├── MissingExtraError             3   an optional dependency is not installed
    ├── ModelError                    4   a model file cannot be had or used
    │   ├── ModelNotFoundError        4   no such file or hub repository
    │   ├── NotGGUFError              4   the file is not a GGUF model
    │   ├── DownloadError             4   fetching failed (a retry may help)
    │   ├── ChecksumError             4   what arrived is not the published file
    │   └── DiskSpaceError            4   not enough free disk
    └── EngineError                   5   an engine failed; ``role`` says whose
        ├── EngineStartError          5   the engine did not start
        ├── EngineUnreachableError    5   connection refused, reset or timed out
        ├── EngineReplyError          5   the engine answered something unusable
        └── ContextLengthError        5   the text does not fit the engine's context

``str(error)`` is one line; ``error.hint`` is what to do, in one line, or ``""``.
``error.retryable`` says whether the same call may succeed later.
"""

from __future__ import annotations


class RelayGenError(Exception):
    """Base of all errors of this package.

    Args:
        message: one line that says what is wrong.
        hint: one line that says what to do about it.
    """

    exit_code = 1
    retryable = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(RelayGenError, ValueError):
    """The call, a flag or a value makes no sense."""

    exit_code = 2


class ProfileError(UsageError):
    """A profile is missing, unreadable or invalid."""


class PolicyError(UsageError):
    """A policy of one's own raised something or breaks its promises; a server answers 500."""


class MissingExtraError(RelayGenError):
    """An optional dependency is not installed; the hint is the install line."""

    exit_code = 3

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(
            f"{package} is not installed",
            hint=f"install it with: pip install 'relaygen[{extra}]' "
            f"(in a checkout: pip install '.[{extra}]')",
        )


class ModelError(RelayGenError):
    """A model file cannot be had or used."""

    exit_code = 4


class ModelNotFoundError(ModelError):
    """There is no such file, catalogue name or hub repository."""


class NotGGUFError(ModelError):
    """The file is not a GGUF model."""


class DownloadError(ModelError):
    """Fetching a model failed; what arrived is kept, so that a retry resumes."""

    retryable = True


class ChecksumError(ModelError):
    """What arrived is not the published file."""


class DiskSpaceError(ModelError):
    """There is not enough free disk for the model."""


class EngineError(RelayGenError):
    """An engine failed.

    Args:
        message: one line that says what is wrong.
        role: ``"large"``, ``"small"``, or ``""`` where the engine does not know its role.
        hint: one line that says what to do about it.
        retryable: whether the same call may succeed later.
    """

    exit_code = 5

    def __init__(
        self, message: str, *, role: str = "", hint: str = "", retryable: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.role = role
        self.retryable = retryable

    def __str__(self) -> str:
        message = super().__str__()
        return f"{self.role} engine: {message}" if self.role else message


class EngineStartError(EngineError):
    """The engine did not start."""


class EngineUnreachableError(EngineError):
    """The engine refused or dropped the connection, or did not answer in time."""

    def __init__(
        self, message: str, *, role: str = "", hint: str = "", retryable: bool = True
    ) -> None:
        super().__init__(message, role=role, hint=hint, retryable=retryable)


class EngineReplyError(EngineError):
    """The engine answered something unusable.

    ``refused`` says that the engine called the request itself invalid, for example a JSON schema
    that it cannot follow: whoever asked may have to ask differently.
    """

    def __init__(
        self,
        message: str,
        *,
        role: str = "",
        hint: str = "",
        retryable: bool = False,
        refused: bool = False,
    ) -> None:
        super().__init__(message, role=role, hint=hint, retryable=retryable)
        self.refused = refused


class ContextLengthError(EngineError):
    """The text does not fit the engine's context."""
