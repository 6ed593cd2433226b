"""One calibration: traces, scores, selection, report. Each step goes on where it was stopped.

Traces and scores are appended one by one; the rest is computed from them and replaced at once. So
a run that is killed and started again ends in the same files, byte for byte, as far as the engines
are deterministic.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import UsageError
from .._files import lock, write
from .._profile import Profile
from .._progress import Progress, silent
from .._task import Limits
from .._version import __version__
from .._words import plural
from ..engines._scoring import Scoring
from ..engines.base import Engine
from ._adapters import adapter
from ._basis import Basis
from ._candidates import default_candidates, mine
from ._facts import facts, models
from ._fresh import ask, check_questions, compared
from ._outcome import Calibration, Rule
from ._profile_toml import calibrated, dumps
from ._records import Scores, Trace, read
from ._segments import sentences
from ._traces import import_traces, trace_id, write_traces

if TYPE_CHECKING:
    from .._api import Relay
    from ._check import Check
    from ._effects import Observed
    from ._score import Scorer

SOURCE = "relaygen calibrate"
"""Begins the provenance of every profile that is made here."""

_AT_ONCE = 8
"""Traces generated at the same time, where the engine takes so many."""
_BATCHING = ("vllm", "sglang")  # these take as many as come


@dataclass(frozen=True, slots=True)
class Job(Basis):
    """A calibration that can be begun and gone on with, step by step; see `Basis`."""

    def begin(self) -> None:
        """Claim the folder and write down the questions.

        Raises:
            UsageError: the folder holds another calibration, it or the profile's cannot be written,
                the profile is one that no calibration made, or there are too few questions.
        """
        self._check()
        self._claim()

    def _claim(self) -> None:
        self.folder.claim(self.settings)
        lines = [
            json.dumps({"id": one.id, "question": one.question}, ensure_ascii=False)
            for one in self.asked
        ]
        write(self.folder.questions, "\n".join(lines) + "\n")

    @contextmanager
    def working(self) -> Iterator[None]:
        """`begin`, and keep other runs out of the folder meanwhile.

        Raises:
            UsageError: as `begin`, or another run works in the folder.
        """
        self._check()  # before the folder is made
        with lock(self.folder.path, extra="calibrate"):
            self._claim()
            yield

    def _check(self) -> None:
        check_questions(self)
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

    async def traces(self, relay: Relay, progress: Progress = silent) -> list[Trace]:
        """Let the large model answer, or import what another tool recorded.

        Raises:
            UsageError: the traces there are of another model, or the import makes no sense.
            EngineError: the engine failed; what was written stays.
        """
        settings = self.settings
        info = await self.folder.introduce("large", relay.engines["large"])
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

    async def score(self, source: Relay | Scorer, progress: Progress = silent) -> list[Scores]:
        """Teacher-force the scorer over the traces.

        Args:
            source: has the engine of the role that scores, or scores itself in that engine's place.
            progress: told after each trace.

        Raises:
            UsageError: there are no traces, the engine cannot score, or its vocabulary is another.
            EngineError: the engine failed; what was written stays.
        """
        from ._score import check_vocabulary, write_scores

        traces = self._traces()
        role = self.settings.scorer
        engine: Engine | Scorer = source if isinstance(source, Scoring) else source.engines[role]
        own = await self.folder.introduce(self.settings.scored_by, engine)
        engine = adapter(engine)
        if not isinstance(engine, Scoring):
            raise UsageError(
                f"the {role} model's engine gives no log-probabilities of a given text",
                hint="score with vLLM, SGLang, llama-server or the embedded engine",
            )
        wrote = self.folder.engines().get("large", {}).get("vocabulary", "")
        await check_vocabulary(engine, own["vocabulary"], wrote, traces)
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
            rule=Rule.of(self.settings.rule),
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

    async def check(self, relay: Relay, progress: Progress = silent) -> Check | None:
        """Let the pair answer fresh questions at each level of the profile; see `checked`.

        Args:
            relay: both engines, with the profile that `made` gives.
            progress: told after each answer.

        Raises:
            UsageError: there is no profile.
            EngineError: an engine failed; what was written stays.
        """
        await ask(self, relay, progress)
        return self.checked()

    def checked(self) -> Check | None:
        """What the answers that are there say of the selection; None where there are none.

        Answers of another profile do not count, nor those of questions that the calibration itself
        uses by now.

        Raises:
            UsageError: there is no selection, or the answers cannot be read.
        """
        return compared(self)

    def report(self) -> Path:
        """Write the report of the selection that is there.

        Raises:
            UsageError: there is no selection.
            MissingExtraError: jinja2 is not installed.
        """
        from ._report import Subject, render

        result = self.folder.read_calibration()
        profile = self.made()
        pairs = self._scored()
        cues = sorted({cue for level in result.levels for cue in level.cues})
        subject = Subject(
            profile,
            result,
            self._observed(pairs, cues),
            facts(self, result, pairs),
            self.command,
            self.checked(),
        )
        write(self.folder.report, render(subject))
        return self.folder.report

    @property
    def command(self) -> str:
        """What to type next."""
        import shlex

        return f'relaygen run --profile {shlex.quote(str(self.out))} --level balanced "…"'

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
        told = dict(facts(self, result, pairs))
        large, small = models(self)
        return calibrated(
            self.base,
            result,
            name=self.out.stem,
            policy=self.settings.policy,
            description=f"calibrated on {plural(len(pairs), 'trace')} "
            f"from profile {self.base.name}",
            large=large,
            small=small,
            source=f"{SOURCE} {__version__}",
            scorer=told["scorer"],
            questions=told["questions"],
            notes=tuple(f"{key}: {told[key]}" for key in ("traces", "prompt", "seed")),
        )
