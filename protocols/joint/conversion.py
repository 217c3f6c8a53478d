"""From XOR shares of coded outputs to shares of their totals, between two servers that may lie.

Each server holds one bit of every output bit of every pair, and the two are to hold additive shares
of the totals. A circuit without a gate but XOR, and an AND or two for some codes (`kernels.codes`),
turns shares of a code's bits into shares of words: one correlated transfer a bit. Whoever garbles
it could weigh the other's bits as it likes, and read them in the released total past any noise. So
it is done both ways, each server garbling once, and the two totals must agree before anything is
released (`computation`): a server that weighs is caught unless it guesses what its weights add up
to, and then the total is the right one.

A server may lie about its bits. They are bits nonetheless, and every string of them stands for
outputs that honest records may have. So whatever parties or servers do, a pair moves the total by
the code's reach at most.

Other ways, and why not. Bits checked by random openings (daBits: Rotaru and Wood, INDOCRYPT 2019)
need a second kind of sharing and as many transfers again. Proofs by the parties that their bits are
bits (as in `prio3`) leave a product of two parties' bits for the servers to check. Twice the
transfers, 64 bytes a bit, are the least that either needs, and use what is here.
"""

import numpy as np

from tallyroom.protocols.joint.computation import (
    GARBLER,
    Agree,
    BothWays,
    Bytes,
    Program,
    instances_both_ways,
)
from tallyroom.protocols.kernels.codes import Code


def convert(code: Code, bits: Bytes, index: int) -> Program:
    """This server's shares of each output's total over all pairs, from its (pairs, wires) bits."""
    circuit, form = code.circuit, code.form
    most = instances_both_ways(circuit, form)
    totals = np.zeros((2, len(form.words)), dtype=np.uint64)
    for start in range(0, len(bits), most):
        some = np.ascontiguousarray(bits[start : start + most])
        shares = yield BothWays(circuit, form, some)
        totals += shares.sum(axis=1, dtype=np.uint64)
    difference = totals[0] - totals[1]
    yield Agree(difference if index == GARBLER else np.negative(difference))
    return code.totals(totals[0], len(bits) if index == GARBLER else 0)
