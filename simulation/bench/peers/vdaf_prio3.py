"""Prio3 by the VDAF draft's own Python: words are the histogram's length and its chunk length.
Prints milliseconds to shard a report, and for one of two servers to prepare it."""

import json
import sys
import time
from collections.abc import Callable

from vdaf_poc.vdaf_prio3 import Prio3Histogram

CTX, KEY, NONCE = b"bench", bytes(32), bytes(16)
REPEATS = 3


def milliseconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return 1000 * best


def answer(length: int, chunk_length: int) -> dict[str, float]:
    prio3 = Prio3Histogram(2, length, chunk_length)
    rand = bytes(each % 256 for each in range(prio3.RAND_SIZE))
    public, (leader, helper) = prio3.shard(CTX, 5, NONCE, rand)
    _, helper_share = prio3.verify_init(KEY, CTX, 1, None, NONCE, public, helper)

    def prepare() -> None:
        state, share = prio3.verify_init(KEY, CTX, 0, None, NONCE, public, leader)
        message = prio3.verifier_shares_to_message(CTX, None, [share, helper_share])
        prio3.verify_next(CTX, state, message)

    shard = milliseconds(lambda: prio3.shard(CTX, 5, NONCE, rand))
    return {"shard_ms": shard, "prepare_ms": milliseconds(prepare)}


if __name__ == "__main__":
    print(json.dumps(answer(*map(int, sys.argv[1:3]))))
