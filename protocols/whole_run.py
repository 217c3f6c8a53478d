"""START HERE: one whole run, straight-line, role by role.

`whole_run` is a run of an aggregator whose parties speak once, without any messages: parties encode
and shard, servers merge and add noise, the coordinator unshards and decodes.

`every_run` is a run of any aggregator, and of statistics of pairs, whose parties speak to each
other. There each role is a machine that takes messages and gives messages; `WholeRun.seen` has what
each of them was told. Processes run the same machines, with a network between them.
"""

from dataclasses import dataclass, field

import numpy as np

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Ids, Memory, Total
from tallyroom.protocols.aggregation.mechanism import draw_noise
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.in_parts import proceed
from tallyroom.protocols.run.machines import collector_machine, party_machine, server_machine
from tallyroom.protocols.statistics import Estimate
from tallyroom.protocols.wire.machine import Done, Failed, Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase
from tallyroom.protocols.wire.router import Router, heard


def whole_run(
    query: Query, aggregator: OneRound, holdings: Holdings, randomness: Randomness
) -> Estimate:
    """The answer to a query; exact, and not private, if its ε is infinite."""

    # EVERYBODY makes the same plan from what is public: how records are encoded, what is released.
    plan, servers = query.plan, query.servers

    # EACH PARTY clips its records to the public bounds and encodes them as integers mod 2^64 …
    vectors: Vector = plan.encode(holdings)

    # … and splits its vector into one share for each server. Any servers but all of them together
    # (for `additive`) see uniformly random bytes.
    submissions = aggregator.shard(holdings.ids, vectors, servers, randomness.derive("parties"))

    # EACH SERVER adds up the shares that it received, over all parties. It still knows nothing.
    shares = [
        aggregator.merge(submissions[server], plan.length, server) for server in range(servers)
    ]

    # EACH SERVER writes the ε it is about to spend in its ledger, then adds the full noise to its
    # share: the answer stays private even if all the other servers tell the analyst theirs.
    if query.mechanism is not None:
        for server, share in enumerate(shares):
            (noise,) = draw_noise(query, plan.noises, randomness.derive(f"server-{server}"))
            shares[server] = plan.measure(share) + plan.place(noise.view(np.uint64))

    # THE COORDINATOR adds the noisy shares. Masks cancel; what is left is the sum and the noise.
    total = aggregator.unshard(shares)

    # THE ANALYST reads the statistic off the release. This spends nothing.
    released = aggregator.mechanism(query).release(total, holdings.rows, len(holdings.ids))
    return query.statistic.read(released).estimate


@dataclass
class WholeRun:
    """A finished run. `seen` is every message that a role received, by the role's name: all that
    it knows beside its own secrets."""

    estimate: Estimate
    contributors: Ids
    seen: dict[str, list[Message]]


@dataclass
class RoleSeat:
    """Where one role sits: its machine, and what it was told."""

    name: str
    machine: Machine
    seen: list[Message] = field(default_factory=list)


def every_run(query: Query, holdings: Holdings, randomness: Randomness) -> WholeRun:
    """The answer to any query that its roles can answer. Raises `RunFailed` if there is none."""

    # EACH PARTY is given the query and its own records, nothing else. (One machine may play many
    # parties, a block; here each party has its own.)
    parties = [
        RoleSeat(f"party-{block.ids[0]}", party_machine(query, block, randomness.derive("parties")))
        for block in holdings.blocks(len(holdings.ids))
    ]

    # EACH SERVER is given the query. It keeps what parties submit, in memory here.
    servers = [
        RoleSeat(
            f"server-{i}", server_machine(query, i, randomness.derive(f"server-{i}"), Memory())
        )
        for i in range(query.servers)
    ]

    # THE COORDINATOR is given the query and how many records each party has, which is public.
    records = holdings.counts.astype(np.int64)
    machine = collector_machine(query, records, randomness.derive("coordinator"))
    coordinator = RoleSeat("coordinator", machine)

    # THE NETWORK carries each message to the role that it is addressed to.
    network: Router[RoleSeat] = Router(servers, coordinator)
    for block, party in zip(holdings.blocks(len(parties)), parties, strict=True):
        network.join(block.ids, party)
    finished: Total | None = None

    def say(step: Step) -> None:
        """What a role does in one step: it sends messages, and may be done or fail. Before a server
        sends a share it writes what that spends (`step.spends`) in its ledger; here nobody keeps
        one."""
        nonlocal finished
        match step:
            case Failed():
                raise RunFailed(step.reason)
            case Rejected():  # a message that breaks a rule is dropped and its sender named
                return
            case Done(output=Total() as total):
                finished = total
        network.send(step.messages)

    # EVERYBODY starts. Under most aggregators parties speak first: `curator`, `additive`, `shamir`,
    # `prio3`, `fss`, `local` and `shuffle` submit at once, each to the servers of its kind; under
    # `masking` they send keys first; in statistics of pairs they greet those whom they meet.
    everybody = [*servers, *parties, coordinator]
    for seat in everybody:
        say(seat.machine.start())

    while finished is None:
        # A ROLE receives a message, and answers.
        while network and finished is None:
            message = network.next()
            if message.phase is Phase.QUERY:
                continue  # all have been given the query
            for seat, part in network.receivers(message):
                seat.seen.append(part)
                for step in heard(seat.machine, part):
                    say(step)

        # NOBODY has anything to say. Parties with more to send go on; else deadlines pass, and who
        # waited goes on without those who are missing: parties first, then servers, then the
        # coordinator, which gives up if nothing can come any more.
        for party in parties:
            say(proceed(party.machine))
        for waiting in ([*parties], [*servers], [coordinator]):
            if finished is None and not network:
                for seat in waiting:
                    say(seat.machine.expire())

    # THE ANALYST reads the statistic off the release. This spends nothing.
    mechanism = aggregator_named(query.aggregator).mechanism(query)
    release = mechanism.release(finished.vector, finished.records, len(finished.contributors))
    estimate = query.statistic.read(release).estimate
    return WholeRun(estimate, finished.contributors, {seat.name: seat.seen for seat in everybody})
