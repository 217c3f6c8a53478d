"""Statistics of pairs by whole machines: what views tell, what noise is drawn, how far answers err.

Base OTs are dealt (`deal_base_ots`); everything else is the protocol. Every check errs with
probability ALPHA at most; n stands with each.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.kernels.estimator import Design, Zetas
from tallyroom.protocols.pairwise.sampling.pair_assignment import draw_meetings, garblers_of
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.of_pairs import CollisionEntropy, Gini
from tallyroom.protocols.wire.messages import Message, Phase
from tests.goodness import ALPHA, fits, uniform_bytes_p
from tests.protocols.pairwise.gathering import (
    Gathering,
    a_pairs_query,
    deal_base_ots,
    drawn_values,
    held,
    leaving,
    owners_of,
)

BIT = Gini(lower=0.0, upper=1.0, bits=1, pairs_per_party="1", meetings="all")
"""|x − y| of bits: the exclusive or."""


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    deal_base_ots(monkeypatch)


# --- views ---

LINKS = 2000


class View:
    """All pairs of 2·LINKS parties with one record each, the garblers' all `x`, the others' `y`.

    One server, so that what a party submits is what it holds.
    """

    def __init__(self, x: int, y: int, seed: int) -> None:
        parties = 2 * LINKS
        empty = held([1] * parties, {"value": np.zeros(parties)})
        query = a_pairs_query(BIT, empty, servers=1)
        owners = owners_of(query, empty)
        garblers = garblers_of(owners[:, 0], owners[:, 1])
        values = np.full(parties, float(y))
        values[garblers] = float(x)
        sent = Gathering(query, held([1] * parties, {"value": values}), seed=seed).run().sent
        self.garblers = np.sort(garblers)
        self.evaluators = np.setdiff1d(np.arange(parties, dtype=np.uint32), garblers)
        self.request = rows_by(sent, 3, to_garbler=True, order=self.garblers)
        self.answer = rows_by(sent, 4, to_garbler=False, order=self.evaluators)
        (submitted,) = (message for message in sent if message.phase is Phase.SUBMIT)
        shares = (submitted.rows()[:, 0] >> 7).astype(np.uint64)  # one bit, left in its byte
        self.garbler_shares = shares[self.garblers]
        self.evaluator_shares = shares[self.evaluators]

    def cells(self, rows: Bytes, share: Vector) -> NDArray[np.int64]:
        """How often each combination of low bits occurs, of six places of the message and the
        share."""
        places = np.linspace(5, rows.shape[1] - 1, 6).astype(int)
        bits = np.column_stack([rows[:, places] & 1, (share & np.uint64(1)).astype(np.uint8)])
        return np.bincount(bits @ (1 << np.arange(7)), minlength=128)


def rows_by(sent: list[Message], step: int, to_garbler: bool, order: NDArray[np.uint32]) -> Bytes:
    """What those in `order` received in one step."""
    found: dict[int, Bytes] = {}
    for message in sent:
        if message.phase is Phase.PAIR and int(message.body[0, 0]) == step:
            for receiver, row in zip(message.receivers.tolist(), message.rows(), strict=True):
                found[receiver] = row
    return np.stack([found[int(party)] for party in order])


def differ(left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    return float(stats.chi2_contingency(np.stack([left, right]) + 1).pvalue)


def test_neither_party_sees_the_others_record() -> None:
    """Two-sample chi-square on 128 joint cells, n = 2,000 links for each input. A share that gave
    the result away on one link of three is found."""
    views = {(x, y): View(x, y, 10 * x + y + 1) for x in (0, 1) for y in (0, 1)}
    for own in (0, 1):
        zero, one = views[0, own], views[1, own]
        seen = [v.cells(v.answer, v.evaluator_shares) for v in (zero, one)]
        assert differ(*seen) > ALPHA
        zero, one = views[own, 0], views[own, 1]
        seen = [v.cells(v.request, v.garbler_shares) for v in (zero, one)]
        assert differ(*seen) > ALPHA
    leaky = []
    for x in (0, 1):
        view = views[x, 0]
        share = view.evaluator_shares.copy()
        share[::3] = x
        leaky.append(view.cells(view.answer, share))
    assert differ(*leaky) < ALPHA


def test_what_one_server_gets_is_uniform() -> None:
    """Bytes of n = 500 submissions of 8 bits; and a party's own share is uniform before it is
    shared again. Pairs of a party's own records, of which there are some eight, are 0."""
    holdings = held([8] * 500, {"value": np.ones(4000)})
    for servers in (1, 2):
        query = a_pairs_query(BIT, holdings, servers=servers)
        sent = Gathering(query, holdings).run().sent
        submitted = [message for message in sent if message.phase is Phase.SUBMIT]
        if servers == 1:
            bits = submitted[0].rows().ravel() >> 7
            assert len(bits) == 4000
            assert (submitted[0].rows() & 127 == 0).all()
            assert stats.binomtest(int(bits.sum()), len(bits)).pvalue > ALPHA
        else:
            assert all(uniform_bytes_p(m.body.tobytes()) > ALPHA for m in submitted)


