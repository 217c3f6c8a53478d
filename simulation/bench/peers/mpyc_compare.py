"""Compares pairs of three parties' secret numbers with MPyC: `python mpyc_compare.py -M3` prints
the best seconds for `PAIRS` comparisons of 32-bit integers, whose outcomes are added up and opened.

It is run as a script, not imported: MPyC starts the parties by running this file again.
"""

import json
import time
from typing import Any

import numpy as np

PAIRS = 1000


async def best_of(runtime: Any, repeats: int = 2) -> float:
    number = runtime.SecInt(32)
    best = float("inf")
    for _ in range(repeats):
        await runtime.barrier()
        begun = time.perf_counter()
        mine = number.array((np.arange(PAIRS) * 37 + runtime.pid) % 101)
        ones, others, _ = runtime.input(mine)
        opened = await runtime.output(runtime.np_sum(ones < others))
        best = min(best, time.perf_counter() - begun)
        truth = sum((k * 37) % 101 < (k * 37 + 1) % 101 for k in range(PAIRS))
        assert int(opened) == truth
    return best


async def measure(runtime: Any) -> None:
    async with runtime:
        took = await best_of(runtime)
    if runtime.pid == 0:
        print(json.dumps({"seconds": took, "pairs": PAIRS}))


if __name__ == "__main__":
    from mpyc.runtime import mpc

    mpc.run(measure(mpc))
