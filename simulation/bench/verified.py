"""Keys that servers check, compared with keys that they do not check.

- verified-gen: keys for both servers, from blocks of 4096 alphas, on one thread.
- verified-curve: a server's work on a curve of N thresholds, from the message that names the keys
  to check to its noisy share: evaluation, prints, digest, comparison, noise. The other server is
  honest.

`unverified` is the time divided by that of unchecked keys, measured in turns: `gen`, and the
release of the same curve. The curve's `details.close_seconds` is not included: it is the work
before, with the last submission, of storing it and looking for keys that came twice.
"""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from tallyroom.fss import dcf
from tallyroom.fss.ring import Z64
from tallyroom.fss.verified import RANDOMNESS_BYTES, Verified
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.wire.machine import Continue, Done, Machine
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tallyroom.simulation.bench.row import Row, seconds

BITS = 32
BATCH = 4096
PARTIES = 100_000
THRESHOLDS = 1024
REPEATS = 7
VERIFIED = "fss?verified=yes"


def gen_row(limit: float, repeats: int) -> Row:
    generator = np.random.default_rng(1)
    alphas = generator.integers(0, 1 << BITS, BATCH, dtype=np.uint64)
    randomness = generator.integers(0, 256, (BATCH, RANDOMNESS_BYTES), dtype=np.uint8)
    keys = Verified(BITS, b"bench")
    ours = plain = float("inf")
    for _ in range(repeats):
        ours = min(ours, seconds(lambda: keys.gen(alphas, randomness, threads=1), 1))
        plain = min(plain, seconds(lambda: dcf.gen(alphas, BITS, Z64, randomness, threads=1), 1))
    # Children of both servers at every level; value and proof of both from the second level on.
    calls = 2 * BITS + 4 * (BITS - 1)
    ratios = {"unverified": ours / plain, "aes-limit": BATCH / ours * calls / limit}
    details: dict[str, float] = {"hash_calls": calls, "key_bytes": keys.key_bytes}
    return Row(f"verified-gen-{BITS}-native", BATCH / ours, "keys/s", ratios, details)


def curve_row(parties: int = PARTIES, thresholds: int = THRESHOLDS, repeats: int = REPEATS) -> Row:
    query = Query(
        nonce=bytes(8),
        statistic=Ecdf(lower=0.0, upper=1.0, thresholds=thresholds),
        aggregator=VERIFIED,
        parties=parties,
        servers=2,
        records=parties,
        epsilon=Fraction(1),
        noise=Placement.EACH_SERVER,
        data="uniform",
        min_parties=parties,
    )
    plain_query = replace(query, aggregator="fss?verified=no")
    sent, plain_sent = _submissions(query), _submissions(plain_query)
    other = _server(query, 1)
    (contribution,) = _between(other, sent[1])
    digest = _digest_of(other, query, sent[0])
    ours = plain = close = float("inf")
    for _ in range(repeats):
        server, unchecked = _server(query, 0), _server(plain_query, 0)
        close = min(close, seconds(partial(server.receive, sent[0]), 1))
        server.receive(contribution)
        unchecked.receive(plain_sent[0])
        ours = min(ours, seconds(partial(_check_and_release, server, query, digest), 1))
        plain = min(plain, seconds(partial(_release, unchecked, plain_query), 1))
    details = {"seconds": ours, "unverified_seconds": plain, "close_seconds": close}
    rate = parties * thresholds / ours
    name = f"verified-curve-{parties}x{thresholds}"
    return Row(name, rate, "counts/s", {"unverified": ours / plain}, details)


def _submissions(query: Query) -> tuple[Message, ...]:
    holdings = deal({"value": np.random.default_rng(0).random(query.parties)}, query.parties)
    party = aggregator_named(query.aggregator).party(
        query, holdings, Randomness.from_seed(1, "parties")
    )
    step = party.start()
    assert isinstance(step, Done)
    return step.messages


def _server(query: Query, index: int) -> Machine:
    randomness = Randomness.from_seed(1, f"server-{index}")
    server = aggregator_named(query.aggregator).server(query, index, randomness, Memory())
    server.start()
    return server


def _between(server: Machine, message: Message) -> list[Message]:
    """A server's messages to the other one in reply to a message."""
    step = server.receive(message)
    assert isinstance(step, Continue), step
    return [said for said in step.messages if said.between_servers]


def _digest_of(other: Machine, query: Query, submission: Message) -> Message:
    """The reply of the other server, which has all keys, to a check of all of them."""
    (contribution,) = _between(_server(query, 0), submission)
    _between(other, contribution)
    (digest,) = _between(other, _of_everyone(query, Phase.VERIFY))
    return digest


def _of_everyone(query: Query, phase: Phase) -> Message:
    body = body_of(np.packbits(np.ones(query.parties, dtype=bool)).tobytes())
    return Message(query.run, phase, Role.COORDINATOR, Role.SERVER, address(0), address(0), body)


def _check_and_release(server: Machine, query: Query, digest: Message) -> None:
    server.receive(_of_everyone(query, Phase.VERIFY))
    server.receive(digest)
    _release(server, query)


def _release(server: Machine, query: Query) -> None:
    step = server.receive(_of_everyone(query, Phase.RELEASE))
    assert isinstance(step, Continue), step
    assert [message.phase for message in step.messages] == [Phase.SHARE]
