"""A model in this process by the transformers library: it scores, it does not generate.

For calibration where no server gives the log-probabilities of a prompt. Needs the extra
``transformers``; nothing of it is imported before `TransformersScorer.info`, `score` or `data`.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._errors import EngineReplyError, EngineStartError, MissingExtraError, ModelNotFoundError
from .._types import EngineInfo
from ._fingerprint import fingerprint, probe_text
from ._gguf import read_header
from ._per_loop import PerLoop
from ._pieces import RemotePieces
from ._scoring import UNKNOWN, Expected, check_fits, data_of
from ._vocabulary import Vocabulary

if TYPE_CHECKING:
    import os

Device = Literal["auto", "cpu", "cuda", "mps"]

_UNLOADABLE = (OSError, ValueError, KeyError, RuntimeError, ImportError)

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
        NotGGUFError: the file is something else.
        MissingExtraError: a package that reads it is not installed.
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
        # transformers reads GGUF files with the last two.
        for package in ("torch", "transformers", "gguf", "accelerate")[: 4 if self._gguf else 2]:
            if importlib.util.find_spec(package) is None:
                raise MissingExtraError(package, extra="transformers")
        if self._gguf:
            read_header(self.path)
        self._device = device
        self._dtype = dtype
        self._chunk = max(1, chunk)
        self._model: Any = None
        self._words: Vocabulary | RemotePieces | None = None
        self._info: EngineInfo | None = None
        self._lock = PerLoop(asyncio.Lock)

    @property
    def _gguf(self) -> bool:
        return self.path.is_file()

    @property
    def _source(self) -> dict[str, Any]:
        """What transformers' loaders are given."""
        own: dict[str, Any] = {"pretrained_model_name_or_path": self.path}
        if self._gguf:
            own = {"pretrained_model_name_or_path": self.path.parent, "gguf_file": self.path.name}
        return {**own, "local_files_only": True}

    async def info(self) -> EngineInfo:
        """Loads the model. A folder without a tokenizer has no fingerprint.

        Raises:
            EngineStartError: the model cannot be loaded.
        """
        async with self._lock.get():
            if self._info is None:
                self._info = await asyncio.to_thread(self._load)
        return self._info

    def _load(self) -> EngineInfo:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        device = _device(torch) if self._device == "auto" else self._device
        name = self._dtype or ("float32" if device == "cpu" or self._gguf else "auto")
        dtype = name if name == "auto" else getattr(torch, name)
        try:
            with _quiet(logging):
                model = AutoModelForCausalLM.from_pretrained(dtype=dtype, **self._source)
            self._model = model.to(device).eval()
        except _UNLOADABLE as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EngineStartError(f"transformers cannot load {self.path.name}: {why}") from error
        vocabulary = self._read_words()
        context = getattr(self._model.config, "max_position_embeddings", 1 << 20)
        return EngineInfo(self.path.name, int(context), vocabulary, kind="transformers")

    def _read_words(self) -> str:
        """Set what tells the bytes of ids, where the model has it; the vocabulary's fingerprint."""
        words = read_header(self.path).vocabulary() if self._gguf else None
        if words is not None:
            self._words = words
            return words.fingerprint
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(**self._source)
        except _UNLOADABLE:
            return ""

        def ids_of(text: str) -> tuple[int, ...]:
            return tuple(tokenizer(text, add_special_tokens=False).input_ids)

        async def tokenize(text: str) -> tuple[int, ...]:
            return ids_of(text)

        async def detokenize(ids: Sequence[int]) -> str:
            return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

        self._words = RemotePieces(tokenize, detokenize)
        return fingerprint(ids_of(probe_text()))

    async def data(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """See `Spelling`, by the model's own tokenizer.

        Raises:
            EngineStartError: the model cannot be loaded, or has no tokenizer.
            EngineReplyError: an id is not in the vocabulary.
        """
        await self.info()
        if isinstance(self._words, RemotePieces):
            return await data_of(self._words, ids)
        if self._words is None:
            raise EngineStartError(
                f"{self.path.name} has no tokenizer that transformers can load",
                hint="put tokenizer.json and tokenizer_config.json into the folder",
            )
        try:
            return tuple(map(self._words.data, ids))
        except KeyError as error:
            raise EngineReplyError(f"token {error} is not in {self.path.name}") from None

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
        async with self._lock.get():
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
        async with self._lock.get():
            self._model = self._words = self._info = None


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without the library's own progress bars, which would be drawn into ours."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _device(torch: Any) -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
