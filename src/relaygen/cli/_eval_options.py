"""What ``relaygen eval`` is asked: its options, and the evaluation that they mean."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaygen._errors import UsageError
from relaygen._types import ROLES, Role
from relaygen.cli import _data
from relaygen.cli._data import COUNT, DATA, FILES
from relaygen.cli._extras import require
from relaygen.cli._help import Number, collecting, option
from relaygen.cli._options import EMBEDDED, MODELS, PROFILE, ModelOptions, is_url
from relaygen.evaluate._arms import DEFAULT, parse_arms
from relaygen.models import EMBEDDED_LARGE, EMBEDDED_SMALL
from relaygen.profiles import load

if TYPE_CHECKING:
    from relaygen._profile import Profile
    from relaygen.evaluate._folder import Settings
    from relaygen.evaluate._grade import Near
    from relaygen.evaluate._job import Evaluation
    from relaygen.evaluate._reporting import Findings

ARMS = "The arms"
TEXT = "The generation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(ModelOptions):
    """The command's options, as the user gave them."""

    data: str | None
    preset: str | None
    n: int | None
    runs: int
    seed: int
    arms: str
    level: str | None
    temperature: float | None
    max_tokens: int | None
    concurrency: int
    out: Path
    step: str | None
    embeddings: str | None

    def job(self) -> Evaluation:
        """The evaluation; nothing is written or started yet.

        Raises:
            UsageError, ProfileError: an option makes no sense.
            MissingExtraError: a library is not installed.
        """
        from relaygen.evaluate._folder import Folder
        from relaygen.evaluate._job import Evaluation
        from relaygen.evaluate._questions import load_items

        if self.data is None:
            raise UsageError("--data is missing", hint="name the questions: --data FILE")
        profile = load(self.profile)
        arms = parse_arms(self.arms.split(","))
        items = load_items(self.data, preset=self.preset, seed=self.seed, n=self.n)
        if any(item.kind != "choice" for item in items):
            require("math_verify", extra="eval")
        settings = replace(
            self._settings(profile), runs=self.runs, n=self.n, arms=tuple(arm.name for arm in arms)
        )
        return Evaluation(
            Folder(self.out),
            settings,
            profile,
            items,
            arms,
            at_once=self.concurrency,
            near=self._near(),
        )

    def _settings(self, profile: Profile) -> Settings:
        from relaygen.evaluate._folder import Settings, hash_of

        sampling = profile.sampling
        if self.temperature is not None:
            sampling = replace(sampling, temperature=self.temperature)
        servers = [is_url(spec) for spec in (self.large, self.small)]
        ctx = 0 if all(servers) else self.ctx
        return Settings(
            profile=profile.name,
            profile_sha256=hash_of(profile),
            level=self.level or "",
            large=self._named("large"),
            small=self._named("small"),
            data=_data.printable(self.data or ""),
            preset=self.preset or "",
            seed=self.seed,
            sampling={**asdict(sampling), "logit_bias": {}},
            max_tokens=self.max_tokens or _data.answer_tokens(profile, ctx or None),
            ctx=ctx,
            devices=2 if any(servers) else 1,
        )

    def findings(self, given: Collection[str]) -> Findings:
        """What the folder has, for a report alone; what was not given is as the folder says.

        Args:
            given: names of the options that the user gave.

        Raises:
            UsageError: the folder has no evaluation, or another one than the options say.
            MissingExtraError: a library is not installed.
        """
        from relaygen.evaluate._folder import Folder
        from relaygen.evaluate._reporting import Findings

        folder = Folder(self.out)
        kept = folder.kept()
        folder.compare(kept, self._said(given, kept))
        return Findings.of(
            folder,
            arms=self.arms.split(",") if "arms" in given else (),
            n=self.n,
            runs=self.runs if "runs" in given else None,
            near=self._near(),
        )

    def _said(self, given: Collection[str], kept: Settings) -> dict[str, Any]:
        """The settings that the given options mean, by name."""
        from relaygen.evaluate._folder import hash_of

        plain = ("data", "preset", "level", "seed", "max_tokens")
        said: dict[str, Any] = {name: getattr(self, name) for name in plain if name in given}
        said |= {"data": _data.printable(said["data"])} if "data" in said else {}
        said |= {role: self._named(role) for role in ROLES if role in given}
        if "profile" in given:
            profile = load(self.profile)
            said |= {"profile": profile.name, "profile_sha256": hash_of(profile)}
        if "temperature" in given:
            said["sampling"] = {**kept.sampling, "temperature": self.temperature}
        if "ctx" in given and kept.ctx:
            said["ctx"] = self.ctx
        return said

    def _named(self, role: Role) -> str:
        """A model as the settings name it: of a server, what it serves counts."""
        named = {"large": self.large, "small": self.small}[role]
        usual = {"large": EMBEDDED_LARGE, "small": EMBEDDED_SMALL}[role]
        return "" if is_url(named) else _data.printable(named or usual.name)

    def _near(self) -> Near | None:
        """What compares meanings, where that is asked for.

        Raises:
            MissingExtraError: the library is not installed.
        """
        from relaygen.evaluate._grade import semantic_similarity

        if self.embeddings is None:
            return None
        require("sentence_transformers", extra="embeddings")
        return partial(semantic_similarity, model=self.embeddings)


eval_options = collecting(
    Asked,
    "asked",
    [
        option(
            DATA,
            "--data",
            metavar="FILE|hub:NAME",
            help="Questions: JSON lines, JSON or CSV, or a data set of the Hugging Face hub "
            "(hub:OWNER/NAME@SPLIT). Only --step report does without.",
        ),
        option(
            DATA,
            "--preset",
            metavar="NAME",
            help="Whose columns the data has, for example gsm8k. Default: found out.",
        ),
        _data.N,
        _data.runs("Answers of each arm to each question"),
        _data.SEED,
        option(
            ARMS,
            "--arms",
            metavar="NAME,…",
            default=",".join(DEFAULT),
            show_default=True,
            help="What is compared; see Arms below.",
        ),
        option(
            ARMS,
            "--level",
            metavar="NAME",
            help="Of the profile, for arms that have levels and name none. Default: the profile's "
            "own cues.",
        ),
        *MODELS,
        PROFILE,
        *EMBEDDED,
        option(
            TEXT,
            "--temperature",
            type=Number(0.0, 2.0),
            metavar="X",
            help="0 is greedy. Default: the profile's.",
        ),
        _data.max_tokens(TEXT, "answer"),
        option(
            TEXT,
            "--concurrency",
            type=COUNT,
            metavar="N",
            default=1,
            show_default=True,
            help="Answers at the same time. Above 1 no times are reported.",
        ),
        _data.folder("--out", "The folder for results and reports.", required=True),
        _data.step(("run", "report"), " For report, --out is enough."),
        option(
            FILES,
            "--embeddings",
            metavar="MODEL",
            help="Report also how near answers without a gold one are to the large model's in "
            "meaning, by this model of sentence-transformers.",
        ),
    ],
)
"""Adds the options of `Asked`; the function gets them as ``asked``."""
