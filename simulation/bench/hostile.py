"""What it costs to survive liars: pairs with bounded outputs, beside those that are weighed, and
noise that two servers draw at each level of security, beside noise that server 0 alone garbles.

All roles in one process. `cpu_s` is the CPU time of the whole run, all roles together, the best of
some runs taken in turns; `mb` all that was sent. Ratios are to the same run with its outputs
weighed.
"""

import datetime as dt
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tallyroom.parties.data import Dataset
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.joint.base_transfers import BaseTransfers
from tallyroom.protocols.joint.computation import Name, computation
from tallyroom.protocols.joint.levels import Level, Security
from tallyroom.protocols.joint.noise import draw_noise
from tallyroom.protocols.joint.noise_circuit import JointLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.of_pairs import Auc, Gini
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.federation import Federation

PARTIES, RECORDS = 6, 300
SERVED = 2000
NOISES = 1024
REPEATS = 7


def rows(parties: int = PARTIES, records: int = RECORDS, served: int = SERVED) -> list[Row]:
    statistics = (Gini(value="score"), Auc(score="score", label="label"))
    found = [_bounded(each, parties, records) for each in statistics]
    by_servers = [replace(each, meet="servers") for each in statistics]
    return _joint(NOISES) + found + [_bounded(each, parties, served) for each in by_servers]


def _joint(count: int) -> list[Row]:
    """Noise of a histogram at ε = 1 and δ = 2^-40, at each level; the base transfers of the two
    servers were made before. All of it is before there is data."""
    noise = JointLaplace.spending(Fraction(2), Fraction(1), 2.0**-40, count)
    sources = [Randomness.from_seed(1, f"server-{index}") for index in (0, 1)]
    bases = [BaseTransfers(source) for source in sources]
    signing_identities = _signing_identities()
    spent = dict.fromkeys(Level, float("inf"))
    sent = dict.fromkeys(Level, 0)
    for turn in range(1 + REPEATS):
        for level in Level:
            name = Name(bytes([turn]), level)
            ends = [
                computation(
                    index,
                    name,
                    draw_noise(noise, count, sources[index], index, None, Security(level)),
                    bases[index],
                    sources[index],
                    signing_identities[index],
                )
                for index in (0, 1)
            ]
            start, body, to, sent[level] = time.process_time(), ends[1].start(), 0, 0
            while body is not None:
                sent[level] += body.size
                body, to = ends[to].take(body), 1 - to
            if turn:  # the first is the servers' first meeting
                spent[level] = min(spent[level], time.process_time() - start)
    return [_level(count, level, spent, sent) for level in (Level.MALICIOUS, Level.COVERT)]


def _signing_identities() -> list[SigningIdentity]:
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    authority = Authority.create("bench", now, day)
    return [
        SigningIdentity.of(authority.issue(Identity(Role.SERVER, i, i), now, day)) for i in range(2)
    ]


def _level(count: int, level: Level, spent: dict[Level, float], sent: dict[Level, int]) -> Row:
    ratios = {
        "one way CPU": spent[level] / spent[Level.SEMI_HONEST],
        "one way bytes": sent[level] / sent[Level.SEMI_HONEST],
    }
    details = {"cpu_s": spent[level], "mb": sent[level] / 1e6}
    name = "checked" if level is Level.MALICIOUS else str(level)
    return Row(f"{name}-joint-{count}", count / spent[level], "noises/CPU s", ratios, details)


def _bounded(statistic: Pairs, parties: int, records: int) -> Row:
    """Each record in four pairs."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, records).astype(np.float64)
    columns = {"score": random.random(records), "label": labels}
    data = Dataset("scores", columns, {"score": (0.0, 3.0)})
    spent = {"bounded": float("inf"), "weighed": float("inf")}
    sent = dict.fromkeys(spent, 0)
    with Federation(parties=parties, hosts=1, data=data) as federation:
        for _ in range(REPEATS):
            for outputs in spent:
                asked = replace(statistic, outputs=outputs, pairs_per_party="4")
                start = time.process_time()
                result = federation.run(asked, epsilon=1.0, fresh=True)
                spent[outputs] = min(spent[outputs], time.process_time() - start)
                sent[outputs] = sum(each.bytes for each in result.bill.by_link().values())
    pairs = 2 * records
    ratios = {
        "weighed CPU": spent["bounded"] / spent["weighed"],
        "weighed bytes": sent["bounded"] / sent["weighed"],
    }
    details = {"cpu_s": spent["bounded"], "mb": sent["bounded"] / 1e6}
    name = f"bounded-{statistic.name}-{statistic.meet}"
    return Row(name, pairs / spent["bounded"], "pairs/CPU s", ratios, details)
