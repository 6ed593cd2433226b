"""One calibration: traces, scores, selection, report. Each step goes on where it was stopped.

Traces and scores are appended one by one; the rest is computed from them and replaced at once. So
a run that is killed and started again ends in the same files, byte for byte, as far as the engines
are deterministic.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import UsageError
from .._profile import Profile
from .._task import Limits
from .._types import Role
from .._version import __version__
from ..engines._scoring import Scoring
from ..engines.base import Engine
from ._adapters import adapter
from ._candidates import default_candidates, mine
from ._folder import Folder, Settings, write
from ._outcome import Calibration, Rule
from ._profile_toml import calibrated, dumps, rule_text
from ._progress import Progress, silent
from ._records import Scores, Trace, read
from ._segments import sentences
from ._traces import Question, import_traces, trace_id, write_traces

if TYPE_CHECKING:
    from .._api import Relay
    from ._effects import Observed

SOURCE = "relaygen calibrate"
"""Begins the provenance of every profile that is made here."""

_AT_ONCE = 8
"""Traces generated at the same time, where the engine takes so many."""
_BATCHING = ("vllm", "sglang")  # these take as many as come


def rule(text: str) -> Rule:
    """From ``significant``, ``paper`` or ``target-utilization:X``.

    Raises:
        UsageError: it is none of these.
    """
    kind, colon, value = text.partition(":")
    if kind in ("significant", "paper") and not colon:
        return Rule("significant" if kind == "significant" else "paper")
    try:
        if kind == "target-utilization":
            return Rule("target-utilization", float(value))
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
    raise UsageError(
        f"there is no rule {text!r}",
        hint="rules: significant, paper, target-utilization:X (for example target-utilization:0.7)",
    )


def style_of(base: Profile) -> str:
    """A hash of what traces depend on in a profile."""
    parts = (base.thinking, asdict(base.tags), base.prefill, asdict(base.sampling))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Job:
    """A calibration and where its files are.

    Attributes:
        folder: its own.
        settings: what is asked; see `Folder.claim`.
        base: the profile that says how the models think and draw tokens.
        questions: all of the file.
        out: where the profile goes, beside the one in the folder.
        imported: traces of another tool in place of generated ones.
    """

    folder: Folder
    settings: Settings
    base: Profile
    questions: Sequence[Question]
    out: Path
    imported: Path | None = None

    def __post_init__(self) -> None:
        rule(self.settings.rule)

    def begin(self) -> None:
        """Claim the folder and write down the questions.

        Raises:
            UsageError: the folder holds another calibration, it or the profile's cannot be written,
                or the profile is one that no calibration made.
        """
        self._check_out()
        self.folder.claim(self.settings)
        lines = [
            json.dumps({"id": one.id, "question": one.question}, ensure_ascii=False)
            for one in self.asked
        ]
        write(self.folder.questions, "\n".join(lines) + "\n")

    def _check_out(self) -> None:
        if not self.out.parent.is_dir() or not os.access(self.out.parent, os.W_OK):
            raise UsageError(f"{self.out.parent} is no folder that can be written in")
        try:
            made = SOURCE in self.out.read_text("utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError):
            made = False
        if not made:
            raise UsageError(
                f"{self.out} exists and was not made by relaygen calibrate",
                hint="name another file with --out, or remove this one",
            )

    @property
    def asked(self) -> Sequence[Question]:
        """The questions of this calibration."""
        return self.questions[: self.settings.n]

    @property
    def template(self) -> str:
        """What the user says."""
        return "{question}" + self.settings.suffix

    async def traces(self, relay: Relay, progress: Progress = silent) -> list[Trace]:
        """Let the large model answer, or import what another tool recorded.

        Raises:
            UsageError: the traces there are of another model, or the import makes no sense.
            EngineError: the engine failed; what was written stays.
        """
        settings = self.settings
        info = await self._introduce("large", relay.engines["large"])
        if self.imported is not None:
            return await import_traces(
                relay,
                self.imported,
                self.folder.traces,
                seed=settings.seed,
                prompt_template=self.template,
                progress=progress,
            )
        return await write_traces(
            relay,
            self.asked,
            self.folder.traces,
            seed=settings.seed,
            runs=settings.runs,
            limits=Limits(max_tokens=settings.max_tokens),
            prompt_template=self.template,
            parallel=_AT_ONCE if info["kind"] in _BATCHING else min(_AT_ONCE, info["slots"]),
            progress=progress,
        )

    async def score(self, relay: Relay, progress: Progress = silent) -> list[Scores]:
        """Teacher-force the scorer over the traces.

        Raises:
            UsageError: there are no traces, the engine cannot score, or its vocabulary is another.
            EngineError: the engine failed; what was written stays.
        """
        from ._score import write_scores

        traces = self._traces()
        role = self.settings.scorer
        own = await self._introduce(role, relay.engines[role])
        engine = adapter(relay.engines[role])
        if not isinstance(engine, Scoring):
            raise UsageError(
                f"the {role} model's engine gives no log-probabilities of a given text",
                hint="score with vLLM, llama-server or the embedded engine",
            )
        wrote = self._engines().get("large", own)
        if own["vocabulary"] != wrote["vocabulary"] and "" not in (
            own["vocabulary"],
            wrote["vocabulary"],
        ):
            raise UsageError(
                "the models have different vocabularies, so one cannot score the other's tokens",
                hint="choose models of one family, or --scorer large",
            )
        return await write_scores(engine, traces, self.folder.scores, progress=progress)

    def select(self) -> Calibration:
        """Choose cues; writes the selection and the profile.

        Raises:
            UsageError: there are no scored traces.
            ProfileError: no cue could be chosen at all.
            MissingExtraError: numpy or scipy is not installed.
        """
        from ._select import calibrate

        pairs = self._scored()
        known = dict.fromkeys((*default_candidates(), *self.settings.cues))
        mined: tuple[str, ...] = ()
        if self.settings.mine:
            from ._effects import MINING_FOLD

            found = mine([one for one, _ in pairs if one.fold == MINING_FOLD], self.base.marks)
            marks = {marker.strip() for marker in self.base.answer_markers}
            mined = tuple(cue for cue in found if cue not in known and cue not in marks)
        candidates = (*known, *mined)
        result = calibrate(
            self._observed(pairs, candidates),
            rule=rule(self.settings.rule),
            seed=self.settings.seed,
            min_effect=self.settings.min_effect,
            candidates=candidates,
            mined=mined,
            answer_role=self.base.answer_role,
        )
        self.folder.write_calibration(result)
        text = dumps(self._profile(result, pairs))
        write(self.folder.profile, text)
        write(self.out, text)
        return result

    def report(self) -> Path:
        """Write the report of the selection that is there.

        Raises:
            UsageError: there is no selection.
            MissingExtraError: jinja2 is not installed.
        """
        from ..profiles import parse
        from ._report import Subject, render

        result = self.folder.read_calibration()
        try:
            profile = parse(self.folder.profile.read_text("utf-8"), where=str(self.folder.profile))
        except FileNotFoundError:
            raise UsageError(
                f"there is no profile in {self.folder.path}", hint="run the step select first"
            ) from None
        pairs = self._scored()
        cues = sorted({cue for level in result.levels for cue in level.cues})
        subject = Subject(
            profile, result, self._observed(pairs, cues), self._facts(result, pairs), self.command
        )
        write(self.folder.report, render(subject))
        return self.folder.report

    @property
    def command(self) -> str:
        """What to type next."""
        import shlex

        return f'relaygen run --profile {shlex.quote(str(self.out))} --level balanced "…"'

    async def _introduce(self, role: Role, engine: Engine) -> dict[str, Any]:
        """Note who an engine is, for the profile and for steps without engines."""
        info = await engine.info()
        own = {
            "model": info.model,
            "kind": info.kind,
            "vocabulary": info.vocabulary,
            "slots": info.slots,
        }
        known = self._engines()
        if known.get(role) != own:
            write(self._engines_path, json.dumps({**known, role: own}, indent=2) + "\n")
        return own

    @property
    def _engines_path(self) -> Path:
        return self.folder.path / "engines.json"

    def _engines(self) -> dict[str, dict[str, Any]]:
        try:
            found = json.loads(self._engines_path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _traces(self) -> list[Trace]:
        """Those of the questions asked, as far as they are there, in the order of the questions."""
        found = {trace.id: trace for trace in read(self.folder.traces, Trace)}
        wanted = list(found)
        if self.imported is None:
            runs = range(self.settings.runs)
            wanted = [trace_id(one.id, run) for run in runs for one in self.asked]
        traces = [found[id] for id in wanted if id in found and found[id].ids]
        if not traces:
            raise UsageError(
                f"there are no traces in {self.folder.path}", hint="run the step traces first"
            )
        return traces

    def _scored(self) -> list[tuple[Trace, Scores]]:
        known = {scores.id: scores for scores in read(self.folder.scores, Scores)}
        pairs = [(trace, known[trace.id]) for trace in self._traces() if trace.id in known]
        if not pairs:
            raise UsageError(
                f"there are no scores in {self.folder.path}", hint="run the step score first"
            )
        return pairs

    def _observed(
        self, pairs: Sequence[tuple[Trace, Scores]], candidates: Sequence[str]
    ) -> list[Observed]:
        from ._effects import Observed

        return [
            Observed(trace, scores, sentences(trace, candidates, self.base.marks))
            for trace, scores in pairs
        ]

    def _profile(self, result: Calibration, pairs: Sequence[tuple[Trace, Scores]]) -> Profile:
        facts = dict(self._facts(result, pairs))
        large, small = self._models(pairs)
        return calibrated(
            self.base,
            result,
            name=self.out.stem,
            description=f"calibrated on {len(pairs)} traces from profile {self.base.name}",
            large=large,
            small=small,
            source=f"{SOURCE} {__version__}",
            scorer=facts["scorer"],
            questions=facts["questions"],
            notes=tuple(f"{key}: {facts[key]}" for key in ("traces", "prompt", "seed")),
        )

    def _models(self, pairs: Sequence[tuple[Trace, Scores]]) -> tuple[str, str]:
        """Names for the reader: as the user gave them, where that is no address."""
        engines = self._engines()
        names = []
        for role, named in (("large", self.settings.large), ("small", self.settings.small)):
            model = engines.get(role, {}).get("model") or named
            address = named.startswith(("http://", "https://"))
            file = named.endswith(".gguf")
            names.append(str(model) if address else Path(named).name if file else named)
        return names[0], names[1]

    def _facts(
        self, result: Calibration, pairs: Sequence[tuple[Trace, Scores]]
    ) -> list[tuple[str, str]]:
        """How it was made: label and value."""
        settings, engines = self.settings, self._engines()
        tokens = sum(len(trace.ids) for trace, _ in pairs)
        cut = sum(trace.finish == "length" for trace, _ in pairs)

        def served(role: Role, model: str) -> str:
            kind = engines.get(role, {}).get("kind", "")
            return f"{model} ({kind})" if kind else model

        traces = f"{len(pairs)} by {served('large', pairs[0][0].model)}, {tokens} tokens"
        if cut:
            traces += f", {cut} of them cut at {settings.max_tokens} tokens"
        if self.imported is not None:
            traces += ", imported"
        questions = f"{settings.questions}, {len(self.asked)} of {len(self.questions)}"
        if settings.runs > 1:
            questions += f", {settings.runs} runs each"
        scorer = served(settings.scorer, pairs[0][1].scorer)
        return [
            ("rule", rule_text(result)),
            ("traces", traces),
            ("scorer", f"the {settings.scorer} model, {scorer}"),
            ("questions", f"{questions}, sha256 {settings.questions_sha256}"),
            ("prompt", " ".join(("{question}", *settings.suffix.split()))),
            ("base profile", self.base.name),
            ("candidates", f"{len(result.cues)}{', mined ones included' if settings.mine else ''}"),
            ("seed", str(settings.seed)),
            ("version", f"relaygen {__version__}"),
        ]
