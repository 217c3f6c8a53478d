"""The hash and the comparison, against an independent construction with published vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tallyroom.fss import dcf
from tallyroom.fss.ring import Z64
from tests.fss.reference_idpf import ReferenceIdpf, fixed_key_xof

VECTORS = Path(__file__).parents[1] / "vectors" / "vdaf"


def vector(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def test_the_hash_is_the_drafts_fixed_key_hash() -> None:
    """XofFixedKeyAes128 hashes seed ⊕ i; any slip in σ or the feed-forward shows at once."""
    known = vector("XofFixedKeyAes128.json")
    seed, dst, binder = (bytes.fromhex(known[part]) for part in ("seed", "dst", "binder"))
    expected = bytes.fromhex(known["expanded_vec_field128"])
    stream = fixed_key_xof(seed, dst, binder)
    assert bytes(next(stream) for _ in expected) == expected


def test_the_reference_gives_the_drafts_public_share() -> None:
    known = vector("IdpfBBCGGI21_0.json")
    idpf = ReferenceIdpf(
        known["bits"], 2, bytes.fromhex(known["ctx"]), bytes.fromhex(known["nonce"])
    )
    beta = [[int(b) for b in level] for level in [*known["beta_inner"], known["beta_leaf"]]]
    alpha = [int(bit) for bit in known["alpha"]]
    public = idpf.gen(alpha, beta, [bytes.fromhex(key) for key in known["keys"]])
    assert idpf.encode(public).hex() == known["public_share"]


def test_comparison_agrees_with_one_built_from_the_drafts_idpf() -> None:
    """x < α exactly if, at some level where x turns left, x's sibling prefix is α's prefix."""
    bits = 4
    seeds = [bytes(range(16)), bytes(range(16, 32))]
    alphas = np.array([0, 1, 6, 10, 15], dtype=np.uint64)
    randomness = np.random.default_rng(1).integers(0, 256, (len(alphas), 32), dtype=np.uint8)
    keys = dcf.gen(alphas, bits, Z64, randomness)
    shared = [dcf.evaluate(b, keys[b], np.arange(16), bits, Z64) for b in (0, 1)]
    ours = shared[0] + shared[1]
    idpf = ReferenceIdpf(bits, 1, b"comparison", bytes(16))
    for index, alpha in enumerate(alphas):
        path = [int(alpha) >> (bits - 1 - level) & 1 for level in range(bits)]
        public = idpf.gen(path, [[1]] * bits, seeds)
        for x in range(16):
            smaller = 0
            turns = [x >> (bits - 1 - level) & 1 for level in range(bits)]
            for level in (level for level, turn in enumerate(turns) if not turn):
                prefix = [*turns[:level], 1]
                shares = [idpf.evaluate(b, public, seeds[b], prefix)[0] for b in (0, 1)]
                smaller += sum(shares) % idpf.modulus(level)
            assert ours[index, x] == 1 - smaller
