"""Fully linear proofs that an encoded measurement is valid (draft-irtf-cfrg-vdaf, "FLP").

The prover interpolates a polynomial through each gadget input, call k at point wᵏ and a random seed
at w⁰, and applies the gadget to these polynomials. It sends the result by its values at all 2p-th
roots of unity but the last. A verifier with a share of all this checks at a random point that the
inputs and the result fit together, and learns nothing else. This is the proof system of Boneh et
al., CRYPTO 2019, section 4.2.

All functions work on rows of a batch; a row's result does not depend on the others.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.field import Vector
from tallyroom.protocols.vdaf import polynomial
from tallyroom.protocols.vdaf.circuit import ValidityCircuit

# How many elements of wire polynomials are computed together: they fit the second-level cache.
_BLOCK_ELEMENTS = 1 << 14


def points(circuit: ValidityCircuit) -> int:
    """p: how many points a wire polynomial has, at least one for the seed and one for each call."""
    return 1 << circuit.calls.bit_length()


def proof_length(circuit: ValidityCircuit) -> int:
    return circuit.arity + 2 * points(circuit) - 1


def query_rand_length(circuit: ValidityCircuit) -> int:
    outputs = circuit.evaluation_length
    return 1 + (outputs if outputs > 1 else 0)


def verifier_length(circuit: ValidityCircuit) -> int:
    return circuit.arity + 2


def soundness(circuit: ValidityCircuit) -> float:
    """A bound on the chance that a proof of an invalid measurement is accepted.

    The gadget polynomial, of degree 2(p − 1), is compared at a random point that is not a p-th root
    of unity (Boneh et al., CRYPTO 2019, Theorem 4.3). Random weights reduce the outputs to one.
    With joint randomness, a chunk of x_j(x_j − 1) is reduced to a polynomial in it, of the chunk's
    length. The client computes joint randomness itself, as a hash, so it may try many times.
    """
    p, size = points(circuit), circuit.field.modulus
    reduction = 1 if circuit.evaluation_length > 1 else 0
    joint = circuit.arity // 2 if circuit.joint_rand_length else 0
    return 2 * (p - 1) / (size - p) + (reduction + joint) / size


def prove(
    circuit: ValidityCircuit, encoded: Vector, prove_rand: Vector, joint_rand: Vector
) -> Vector:
    """Proofs (rows, proof_length, limbs). Measurements need not be valid.

    `prove_rand` is (rows, arity, limbs) and `joint_rand` (rows, joint_rand_length, limbs).
    """
    rows, p, arity = len(encoded), points(circuit), circuit.arity
    proofs = circuit.field.zeros(rows, arity + 2 * p)
    proofs[:, :arity] = prove_rand
    step = max(1, _BLOCK_ELEMENTS // (arity * p))
    for begin in range(0, rows, step):
        block = slice(begin, begin + step)
        inputs = circuit.inputs(encoded[block], joint_rand[block], 1)
        wires = _wires(circuit, prove_rand[block], inputs)
        proofs[block, arity::2] = circuit.gadget(wires)
        proofs[block, arity + 1 :: 2] = circuit.gadget(polynomial.between(circuit.field, wires))
    return proofs[:, :-1]


class QueryResult(NamedTuple):
    """`sound` is false for rows whose random point is one at which the verifier would leak a
    share."""

    verifiers: Vector
    sound: NDArray[np.bool_]


def query(
    circuit: ValidityCircuit,
    encoded: Vector,
    proofs: Vector,
    query_rand: Vector,
    joint_rand: Vector,
    shares: int,
) -> QueryResult:
    """A share of the verifier, (rows, verifier_length, limbs), from shares of measurements and
    proofs."""
    rows, arity, field = len(encoded), circuit.arity, circuit.field
    verifiers = field.zeros(rows, verifier_length(circuit))
    sound = np.ones(rows, dtype=np.bool_)
    step = max(1, _BLOCK_ELEMENTS // (arity * points(circuit)))
    for begin in range(0, rows, step):
        block = slice(begin, begin + step)
        verifiers[block], sound[block] = _query_block(
            circuit, encoded[block], proofs[block], query_rand[block], joint_rand[block], shares
        )
    return QueryResult(verifiers, sound)


def _query_block(
    circuit: ValidityCircuit,
    encoded: Vector,
    proofs: Vector,
    query_rand: Vector,
    joint_rand: Vector,
    shares: int,
) -> QueryResult:
    field, p, arity, calls = circuit.field, points(circuit), circuit.arity, circuit.calls
    seeds, gadget_values = proofs[:, :arity], proofs[:, arity:]
    inputs = circuit.inputs(encoded, joint_rand, shares)
    called = gadget_values[:, 2 : 2 * calls + 1 : 2]
    outputs = circuit.evaluate(called, encoded, shares)
    if circuit.evaluation_length > 1:
        reduced = polynomial.weighted(field, query_rand[:, :-1], outputs[:, :, None])[:, 0]
    else:
        reduced = outputs[:, 0]
    t = query_rand[:, -1]
    # Points without a call hold 0, so they need no weight.
    weights = polynomial.lagrange(field, p, t)[:, : calls + 1]
    recorded = np.concatenate([seeds[:, None], inputs], axis=1)
    wire_checks = polynomial.weighted(field, weights, recorded)
    gadget_weights = polynomial.lagrange_without_last(field, 2 * p, t)
    gadget_check = polynomial.weighted(field, gadget_weights, gadget_values[:, :, None])
    power = t
    for _ in range(p.bit_length() - 1):
        power = field.mul(power, power)
    sound: NDArray[np.bool_] = (power != field.from_ints([1])).any(axis=-1)
    return QueryResult(np.concatenate([reduced[:, None], wire_checks, gadget_check], axis=1), sound)


def decide(circuit: ValidityCircuit, verifiers: Vector) -> NDArray[np.bool_]:
    """Whether each row's proof is right, from the sums of all shares of the verifiers."""
    wrong = circuit.field.sub(circuit.gadget(verifiers[:, 1:-1]), verifiers[:, -1])
    return np.logical_not((verifiers[:, 0] | wrong).any(axis=-1))


def _wires(circuit: ValidityCircuit, seeds: Vector, inputs: Vector) -> Vector:
    """Values of the wire polynomials, (rows, p, arity, limbs)."""
    wires = circuit.field.zeros(len(inputs), points(circuit), circuit.arity)
    wires[:, 0] = seeds
    wires[:, 1 : circuit.calls + 1] = inputs
    return wires
