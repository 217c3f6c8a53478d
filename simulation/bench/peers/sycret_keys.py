"""Keys of comparisons by sycret: LeFactory, 32-bit values, one thread; keys and points a second."""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
from sycret import LeFactory

COUNT = 1000


def rate(work: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return COUNT / best


def answer(repeats: int) -> dict[str, float]:
    factory = LeFactory(n_threads=1)
    keys, _ = factory.keygen(COUNT)
    points = np.zeros(COUNT, dtype=np.int64)
    return {
        "gen": rate(lambda: factory.keygen(COUNT), repeats),
        "eval": rate(lambda: factory.eval(0, points, keys, n_threads=1), repeats),
    }


if __name__ == "__main__":
    print(json.dumps(answer(int(sys.argv[1]))))
