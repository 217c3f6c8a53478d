"""Flower's SecAgg+ in memory: its own client functions, and its server's arithmetic in their order.

Messages, serialization and processes are left out, so the measured cost is less than that of a
round of Flower. Its masks have 32 bits, ours 64; and it seeds numpy's Mersenne Twister with 32
bits, into which each agreed secret is folded by XOR.

Flower needs an older protobuf than our own messages, so the two cannot be installed together. The
environment variable FLOWER_PYTHON names the interpreter of an environment that has Flower: this
file runs there, and imports nothing of ours.
"""

import json
import random
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

CLIPPING, TARGET, MODULUS = 8.0, 1 << 22, 1 << 32


CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"


def secure_sum(parties: int, length: int, shares: int, threshold: int) -> float:
    """Computes one sum over a ring of `shares` - 1 neighbours each; returns its largest error, in
    vector units."""
    from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
    from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.quantization import dequantize
    from flwr.common.secure_aggregation.secaggplus_constants import Key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    client = import_module(CLIENT)
    vectors = np.random.default_rng(1).uniform(-1, 1, (parties, length))
    everyone = list(range(parties))
    ring = random.Random(1).sample(everyone, parties)
    reach = range(-(shares // 2), shares // 2 + 1)
    near = {ring[i]: {ring[(i + step) % parties] for step in reach} for i in everyone}
    setup: dict[Any, Any] = {
        Key.SAMPLE_NUMBER: parties,
        Key.SHARE_NUMBER: shares,
        Key.THRESHOLD: threshold,
        Key.CLIPPING_RANGE: CLIPPING,
        Key.TARGET_RANGE: TARGET,
        Key.MOD_RANGE: MODULUS,
        Key.MAX_WEIGHT: 1.0,
    }
    states = {i: client.SecAggPlusState(nid=i) for i in everyone}
    keys = {i: list(client._setup(states[i], setup).values()) for i in everyone}
    mail: dict[int, tuple[list[int], list[bytes]]] = {i: ([], []) for i in everyone}
    for i in everyone:
        dealt = client._share_keys(states[i], {str(j): tuple(keys[j]) for j in near[i]})
        for j, sealed in zip(dealt[Key.DESTINATION_LIST], dealt[Key.CIPHERTEXT_LIST], strict=True):
            mail[j][0].append(i)
            mail[j][1].append(sealed)
    total = None
    for i in everyone:
        sources, sealed = mail[i]
        stage = {Key.SOURCE_LIST: sources, Key.CIPHERTEXT_LIST: sealed}
        given = ndarrays_to_parameters([vectors[i]])
        sent = client._collect_masked_vectors(states[i], stage, 1, given)[Key.MASKED_PARAMETERS]
        masked = [bytes_to_ndarray(data) for data in sent]
        total = masked if total is None else arithmetic.parameters_addition(total, masked)
    returned: dict[int, list[bytes]] = {i: [] for i in everyone}
    for i in everyone:
        stage = {Key.ACTIVE_NODE_ID_LIST: list(near[i]), Key.DEAD_NODE_ID_LIST: []}
        answer = client._unmask(states[i], stage)
        for j, share in zip(answer[Key.NODE_ID_LIST], answer[Key.SHARE_LIST], strict=True):
            returned[j].append(share)
    for gathered in returned.values():
        mask = pseudo_rand_gen(
            combine_shares(gathered), MODULUS, arithmetic.get_parameters_shape(total)
        )
        total = arithmetic.parameters_subtraction(total, mask)
    _, opened = arithmetic.factor_extract(arithmetic.parameters_mod(total, MODULUS))
    (summed,) = dequantize(opened, CLIPPING, TARGET)
    return float(np.abs(summed - (parties - 1) * CLIPPING - vectors.sum(axis=0)).max())


if __name__ == "__main__":
    begun = time.process_time()
    error = secure_sum(*map(int, sys.argv[1:]))
    if error > 0.01:
        raise SystemExit(f"the sum is off by {error}")
    print(json.dumps({"cpu_seconds": time.process_time() - begun}))
