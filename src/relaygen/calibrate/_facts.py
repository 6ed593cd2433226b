"""How a calibration was made, in words: for its profile and its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .._version import __version__
from .._words import plural
from ._basis import Basis
from ._outcome import Calibration
from ._profile_toml import rule_text
from ._records import Scores, Trace


def models(job: Basis) -> tuple[str, str]:
    """Names for the reader: as the user gave them, where that is no address."""
    engines = job.folder.engines()
    names = []
    for role, named in (("large", job.settings.large), ("small", job.settings.small)):
        model = engines.get(role, {}).get("model") or named
        address = named.startswith(("http://", "https://"))
        file = named.endswith(".gguf")
        names.append(str(model) if address else Path(named).name if file else named)
    return names[0], names[1]


def facts(
    job: Basis, result: Calibration, pairs: Sequence[tuple[Trace, Scores]]
) -> list[tuple[str, str]]:
    """How it was made: label and value."""
    settings, engines = job.settings, job.folder.engines()
    tokens = sum(len(trace.ids) for trace, _ in pairs)
    cut = sum(trace.finish == "length" for trace, _ in pairs)

    def served(role: str, model: str) -> str:
        kind = engines.get(role, {}).get("kind", "")
        return f"{model} ({kind})" if kind else model

    wanted = settings.runs * len(job.asked) if job.imported is None else len(pairs)
    number = f"{len(pairs)} of {wanted}" if len(pairs) < wanted else f"{len(pairs)}"
    traces = f"{number} by {served('large', pairs[0][0].model)}, {plural(tokens, 'token')}"
    if cut:
        traces += f", {cut} of them cut at {plural(settings.max_tokens, 'token')}"
    if job.imported is not None:
        traces += ", imported"
    questions = f"{settings.questions}, {len(job.asked)} of {len(job.questions)}"
    if settings.runs > 1:
        questions += f", {settings.runs} runs each"
    scorer = served(settings.scored_by, pairs[0][1].scorer)
    return [
        ("rule", rule_text(result)),
        ("traces", traces),
        ("scorer", f"the {settings.scorer} model, {scorer}"),
        ("questions", f"{questions}, sha256 {settings.questions_sha256}"),
        ("prompt", " ".join(("{question}", *settings.suffix.split()))),
        ("base profile", job.base.name),
        ("candidates", f"{len(result.cues)}{', mined ones included' if settings.mine else ''}"),
        ("seed", str(settings.seed)),
        ("version", f"relaygen {__version__}"),
    ]