# --- noise inside circuits ---

EACH = 3000
EQUAL = CollisionEntropy(lower=0.0, upper=1.0, bits=1, pairs_per_party="1")
"""I[x = y], with Δ = 1."""


def per_pair_query(holdings: Holdings, epsilon: Fraction) -> Query:
    return a_pairs_query(
        EQUAL,
        holdings,
        servers=1,
        epsilon=epsilon,
        noise=Placement.PER_PAIR,
        delta=1e-4,
    )


def pair_values(query: Query, holdings: Holdings, seed: int) -> tuple[NDArray[np.int64], Bytes]:
    """What is released of every pair, and whether two parties computed it."""
    sent = Gathering(query, holdings, seed=seed).run().sent
    (submitted,) = (message for message in sent if message.phase is Phase.SUBMIT)
    shares = np.ascontiguousarray(submitted.rows()).view("<u8")
    parties, entries = draw_meetings(pairs_of(query).sample, holdings.counts.astype(np.int64))
    first = entries["second"] == 0
    ours = shares[parties[first], entries["slot"][first]]
    partners, theirs = entries["partner"][first], entries["theirs"][first]
    remote = partners != parties[first]
    values = ours + np.where(remote, shares[partners, theirs], np.uint64(0))
    return signed(values), remote


def test_pairs_carry_the_noise_that_was_announced() -> None:
    """Chi-square of about 1,500 values computed by two parties, and as many by one alone."""
    values = np.arange(2 * EACH) % 2
    holdings = held([EACH, EACH], {"value": values.astype(np.float64)})
    query = per_pair_query(holdings, Fraction(1, 2))
    noise = query.circuit_noise
    assert noise is not None
    assert noise.scale == 2
    released, remote = pair_values(query, holdings, seed=4)
    clear = exact_pairs(query, holdings)
    support = np.arange(noise.low, noise.high + 1)
    for chosen in (remote, ~remote):
        assert np.count_nonzero(chosen) > 1000
        drawn = (released - clear)[chosen]
        assert fits(drawn, support, noise.probabilities()) > ALPHA
        other = CircuitLaplace(noise.scale * Fraction(3, 2), noise.magnitude_bits, noise.coin_bits)
        assert fits(drawn, support, other.probabilities()) < ALPHA


def exact_pairs(query: Query, holdings: Holdings) -> NDArray[np.int64]:
    """The kernel of every pair, in the order of `pair_values`."""
    records = query.plan.measured(holdings)
    parties, entries = draw_meetings(pairs_of(query).sample, holdings.counts.astype(np.int64))
    first = entries["second"] == 0
    x = records[holdings.starts[parties[first]] + entries["slot"][first]]
    y = records[holdings.starts[entries["partner"][first]] + entries["theirs"][first]]
    return pairs_of(query).kernel.reference(x, y)[:, 0]


def measured_epsilon(asked: Fraction) -> float:
    """What Clopper–Pearson bounds at confidence 1 − 2·ALPHA prove from n = 3,000 pairs on either
    side, whose records are equal or not: an event that tells them apart best is "at least 1"."""
    counts = []
    for equal in (True, False):
        holdings = held([EACH, EACH], {"value": np.zeros(2 * EACH)})
        query = per_pair_query(holdings, asked)
        parties, entries = draw_meetings(pairs_of(query).sample, holdings.counts.astype(np.int64))
        values = np.zeros(2 * EACH)
        if not equal:
            second = entries["second"] == 1
            values[holdings.starts[parties[second]] + entries["slot"][second]] = 1.0
        filled = held([EACH, EACH], {"value": values})
        assert set(exact_pairs(query, filled).tolist()) == {int(equal)}
        released, _ = pair_values(query, filled, seed=7 + equal)
        counts.append(int(np.count_nonzero(released >= 1)))
    with_it, without = counts
    least = stats.beta.ppf(ALPHA, with_it, EACH - with_it + 1)
    most = stats.beta.ppf(1 - ALPHA, without + 1, EACH - without)
    return math.log(least / most)


def test_no_more_than_epsilon_can_be_measured_of_a_pair() -> None:
    assert 0.4 < measured_epsilon(Fraction(1)) < 1.0


def test_noise_that_was_halved_is_caught() -> None:
    assert measured_epsilon(Fraction(2)) > 1.0


# --- errors of whole runs ---

