"""START HERE: one whole run, straight-line, role by role.

The real thing is the same calls spread over processes: `parties` encode and shard, `servers` merge
and add noise, the coordinator unshards and decodes, and machines say who waits for what
(protocols/aggregation/one_round.py). Here a single function plays all roles, and shows what each of
them sees.
"""

import numpy as np

from protocols.aggregation.contract import OneRound
from protocols.algebra.ring import Vector
from protocols.privacy.mechanisms import DiscreteLaplace
from protocols.randomness import Randomness
from protocols.records import Holdings
from protocols.statistics import Estimate, Statistic


def whole_run(
    statistic: Statistic,
    aggregator: OneRound,
    holdings: Holdings,
    servers: int,
    mechanism: DiscreteLaplace | None,
    randomness: Randomness,
) -> Estimate:
    """A private `statistic` of what the parties hold; exact, and not private, without mechanism."""

    # EACH PARTY clips its records to the public bounds and encodes them as integers mod 2^64 …
    vectors: Vector = statistic.encode(holdings)

    # … and splits its vector into one share for each server. Any servers but all of them together
    # (for `additive`) see uniformly random bytes.
    submissions = aggregator.shard(holdings.ids, vectors, servers, randomness.derive("parties"))

    # EACH SERVER adds up the shares that it received, over all parties. It still knows nothing.
    shares = [
        aggregator.merge(submissions[server], statistic.length, server) for server in range(servers)
    ]

    # EACH SERVER writes the ε it is about to spend in its ledger, then adds the full noise to its
    # share: the answer stays private even if all the other servers tell the analyst theirs.
    if mechanism is not None:
        for server, share in enumerate(shares):
            noise = mechanism.draw(statistic.noises, randomness.derive(f"server-{server}"))
            shares[server] = statistic.measure(share) + statistic.place(noise.view(np.uint64))

    # THE COORDINATOR adds the noisy shares. Masks cancel; what is left is the sum and the noise.
    total = aggregator.unshard(shares)

    # THE COORDINATOR turns integers back into a statistic. This spends nothing.
    return statistic.decode(total, holdings.rows, exact=mechanism is None)
