"""What commands with a pair share: options, and how the pair is opened."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from relaygen._errors import ModelNotFoundError, UsageError
from relaygen._pair import fixed_at_start, is_embedded
from relaygen._pair import is_url as is_url  # for the commands
from relaygen._profile import Profile
from relaygen._task import Limits, Task
from relaygen._types import ROLES, Conversation, Role, Sampling
from relaygen.cli._help import collecting, option
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL, resolve
from relaygen.policies import Policy
from relaygen.profiles import load, own_policy_at

if TYPE_CHECKING:
    from relaygen._api import Relay

PAIR = "The pair"
TEXT = "The generation"
OUTPUT = "Output"

_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which engines and profile. `large` and `small` None: the embedded pair's."""

    large: str | None = None
    small: str | None = None
    profile: str = "embedded"
    ctx: int = 4096
    threads: int | None = None
    ngl: int = 0
    no_mirror: bool = False

    def pair(self, policy: str = "large", parallel: int = 1) -> PairOptions:
        """For opening them."""
        models = {field.name: getattr(self, field.name) for field in fields(ModelOptions)}
        return PairOptions(**models, policy=policy, parallel=parallel)


@dataclass(frozen=True, slots=True)
class PairOptions(ModelOptions):
    """And the policy between them, and how they draft."""

    policy: str = "relay"
    level: str | None = None
    parallel: int = 1
    spec: Literal["draft", "ngram"] | None = None
    small_spec: Literal["ngram"] | None = None

    def plan(self) -> tuple[Profile, Policy]:
        """Profile and policy, before anything is fetched or started.

        Raises:
            ProfileError, UsageError: one of them makes no sense.
        """
        asked: dict[Role, tuple[str | None, object]] = {
            "large": (self.large, self.spec),
            "small": (self.small, self.small_spec),
        }
        for role, (named, drafting) in asked.items():
            if drafting and is_url(named):
                raise fixed_at_start(role)
        return own_policy_at(self.level, self.policy, load(self.profile))

    @property
    def on_cpu(self) -> bool:
        """Whether both models run embedded, and on the CPU alone."""
        return not self.ngl and all(is_embedded(spec) for spec in (self.large, self.small))


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How to generate; None means the profile's or the library's default."""

    system: str | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    max_reasoning_tokens: int | None = None
    max_segment_tokens: int | None = None
    stop: tuple[str, ...] = ()
    no_thinking: bool = False

    def settings(self, profile: Profile, policy: Policy) -> dict[str, Any]:
        """Keyword arguments for `Relay.task`, checked against the profile.

        Raises:
            UsageError: a value is out of range or does not fit the profile.
        """
        given = {name: value for name, value in asdict(self).items() if value is not None}
        sampling = replace(profile.sampling, **_only(given, Sampling))
        limits = Limits(**_only(given, Limits))
        if "" in self.stop:
            raise UsageError("a stop string is empty")
        if self.no_thinking and profile.prefill:
            raise UsageError(
                f"profile {profile.name!r} opens the thinking itself, so it cannot be switched off",
                hint="drop --no-thinking, or choose another profile",
            )
        # Refuses what does not fit the profile now, and not after a download.
        Task(Conversation(()), policy, thinking=profile.marks, limits=limits)
        return {
            "system": self.system,
            "seed": self.seed,
            "sampling": sampling,
            "limits": limits,
            "stop": self.stop,
            "template_kwargs": {"enable_thinking": False} if self.no_thinking else {},
        }


def _only(given: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in given.items() if name in names}


_COUNT = click.IntRange(min=1)
_ADDRESS = re.compile(r"[\w.-]+:\d+(/[\w./-]*)?")


_MODEL = (
    "a server's URL (http://HOST:PORT), a GGUF file, a catalogue name, a hub id (owner/repo), or "
    "module:function, which makes an engine of your own"
)

MODELS = (
    option(
        PAIR,
        "--large",
        metavar="MODEL",
        help=f"The large model: {_MODEL}. Default: {EMBEDDED_LARGE.name}, embedded.",
    ),
    option(
        PAIR,
        "--small",
        metavar="MODEL",
        help=f"The small model, likewise. Default: {EMBEDDED_SMALL.name}, embedded.",
    ),
)
"""The options that name the two models."""

EMBEDDED = (
    option(
        PAIR,
        "--ctx",
        type=_COUNT,
        metavar="TOKENS",
        default=4096,
        show_default=True,
        help="Context of an embedded engine, prompt and completion together; llama.cpp rounds "
        "it up to a multiple of 256.",
    ),
    option(
        PAIR,
        "--threads",
        type=_COUNT,
        metavar="N",
        help="CPU threads of an embedded engine. Default: all usable ones.",
    ),
    option(
        PAIR,
        "--ngl",
        type=click.IntRange(min=0),
        metavar="LAYERS",
        default=0,
        show_default=True,
        help="Layers of an embedded engine to put on the GPU.",
    ),
    option(
        PAIR,
        "--no-mirror",
        is_flag=True,
        help="Fetch embedded models from their official repository only.",
    ),
)
"""The options of embedded engines."""

SPECULATION = (
    option(
        PAIR,
        "--spec",
        type=click.Choice(["draft", "ngram"]),
        help="Speculative decoding of an embedded large model: the small model drafts, or what "
        "followed the same words before. Default: none.",
    ),
    option(
        PAIR,
        "--small-spec",
        type=click.Choice(["ngram"]),
        help="Likewise of an embedded small model.",
    ),
)
"""How embedded engines draft."""

PROFILE = option(
    PAIR,
    "--profile",
    metavar="NAME|FILE",
    default="embedded",
    show_default=True,
    help="Cues, thinking style and sampling defaults of the pair.",
)
"""The option that names the profile."""

pair_options = collecting(
    PairOptions,
    "pair",
    [
        *MODELS,
        PROFILE,
        option(
            PAIR,
            "--policy",
            metavar="NAME[:OPTION]",
            default="relay",
            show_default=True,
            help="Who writes when; see Policies below. module:function makes a policy of your own.",
        ),
        option(
            PAIR,
            "--level",
            metavar="NAME",
            help="How much the small model may write, for profiles that have levels: usually "
            "careful, balanced or fast. Default: the profile's own cues.",
        ),
        *EMBEDDED,
        *SPECULATION,
    ],
)
"""Adds the options of `PairOptions`; the function gets them as ``pair``."""

_PROFILES = "Default: the profile's."

text_options = collecting(
    TextOptions,
    "text",
    [
        option(TEXT, "--system", metavar="TEXT", help="A system message."),
        option(
            TEXT,
            "--seed",
            type=click.IntRange(0, 2**31 - 1),
            metavar="N",
            help="Draw the same tokens again, as far as the engines are deterministic.",
        ),
        option(TEXT, "--temperature", type=float, metavar="X", help=f"0 is greedy. {_PROFILES}"),
        option(TEXT, "--top-p", type=float, metavar="X", help=f"1 is off. {_PROFILES}"),
        option(TEXT, "--top-k", type=int, metavar="N", help=f"0 is off. {_PROFILES}"),
        option(TEXT, "--min-p", type=float, metavar="X", help=f"0 is off. {_PROFILES}"),
        option(
            TEXT,
            "--max-tokens",
            type=_COUNT,
            metavar="N",
            help=f"Of everything that is written. Default: {_LIMITS.max_tokens}.",
        ),
        option(
            TEXT,
            "--max-reasoning-tokens",
            type=_COUNT,
            metavar="N",
            help="After which the thinking is closed. Default: no limit of its own.",
        ),
        option(
            TEXT,
            "--max-segment-tokens",
            type=_COUNT,
            metavar="N",
            help=f"Of one delegated segment. Default: {_LIMITS.max_segment_tokens}.",
        ),
        option(
            TEXT,
            "--stop",
            multiple=True,
            metavar="TEXT",
            help="End the answer at this text, which is cut off. Repeatable.",
        ),
        option(
            TEXT,
            "--no-thinking",
            is_flag=True,
            help="Ask the chat template for an answer without thinking (enable_thinking=false).",
        ),
    ],
)
"""Adds the options of `TextOptions`; the function gets them as ``text``."""


def open_relay(
    pair: PairOptions, profile: Profile, policy: Policy, roles: Collection[Role] = ROLES
) -> Relay:
    """The relay with its model files on the disk; nothing is started yet.

    Args:
        pair: which models.
        profile: of the pair.
        policy: of the relay.
        roles: the models that will be asked; another one's file is not fetched.

    Raises:
        ModelError: a file cannot be had.
        MissingExtraError: an optional dependency is not installed.
    """
    from relaygen._api import Relay
    from relaygen.cli._absent import Absent

    spec = pair.spec if "large" in roles else None
    named = {
        "large": pair.large or EMBEDDED_LARGE.name,
        "small": pair.small or EMBEDDED_SMALL.name,
    }
    found = {
        role: located(named[role], pair.no_mirror)
        if role in roles or (role == "small" and spec == "draft")
        else Absent(role)
        for role in ROLES
    }
    return Relay(
        found["large"],
        found["small"],
        profile=profile,
        policy=policy,
        ctx=pair.ctx,
        threads=pair.threads,
        ngl=pair.ngl,
        parallel=pair.parallel,
        spec=spec,
        small_spec=pair.small_spec if "small" in roles else None,
    )


def with_models_of(policy: Policy, relay: Relay, pair: PairOptions) -> Relay:
    """The relay with the models that another policy asks, too; engines that it has stay.

    Args:
        policy: the other one.
        relay: as `open_relay` made it.
        pair: which models.

    Raises:
        ModelError, MissingExtraError: as `open_relay`.
    """
    from relaygen._api import Relay
    from relaygen.cli._absent import Absent

    missing = [role for role in policy.roles if isinstance(relay.engines[role], Absent)]
    if not missing:
        return relay
    opened = open_relay(pair, relay.profile, policy, missing)
    used = [(opened if role in missing else relay).engines[role] for role in ROLES]
    return Relay(*used, profile=relay.profile, policy=policy)


def located(spec: str, no_mirror: bool) -> str | Path:
    """What names no model as it is, else the file, fetched with its progress shown if need be.

    Raises:
        UsageError: it is an address without http:// in front.
        ModelError: the file cannot be had.
        MissingExtraError: an optional dependency is not installed.
    """
    if not is_embedded(spec):
        return spec
    if _ADDRESS.fullmatch(spec) and not Path(spec).exists():
        raise UsageError(f"{spec!r} is neither a URL nor a file", hint=f"write http://{spec}")
    from relaygen.cli._progress import show_progress

    try:
        return resolve(spec, fetch=False)
    except ModelNotFoundError:
        pass
    try:
        with show_progress() as progress:
            return resolve(spec, mirror=not no_mirror, progress=progress)
    except KeyboardInterrupt:
        click.echo("stopped; run the same command again to resume the download", err=True)
        raise