P_ONE = 0.3
MEAN = 2 * P_ONE * (1 - P_ONE)
ZETAS = Zetas(P_ONE * (1 - P_ONE) * (1 - 2 * P_ONE) ** 2, MEAN * (1 - MEAN))
"""Of |x − y| for independent bits that are 1 with probability 0.3."""
COUNTS = [3, 3]
MATCHINGS = 2
DESIGN = Design(sum(COUNTS), MATCHINGS)


def errors_of_runs(
    runs: int, epsilon: Fraction | None, noise: Placement, servers: int
) -> NDArray[np.float64]:
    """Of the mean over pairs before it is brought into its range."""
    draw = np.random.default_rng(12)
    statistic = Gini(lower=0.0, upper=1.0, bits=1, pairs_per_party=str(MATCHINGS))
    errors = []
    for run in range(runs):
        values = (draw.random(sum(COUNTS)) < P_ONE).astype(np.float64)
        holdings = held(COUNTS, {"value": values})
        query = a_pairs_query(
            statistic, holdings, servers=servers, epsilon=epsilon, noise=noise, delta=1e-3
        )
        gathering = Gathering(query, holdings, seed=run).run()
        assert gathering.total is not None
        mean = gathering.totals[0] / gathering.total.records
        errors.append(mean + (0.5 if query.circuit_noise else 0.0) - MEAN)
    return np.array(errors)


def is_mean_square(errors: NDArray[np.float64], wanted: float) -> bool:
    """Whether `wanted` lies in the interval of confidence 1 − ALPHA around the mean square."""
    squares = errors**2
    reach = stats.norm.isf(ALPHA / 2) * squares.std(ddof=1) / math.sqrt(len(squares))
    return bool(abs(squares.mean() - wanted) <= reach)


def is_centred(errors: NDArray[np.float64]) -> bool:
    reach = stats.norm.isf(ALPHA / 2) * errors.std(ddof=1) / math.sqrt(len(errors))
    return bool(abs(errors.mean()) <= reach)


def test_noise_on_every_pair_errs_as_the_corrected_theorem_says() -> None:
    """S1, Theorem 5, with 4PΔ²/(nε²) for its privacy term; its own 2P/(nε²) is refuted."""
    errors = errors_of_runs(1500, Fraction(1, 2), Placement.PER_PAIR, servers=1)
    sampling = DESIGN.sampling_variance(ZETAS)
    noise = DESIGN.per_pair_variance(1.0, 0.5)
    assert noise == pytest.approx(4 * MATCHINGS / (sum(COUNTS) * 0.5**2))
    assert is_mean_square(errors, sampling + noise)
    assert not is_mean_square(errors, sampling + noise / 2)
    assert is_centred(errors)


def test_noise_on_the_total_errs_as_a_trusted_curator_would() -> None:
    """8Δ²/(n²ε²) and what sampling adds; n = 1500. Noise of both servers is refuted."""
    errors = errors_of_runs(1500, Fraction(1, 2), Placement.TOTAL, servers=2)
    sampling = DESIGN.sampling_variance(ZETAS)
    noise = DESIGN.total_variance(1.0, 0.5)
    assert noise == pytest.approx(8 / (sum(COUNTS) ** 2 * 0.5**2))
    assert is_mean_square(errors, sampling + noise)
    assert not is_mean_square(errors, sampling + 2 * noise)
    assert is_centred(errors)


def test_without_noise_only_sampling_errs() -> None:
    """n = 400; a variance of half or twice that is refuted."""
    errors = errors_of_runs(400, None, Placement.TOTAL, servers=1)
    sampling = DESIGN.sampling_variance(ZETAS)
    assert is_mean_square(errors, sampling)
    assert not is_mean_square(errors, sampling / 2)
    assert not is_mean_square(errors, sampling * 2)


def test_dropouts_do_not_bias() -> None:
    """One party of four, whichever, vanishes after a few messages; n = 150."""
    draw = np.random.default_rng(13)
    statistic = Gini(lower=0.0, upper=1.0, bits=1, pairs_per_party="2")
    errors = []
    for run in range(150):
        values = (draw.random(6) < P_ONE).astype(np.float64)
        holdings = held([2, 1, 2, 1], {"value": values})
        query = a_pairs_query(statistic, holdings, servers=1, min_parties=2)
        gone = leaving(int(draw.integers(4)), int(draw.integers(6)))
        gathering = Gathering(query, holdings, 4, None, gone, seed=run).run()
        if gathering.total is not None:
            assert gathering.total.records < len(drawn_values(query, holdings))
            errors.append(gathering.totals[0] / gathering.total.records - MEAN)
    assert len(errors) > 120
    assert is_centred(np.array(errors))
