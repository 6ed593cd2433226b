"""A model in this process by the transformers library: it scores, it does not generate.

For calibration where no server gives the log-probabilities of a prompt. Needs the extra
``transformers``; nothing of it is imported before `TransformersScorer.info` or `score`.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._errors import EngineStartError, MissingExtraError, ModelNotFoundError
from .._types import EngineInfo
from ._scoring import UNKNOWN, Expected, check_fits

if TYPE_CHECKING:
    import os

Device = Literal["auto", "cpu", "cuda", "mps"]

CHUNK = 256
"""Positions whose logits are held at once: 256 of a vocabulary of 152,000 are 156 MB as floats."""


class TransformersScorer:
    """One model, loaded with the first call.

    Args:
        path: a folder with safetensors, or a GGUF file (its weights are unpacked to floats: about
            four bytes a parameter on a CPU).
        device: ``auto`` takes CUDA, then MPS, then the CPU.
        dtype: of the weights, a name of torch's; None for float32 on a CPU and for GGUF files, else
            the one that the model was saved in.
        chunk: positions in one step, at least 1; memory for logits grows with it and with nothing
            else.

    Raises:
        ModelNotFoundError: there is no such file or folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        device: Device = "auto",
        dtype: str | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise ModelNotFoundError(f"there is no model at {self.path}")
        self._device = device
        self._dtype = dtype
        self._chunk = max(1, chunk)
        self._model: Any = None
        self._info: EngineInfo | None = None
        self._lock = asyncio.Lock()

    async def info(self) -> EngineInfo:
        """Loads the model.

        Raises:
            MissingExtraError: torch or transformers is not installed.
            EngineStartError: the model cannot be loaded.
        """
        async with self._lock:
            if self._info is None:
                self._model = await asyncio.to_thread(self._load)
                context = getattr(self._model.config, "max_position_embeddings", 1 << 20)
                self._info = EngineInfo(self.path.name, int(context), kind="transformers")
        return self._info

    def _load(self) -> Any:
        for package in ("torch", "transformers"):
            if importlib.util.find_spec(package) is None:
                raise MissingExtraError(package, extra="transformers")
        import torch
        from transformers import AutoModelForCausalLM

        gguf = self.path.is_file()
        if gguf and importlib.util.find_spec("gguf") is None:
            raise MissingExtraError("gguf", extra="transformers")
        device = _device(torch) if self._device == "auto" else self._device
        name = self._dtype or ("float32" if device == "cpu" or gguf else "auto")
        dtype = name if name == "auto" else getattr(torch, name)
        where = self.path.parent if gguf else self.path
        given: dict[str, Any] = {"gguf_file": self.path.name} if gguf else {}
        try:
            model = AutoModelForCausalLM.from_pretrained(
                where, dtype=dtype, local_files_only=True, **given
            )
            return model.to(device).eval()
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EngineStartError(f"transformers cannot load {self.path.name}: {why}") from error

    async def score(
        self, ids: Sequence[int], start: int, session: str = ""
    ) -> AsyncGenerator[Expected, None]:
        """See `Scoring`; chunk by chunk, so that memory does not grow with length x vocabulary.

        The cache of keys and values grows with the length, as in any engine.

        Raises:
            ContextLengthError: the ids are more than the model was made for.
            EngineError: as `info`.
        """
        info = await self.info()
        check_fits(ids, info.context, "")
        if start == 0 and ids:
            yield UNKNOWN
        async with self._lock:
            past: Any = None
            at = 0
            while at < len(ids) - 1:
                # Position p is expected from the logits behind id p - 1.
                end = min(at + self._chunk, len(ids) - 1)
                past, found = await asyncio.to_thread(
                    self._step, list(ids[at:end]), past, max(start - 1 - at, 0)
                )
                at = end
                for each in found:
                    yield each

    def _step(self, ids: list[int], past: Any, skip: int) -> tuple[Any, list[Expected]]:
        """Feed these ids; what is expected behind each of them but the first `skip`."""
        import torch

        with torch.inference_mode():
            fed = torch.tensor([ids], device=self._model.device)
            keep = len(ids) - skip
            # No logits are wanted of a prompt, but 0 would mean all.
            out = self._model(
                fed, past_key_values=past, use_cache=True, logits_to_keep=max(keep, 1)
            )
            if keep <= 0:
                return out.past_key_values, []
            shares = torch.softmax(out.logits[0].float(), dim=-1)
            best = torch.topk(shares, 2, dim=-1)
            margins = (best.values[:, 0] - best.values[:, 1]).tolist()
            return out.past_key_values, list(
                zip(
                    (min(1.0, max(0.0, each)) for each in margins),
                    best.indices[:, 0].tolist(),
                    strict=True,
                )
            )

    async def release(self, session: str) -> None:
        """Nothing is kept for a session."""

    async def aclose(self) -> None:
        """Let the model go; a later call loads it again."""
        async with self._lock:
            self._model = self._info = None


def _device(torch: Any) -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
