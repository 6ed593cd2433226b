"""What `TransformersScorer` finds, from an environment that has transformers: JSON on stdout.

``python -m tests.vllm.forcing MODEL CHUNK < IDS`` with one JSON list of ids per line, scored from
the second on. A line for each, ``{"scores": …, "peak": …}``: the peak is how many bytes of memory
the process has had at once so far.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from contextlib import aclosing

from relaygen.engines.transformers_local import TransformersScorer


async def main(model: str, chunk: int) -> None:
    scorer = TransformersScorer(model, device="cpu", chunk=chunk)
    await scorer.info()
    for line in sys.stdin:
        async with aclosing(scorer.score(json.loads(line), 1)) as found:
            scores = [each async for each in found]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"scores": scores, "peak": peak}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
