"""Error at the same ε and adjacency, or speed, compared with peers at the same job in one run.

Errors are root mean squares over trials, ours divided by the peer's; 1 is the same error.

- histogram-error: 64 counts, one record replaced, ε = 1. `central` has a trusted curator, as the
  libraries do; `additive` trusts nobody, and each of two servers adds its noise; in `joint` the two
  draw one noise together. OpenDP adds discrete Laplace noise of scale 2/ε. diffprivlib's histogram
  is for one record added or removed: at ε/2 it covers one record replaced. With 20 trials of 64
  counts each, a ratio's standard error is 4 %.
- mean-error: the mean of 1,000 records in [0, 1], their number public. With 400 trials, 8 %.
- compose: the tight ε at δ = 10⁻⁶ of 200 questions of ε = 0.1, ours by optimal composition divided
  by that of dp-accounting's privacy-loss distributions; `speed` compares our time with theirs.
- sum-of-three: three parties add up vectors of 1024 numbers over TCP on the loopback. In MPyC the
  three compute among themselves with Shamir shares in a 64-bit prime field, honest majority; ours
  (`additive`, processes) has two servers, mutual TLS and noise. Neither time includes start-up.
- compare-pairs: comparisons of two secret numbers, their outcomes added up. In MPyC three parties
  compare shares of 32-bit integers, honest majority; ours (`auc`, pairs that two servers meet for,
  garbled circuits over mutual TLS, with noise) is timed from the last submission.
- gen, eval: keys of comparisons, 32 bits, one thread, beside sycret. masking: Flower's SecAgg+.
  prio3: one report beside the VDAF draft's Python. Each only if its peer is there.
- loopback: bytes per second of submissions through gRPC, TLS and two servers, as a share of what
  one TCP connection on the loopback carries.
"""

from tallyroom.simulation.bench.row import Row


def rows() -> list[Row]:
    """The whole benchmark; one or two minutes."""
    from tallyroom.simulation.bench.peers import jobs  # benchmarks that import an adapter do not

    return jobs.rows()
