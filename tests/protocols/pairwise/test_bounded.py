"""Whatever is garbled, a pair moves the total no further than a record may."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.joint_server import JointServer
from tallyroom.protocols.aggregation.one_round import ServerState
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.pairwise.roles.bounded import SEED_BYTES, BoundedServer, slot_bytes
from tallyroom.protocols.pairwise.sampling.pair_assignment import both_ends, pack_cells
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.statistics.of_pairs import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    Pairwise,
    Variance,
)
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.wire.machine import Continue, Machine, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.simulation.lying_garblers import WEIGHT, lying_garbler
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.pairwise.gathering import (
    Gathering,
    a_pairs_query,
    deal_base_ots,
    drawn_values,
    held,
    ratings,
)
from tests.samples import a_message, bitmap

UNIT: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "pairs_per_party": "all"}
STATISTICS: dict[str, Pairs] = {
    "gini": Gini(**UNIT, bits=5),
    "variance": Variance(**UNIT, bits=4),
    "collision-entropy": CollisionEntropy(**UNIT, bits=4),
    "tau": KendallTau(**UNIT, x="x", y="y", bits=4),
    "tau-b": KendallTau(**UNIT, x="x", y="y", bits=4, tau="b"),
    "auc": Auc(**UNIT, score="score", label="label", bits=4),
    "product": Pairwise(**UNIT, kernel_name="a.value * b.value", bits=4),
}
LIAR = 1
"""Of parties 0 and 1, it garbles."""


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    deal_base_ots(monkeypatch)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("name", STATISTICS)
def test_bounded_and_weighed_outputs_have_the_same_totals(name: str, servers: int) -> None:
    """Parties with one record and with several, so that some pairs are within one party."""
    holdings = held([2, 1, 3], ratings(6))
    for outputs in ("bounded", "weighed"):
        query = a_pairs_query(replace(STATISTICS[name], outputs=outputs), holdings, servers)
        totals = Gathering(query, holdings, 3).run().totals
        assert totals.tolist() == drawn_values(query, holdings).sum(axis=0).tolist()


# --- a garbler that lies ---


def two_records(victim: float, own: float = 0.0, **changes: Any) -> Holdings:
    columns = {name: np.array([victim, own]) for name in ("value", "x", "y", "score")}
    return held([1, 1], columns | {"label": np.array([1.0, 0.0])} | changes)


def with_liar(query: Query, holdings: Holdings, seed: int = 1) -> Gathering:
    def made(asked: Query, block: Holdings, source: Randomness) -> Machine:
        return lying_garbler(asked, block, frozenset({LIAR}), source)

    return Gathering(query, holdings, 2, seed=seed, made_by=made)


def test_a_weight_in_output_ciphertexts_tells_a_record_past_any_noise() -> None:
    """The attack that bounded outputs are for: ε = 0.01, and every record is read off the total."""
    statistic = replace(STATISTICS["gini"], outputs="weighed")
    for seed, victim in enumerate(np.linspace(0, 1, 12)):
        holdings = two_records(float(victim))
        query = a_pairs_query(statistic, holdings, epsilon=Fraction(1, 100))
        (total,) = with_liar(query, holdings, seed).run().totals
        (value,) = drawn_values(query, holdings)[0]
        assert round(int(total) / WEIGHT) == value  # its own record is at 0: this is the other's


@pytest.mark.parametrize("name", STATISTICS)
def test_a_liar_moves_a_bounded_total_by_the_reach_at_most(name: str) -> None:
    """Without noise, on every record that its peer may have: honest or not, two totals are never
    further apart than the noise is for."""
    totals, honest = [], []
    for victim in np.linspace(0, 1, 9):
        for label in (0.0, 1.0):
            holdings = two_records(float(victim), 1.0, label=np.array([label, 0.0]))
            query = a_pairs_query(STATISTICS[name], holdings)
            totals.append(with_liar(query, holdings).run().totals)
            honest.append(drawn_values(query, holdings).sum(axis=0))
    plan = pairs_of(query)
    assert not np.array_equal(totals, honest)
    totals += honest
    apart = np.abs(np.array(totals)[:, None] - np.array(totals)[None]).sum(axis=2)
    pairs = len(drawn_values(query, holdings))
    assert 0 < apart.max() <= plan.kernel.reach * pairs == plan.sensitivity.l1 * pairs


@pytest.mark.parametrize("name", ["gini", "auc"])
def test_what_a_liar_makes_the_total_tell_costs_no_more_than_epsilon(name: str) -> None:
    """Empirical ε of the whole run against a lying peer: the worst two records of its victim are
    told apart by a threshold on the total, over 60 runs each; Clopper-Pearson at 1 − 10^-6 on both
    sides. A weighed total tells them apart in every run, of which the same test says so."""
    claimed, runs = 1.0, 60
    found = {}
    for outputs in ("bounded", "weighed"):
        seen = []
        for victim in (0.0, 1.0):
            holdings = two_records(victim)
            statistic = replace(STATISTICS[name], outputs=outputs)
            query = a_pairs_query(
                statistic, holdings, epsilon=Fraction(1), noise=Placement.EACH_SERVER
            )
            totals = [with_liar(query, holdings, seed).run().totals[0] for seed in range(runs)]
            seen.append(np.array(totals))
        threshold = np.median(np.concatenate(seen))
        above = sorted(int((totals > threshold).sum()) for totals in seen)
        most = beta.ppf(1 - 1e-6, above[0] + 1, runs - above[0])
        least = beta.ppf(1e-6, above[1], runs - above[1] + 1)
        found[outputs] = float(np.log(least / most))
    assert found["bounded"] <= claimed < found["weighed"]


# --- what servers see and refuse ---

COUNTS = [2, 1, 3]
SLOTS = 9
GINI = Gini(lower=0.0, upper=1.0, bits=8, pairs_per_party="3")
EVERYONE = bitmap(3, [0, 1, 2])


def a_meeting(**changes: Any) -> tuple[Query, Holdings]:
    holdings = held(COUNTS, ratings(sum(COUNTS)))
    return a_pairs_query(GINI, holdings, **changes), holdings


def submitted(query: Query, holdings: Holdings) -> list[Message]:
    sent = Gathering(query, holdings).run().sent
    return [message for message in sent if message.phase is Phase.SUBMIT]


def a_full_server(**changes: Any) -> tuple[BoundedServer, Query, Holdings]:
    query, holdings = a_meeting(**changes)
    server = BoundedServer(query, 0, Randomness.from_seed(2, "server-0"), Memory())
    server.start()
    server.receive(submitted(query, holdings)[0])
    return server, query, holdings


def release(members: bytes, cells: bytes, counts: list[int]) -> Message:
    body = members + cells + np.array(counts, dtype="<u4").tobytes()
    return a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=body)


def test_a_share_of_bits_is_uniform_and_no_server_has_the_outputs() -> None:
    query, holdings = a_meeting()
    rows, seeds = (message.rows() for message in submitted(query, holdings))
    assert seeds.shape == (3, SEED_BYTES)
    assert rows.shape == (3, SLOTS * slot_bytes(pairs_of(query)))
    many = held([1] * 200, ratings(200))
    wide = a_pairs_query(replace(GINI, pairs_per_party="1"), many)
    plan = pairs_of(wide)
    sent = submitted(wide, many)[0].rows()
    assert uniform_bytes_p(np.ascontiguousarray(sent).tobytes()) > ALPHA
    # Both ends of a pair at one server say nothing: of 100 pairs, bits of none or one are its code,
    # each by chance of 1 in 256. More than 12 have a probability below 10^-15.
    first, second = plan.sample.pairs(200).T
    values = plan.kernel.code.values(np.unpackbits(sent[first] ^ sent[second], axis=1)[:, :8])
    assert (values == drawn_values(wide, many)).sum() <= 12


def test_a_release_that_is_none_is_refused_and_the_right_one_begins_the_conversion() -> None:
    server, query, holdings = a_full_server(min_parties=2)
    counts = holdings.counts.tolist()
    sample = pairs_of(query).sample
    everything = np.ones((3, SLOTS), dtype=bool)
    cells = both_ends(sample, np.array(counts), everything)
    half = cells.copy()
    half[tuple(np.argwhere(cells)[0])] = False
    good = pack_cells(cells).tobytes()
    wrong = f"not {SLOTS} slots for each of 3 parties"
    hostile = {
        "no counts": (release(EVERYONE, good, []), wrong),
        "a count too many": (release(EVERYONE, good, [*counts, 1]), wrong),
        "no slots": (release(EVERYONE, b"", counts), wrong),
        "slots of somebody left out": (release(bitmap(3, [0, 1]), good, counts), wrong),
        "half a pair": (release(EVERYONE, pack_cells(half).tobytes(), counts), "half a pair"),
        "slots of other records": (release(EVERYONE, good, [3, 1, 2]), "half a pair"),
        "more than a party holds": (release(EVERYONE, good, [4, 1, 1]), "at most 3 each"),
        "more than there are": (release(EVERYONE, good, [3, 3, 3]), "9 records"),
        "none": (release(EVERYONE, good, [0, 0, 0]), "0 records"),
        "a huge count": (release(EVERYONE, good, [2**32 - 1, 1, 3]), "at most 3 each"),
        "too few parties": (
            release(bitmap(3, [0]), pack_cells(cells & False).tobytes(), counts),
            "fewer than 2 parties",
        ),
    }
    for message, reason in hostile.values():
        step = server.receive(message)
        assert isinstance(step, Rejected)
        assert reason in step.reason
        assert server.state is ServerState.CLOSED
    step = server.receive(release(EVERYONE, good, counts))
    assert step == Continue()
    assert server.awaits_program
    other = server.receive(release(EVERYONE, pack_cells(cells & False).tobytes(), counts))
    assert isinstance(other, Rejected)
    assert "a second release" in other.reason


def test_servers_that_are_told_different_things_compute_nothing_together() -> None:
    """Of slots that count, or of numbers of records: their shares would be of different pairs."""
    query, holdings = a_meeting(min_parties=2, epsilon=None)
    counts = holdings.counts.astype(np.int64)
    cells = both_ends(pairs_of(query).sample, counts, np.ones((3, SLOTS), dtype=bool))
    fewer = both_ends(pairs_of(query).sample, counts, cells & [[True], [True], [False]])
    told = [pack_cells(each).tobytes() for each in (cells, fewer)]

    def intercept(message: Message) -> list[Message]:
        if message.phase is not Phase.RELEASE:
            return [message]
        body = release(EVERYONE, told[int(message.receivers[0])], counts.tolist()).body
        return [replace(message, body=body)]

    gathering = Gathering(query, holdings, intercept=intercept).run()
    assert gathering.failed is not None
    assert "computes something else" in gathering.failed.reason


def test_a_party_that_submits_anything_is_refused_or_bounded() -> None:
    query, holdings = a_meeting(min_parties=2)
    message = submitted(query, holdings)[0]
    server = BoundedServer(query, 0, Randomness(bytes(16)), Memory())
    server.start()
    one = message.select(np.array([1]))
    for rows in (one.body[:, :-1], np.hstack([one.body, one.body])):
        step = server.receive(replace(one, body=np.ascontiguousarray(rows)))
        assert isinstance(step, Rejected)
        assert "expected" in step.reason

    def spoil(arriving: Message) -> list[Message]:
        if arriving.phase is not Phase.SUBMIT or arriving.receivers[0] != 0:
            return [arriving]
        body = arriving.body.copy()
        body[1] ^= 255
        return [replace(arriving, body=body)]

    query = replace(query, min_parties=3)
    honest = Gathering(query, holdings).run().totals
    spoiled = Gathering(query, holdings, intercept=spoil).run().totals
    plan = pairs_of(query)
    assert 0 < np.abs(honest - spoiled).sum() <= plan.sample.matchings * plan.kernel.reach


# --- when it is asked ---


def test_outputs_are_bounded_wherever_that_is_possible() -> None:
    holdings = held(COUNTS, ratings(6))
    plans = {
        (servers, noise): pairs_of(a_pairs_query(GINI, holdings, servers, Fraction(1), noise))
        for servers in (1, 2, 3)
        for noise in (Placement.TOTAL, Placement.PER_PAIR)
    }
    bounded = {key for key, plan in plans.items() if plan.bounded}
    assert bounded == {(1, Placement.TOTAL), (2, Placement.TOTAL)}
    asked = replace(GINI, outputs="bounded")
    for servers, noise in plans.keys() - bounded:
        with pytest.raises(LocalError, match="one server or two, and noise on the total"):
            check(a_pairs_query(asked, holdings, servers, Fraction(1), noise))
    with pytest.raises(LocalError, match="outputs"):
        replace(GINI, outputs="heavy")


def test_what_a_liar_can_do_is_said() -> None:
    holdings = held(COUNTS, ratings(6))
    weighed = a_pairs_query(replace(GINI, outputs="weighed"), holdings).plan
    assert "past any noise" in weighed.trust
    bounded = a_pairs_query(GINI, holdings).plan
    assert "no further than a record may" in bounded.trust
    far = Pairwise(**UNIT, kernel_name="a.value - b.value", bits=4)
    assert "up to 2 times as far" in a_pairs_query(far, holdings).plan.trust


def test_a_server_of_two_waits_for_the_other_and_a_curator_does_not() -> None:
    for servers in (1, 2):
        query, holdings = a_meeting(servers=servers)
        gathering = Gathering(query, holdings).run()
        assert isinstance(gathering.servers[0], JointServer) is (servers == 2)
        assert gathering.total is not None
