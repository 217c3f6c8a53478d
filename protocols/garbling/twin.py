"""The pairwise loops in numpy and `cryptography`: what `_garble.c` must equal bit for bit.

Here too, time depends on the circuit and on counts, never on a label.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.garbling.circuit import AND, XOR, Circuit

Words = NDArray[np.uint64]  # a block is a pair (low, high) on the last axis

_ONE = np.uint64(1)


def garble(circuit: Circuit, keys: Bytes, deltas: Bytes, labels: Bytes) -> tuple[Bytes, Bytes]:
    """See `garbling.garble`."""
    links, instances = labels.shape[:2]
    delta = _words(deltas)[:, None, :]
    tables = np.empty((links, instances, circuit.ands, 2, 2), dtype=np.uint64)
    ciphers, wires = _ciphers(keys), _input_wires(circuit, labels)
    ands = 0
    for kind, left, right in circuit.gates.tolist():
        a, b = wires[left], wires[right]
        if kind == XOR:
            wires.append(a ^ b)
        elif kind != AND:
            wires.append(a ^ delta)
        else:
            even, odd = _tweaks(ands, instances)
            # Zahur, Rosulek, Evans 2015, Figure 2.
            a0, a1 = _hashes(ciphers, [a, a ^ delta], even)
            b0, b1 = _hashes(ciphers, [b, b ^ delta], odd)
            pa, pb = _colour_mask(a), _colour_mask(b)
            row_g = a0 ^ a1 ^ (pb & delta)
            tables[:, :, ands, 0] = row_g
            tables[:, :, ands, 1] = b0 ^ b1 ^ a
            wires.append(a0 ^ (pa & row_g) ^ b0 ^ (pb & (b0 ^ b1)))
            ands += 1
    tables_bytes = tables.view(np.uint8).reshape(links, instances, circuit.ands, 32)
    return tables_bytes, _output_labels(circuit, wires, links, instances)


def evaluate(circuit: Circuit, keys: Bytes, labels: Bytes, tables: Bytes) -> Bytes:
    """See `garbling.evaluate`."""
    links, instances = labels.shape[:2]
    rows = _words(tables.reshape(links, instances, circuit.ands, 2, 16))
    ciphers, wires = _ciphers(keys), _input_wires(circuit, labels)
    ands = 0
    for kind, left, right in circuit.gates.tolist():
        a, b = wires[left], wires[right]
        if kind == XOR:
            wires.append(a ^ b)
        elif kind != AND:
            wires.append(a)
        else:
            even, odd = _tweaks(ands, instances)
            (half_g,), (half_e,) = _hashes(ciphers, [a], even), _hashes(ciphers, [b], odd)
            half_g ^= _colour_mask(a) & rows[:, :, ands, 0]
            half_e ^= _colour_mask(b) & (rows[:, :, ands, 1] ^ a)
            wires.append(half_g ^ half_e)
            ands += 1
    return _output_labels(circuit, wires, links, instances)


def hash_blocks(keys: Bytes, blocks: Bytes, domain: int) -> Bytes:
    tweaks = np.empty((blocks.shape[1], 2), dtype=np.uint64)
    tweaks[:, 0] = np.arange(blocks.shape[1])
    tweaks[:, 1] = domain
    (hashed,) = _hashes(_ciphers(keys), [_words(blocks)], tweaks)
    return np.ascontiguousarray(hashed).view(np.uint8).reshape(blocks.shape)


def keystream(seeds: Bytes, start: int, blocks: int) -> Bytes:
    out = np.empty((len(seeds), blocks, 16), dtype=np.uint8)
    counter, nothing = start.to_bytes(16, "big"), bytes(16 * blocks)
    for row, seed in zip(out, seeds, strict=True):
        stream = Cipher(algorithms.AES(seed.tobytes()), modes.CTR(counter)).encryptor()
        row[:] = np.frombuffer(stream.update(nothing), dtype=np.uint8).reshape(blocks, 16)
    return out


def field_hash(points: Bytes, columns: Bytes) -> Bytes:
    links, count, width = columns.shape
    x = np.broadcast_to(_words(points)[:, None], (links, count, 2))
    total: Words = np.zeros((links, count, 2), dtype=np.uint64)
    for block in _words(columns).reshape(links, count, width // 16, 2).transpose(2, 0, 1, 3):
        total = _field_multiply(total, x) ^ block
    return total.view(np.uint8)


def _field_multiply(a: Words, b: Words) -> Words:
    """In GF(2^128) modulo x^128 + x^7 + x^2 + x + 1, by shifts."""
    product: Words = np.zeros_like(a)
    for bit in range(127, -1, -1):
        carry = product[..., 1] >> np.uint64(63)
        doubled = np.stack(
            [
                product[..., 0] << _ONE ^ carry * np.uint64(0x87),
                product[..., 1] << _ONE | product[..., 0] >> np.uint64(63),
            ],
            axis=-1,
        )
        chosen: Words = b[..., bit // 64] >> np.uint64(bit % 64) & _ONE
        product = doubled ^ a * chosen[..., None]
    return product


def transpose(columns: Bytes) -> Bytes:
    bits = np.unpackbits(columns, axis=2, bitorder="little")
    return np.packbits(bits.transpose(0, 2, 1), axis=2, bitorder="little")


def _words(data: Bytes) -> Words:
    return np.ascontiguousarray(data).view("<u8")


def _ciphers(keys: Bytes) -> list[CipherContext]:
    return [Cipher(algorithms.AES(key.tobytes()), modes.ECB()).encryptor() for key in keys]


def _input_wires(circuit: Circuit, labels: Bytes) -> list[Words]:
    """One (K, I, 2) array a wire."""
    inputs = circuit.garbler_inputs + circuit.evaluator_inputs
    return list(np.moveaxis(_words(labels), 2, 0)) if inputs else []


def _output_labels(circuit: Circuit, wires: list[Words], links: int, instances: int) -> Bytes:
    out = np.empty((links, instances, len(circuit.outputs), 2), dtype=np.uint64)
    for position, wire in enumerate(circuit.outputs.tolist()):
        out[:, :, position] = wires[wire]
    return out.view(np.uint8)


def _tweaks(gate: int, instances: int) -> tuple[Words, Words]:
    even = np.empty((instances, 2), dtype=np.uint64)
    even[:, 0] = 2 * gate
    even[:, 1] = np.arange(instances)
    return even, even + np.array([1, 0], dtype=np.uint64)


def _colour_mask(labels: Words) -> Words:
    """All ones where the colour bit is set, as (…, 1)."""
    return -(labels[..., :1] & _ONE)


def _hashes(ciphers: list[CipherContext], inputs: list[Words], tweaks: Words) -> list[Words]:
    """H of several (K, n, 2) arrays under each link's key; `tweaks` is (n, 2)."""
    inner = _encrypt(ciphers, np.stack(inputs, axis=1))
    hashed = _encrypt(ciphers, inner ^ tweaks) ^ inner
    return [hashed[:, which] for which in range(len(inputs))]


def _encrypt(ciphers: list[CipherContext], blocks: Words) -> Words:
    data = np.ascontiguousarray(blocks)
    out = [cipher.update(row.tobytes()) for cipher, row in zip(ciphers, data, strict=True)]
    return np.frombuffer(b"".join(out), dtype="<u8").reshape(blocks.shape)
