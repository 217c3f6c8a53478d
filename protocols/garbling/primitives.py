"""Operations on 128-bit blocks: a tweaked hash, a keystream that can be entered anywhere, and the
transpose and the field hash of OT extension. Blocks are 16 bytes on the last axis; the first axis
is the link.

The hash is TMMO, H(x, t) = π(π(x) ⊕ t) ⊕ π(x), with π AES-128 under the link's key of the batch.
Guo, Katz, Wang, Yu (IEEE S&P 2020, eprint 2019/074, §7.4) prove it tweakable circular correlation
robust for a random permutation π, with x chosen by the attacker: that is what half gates with
free XOR need, whoever chose the active labels.

How many bits that leaves. Let an attacker make p calls of AES, and let q be the hash calls on
inactive labels under one key: two for each AND and one for each output wire of an instance. It
tells the garbling from a simulated one with an advantage of the order of

    p·q / 2^127  +  q² / 2^127,

127 because one bit of Δ is public: 127 − log2(q) bits of security, but for a small constant. A key
is fresh for each link and each batch, drawn with the batch's seed. AES as an ideal cipher is asked
under one key at a time, so work against one batch on one link is no work against another: q counts
the gates of one batch on one link. Under a fixed key it would count all that were ever garbled,
which is what the attack of Guo et al. (CRYPTO 2020, eprint 2019/1168) uses. Over all B keys ever
drawn two agree with probability B²/2^129. A batch of 100 comparisons of 32 bits on one link has
q = 6,500: 114 bits; 10,000 of them: 107 bits; the largest batch that a session takes, q = 2^30: 97
bits. Keying anew for each gate (MITCCRH, ibid.) would lose the log of the instances alone; it costs
a key schedule a gate where a link has few instances.
"""

from typing import Final

import numpy as np

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.garbling import native, twin

BLOCK_BYTES: Final = 16
COLUMNS: Final = 128
OUTPUT_TWEAKS: Final = 1 << 63
"""The upper half of an output wire's tweak. A gate's has its instance's number there."""


def hash_blocks(keys: Bytes, blocks: Bytes, domain: int) -> Bytes:
    """H of (K, n, 16) blocks under (K, 16) keys; block j of a link has the tweak (j, domain)."""
    keys, blocks = np.ascontiguousarray(keys), np.ascontiguousarray(blocks)
    code = native.instruction_set()
    if code is None:
        return twin.hash_blocks(keys, blocks, domain)
    out = np.empty_like(blocks)
    native.compiled.hash_blocks(code, keys, domain, blocks, out)
    return out


def keystream(seeds: Bytes, start: int, blocks: int) -> Bytes:
    """(K, blocks, 16): the AES-CTR keystream of every (K, 16) seed from block `start` on."""
    seeds = np.ascontiguousarray(seeds)
    code = native.instruction_set()
    if code is None:
        return twin.keystream(seeds, start, blocks)
    out = np.empty((len(seeds), blocks, BLOCK_BYTES), dtype=np.uint8)
    native.compiled.keystream(code, seeds, start, out)
    return out


def field_hash(points: Bytes, columns: Bytes) -> Bytes:
    """(K, n, 16): each of (K, n, 16·w) columns as a polynomial over GF(2^128), its last block the
    constant, at the link's point, (K, 16)."""
    points, columns = np.ascontiguousarray(points), np.ascontiguousarray(columns)
    code = native.instruction_set()
    if code is None:
        return twin.field_hash(points, columns)
    links, count, width = columns.shape
    out = np.empty((links, count, BLOCK_BYTES), dtype=np.uint8)
    native.compiled.field_hash(code, points, columns, width // BLOCK_BYTES, out)
    return out


def transpose(columns: Bytes) -> Bytes:
    """(K, 128, w) bytes of column bits to (K, 8w, 16) rows. Bit 0 of a byte comes first."""
    columns = np.ascontiguousarray(columns)
    if native.instruction_set() is None:
        return twin.transpose(columns)
    links, _, width = columns.shape
    rows = np.empty((links, 8 * width, BLOCK_BYTES), dtype=np.uint8)
    native.compiled.transpose(columns, width, rows)
    return rows
