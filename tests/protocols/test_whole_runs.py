"""The message loop: every aggregator and the pairs give the curator's answer, and servers see what
they are said to see."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_named, aggregators
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.loop import Job, Reply
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import Message, Phase
from tests.protocols.pairwise.gathering import Gathering, a_pairs_query
from tests.samples import holdings_of

VALUES = [0.05, 0.1, 0.3, 0.35, 0.6, 0.65, 0.7, 0.95]
HOLDINGS = holdings_of(VALUES, 4)
COUNTS = Histogram(lower=0.0, upper=1.0, bins=4)
NAMES = [*sorted(aggregators()), "fss?verified=no"]
EXPECTED = np.histogram(VALUES, bins=4, range=(0.0, 1.0))[0].tolist()


def asked(name: str, epsilon: Fraction | None = None) -> Query:
    servers = aggregator_named(name).servers
    noise = Placement.CURATOR if servers == 1 else Placement.EACH_SERVER
    query = Query(
        nonce=bytes(8),
        statistic=COUNTS,
        aggregator=name,
        parties=4,
        servers=servers,
        records=8,
        epsilon=epsilon,
        noise=noise,
        data="values",
        min_parties=4,
        max_records_per_party=2,
    )
    return replace(query, aggregator=aggregator_named(name).settled(query))


class WholeRun(Gathering):
    """A finished run, each party by itself. `seen` is every message that a role received, by the
    role's name: all that it knows beside its own secrets."""

    def __init__(self, query: Query) -> None:
        self.seen: dict[str, list[Message]] = {}
        super().__init__(query, HOLDINGS, blocks=len(HOLDINGS.ids))
        self.run()

    def perform(self, job: Job[Machine]) -> Reply:
        if job.message is not None:
            name = job.message.receiver
            self.seen.setdefault(name, []).append(job.message)
        return super().perform(job)

    @property
    def estimate(self) -> Estimate:
        assert self.total is not None
        mechanism = aggregator_named(self.query.aggregator).mechanism(self.query)
        total = self.total
        release = mechanism.release(total.vector, total.records, len(total.contributors))
        return self.query.statistic.read(release).estimate


def a_run(name: str, epsilon: Fraction | None = None) -> WholeRun:
    return WholeRun(asked(name, epsilon))


@pytest.mark.parametrize("name", NAMES)
def test_every_aggregator_gives_the_curators_answer(name: str) -> None:
    run = a_run(name)
    found, curators = (shape_of(each.estimate).values() for each in (run, a_run("curator")))
    assert found.tolist() == curators.tolist() == EXPECTED
    assert run.total is not None
    assert run.total.contributors.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "epsilon"), [*((name, None) for name in NAMES), ("local", Fraction(1))]
)
def test_a_server_sees_vectors_only_where_it_is_said_to(
    name: str, epsilon: Fraction | None
) -> None:
    """Each party's counts as eight bytes each. In the local model it is ε that hides them."""
    run, query = a_run(name, epsilon), asked(name, epsilon)
    vectors = query.plan.encode(HOLDINGS).astype("<u8")
    for server in range(query.servers):
        assert run.seen[f"server-{server}"]
        said = b"".join(m.body.tobytes() for m in run.seen[f"server-{server}"])
        shown = any(vector.tobytes() in said for vector in vectors)
        assert not shown or aggregator_named(name).exposes(query)
        assert shown or name != "curator"


def test_the_pairs_give_what_numpy_does_and_the_coordinator_sees_no_pair() -> None:
    statistic = Gini(lower=0.0, upper=1.0, pairs_per_party="all")
    run = WholeRun(a_pairs_query(statistic, HOLDINGS))
    first, second = np.triu_indices(len(VALUES), 1)
    apart = np.abs(np.subtract.outer(VALUES, VALUES))[first, second]
    assert run.estimate == pytest.approx(apart.mean(), abs=1e-6)
    for name, messages in run.seen.items():
        met = {message.phase for message in messages} & {Phase.PAIR}
        assert bool(met) == name.startswith("party-")


def test_noise_is_drawn_where_epsilon_is_spent() -> None:
    assert shape_of(a_run("additive", Fraction(1)).estimate).values().tolist() != EXPECTED
