"""`--noise joint` through the real servers: its law, its price, and who is named when it fails."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.garbling.base_ot import REPLY_BYTES
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column
from tallyroom.protocols.run.policy import Policy
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import CollisionEntropy, Gini
from tallyroom.protocols.wire.messages import Message, Phase, Role, address
from tallyroom.simulation import Federation, Result
from tallyroom.storage.ledger import Ledger
from tests.goodness import ALPHA, discrete_laplace_pmf, fits
from tests.simulation.tampering import Change, Tampered

DATA = Dataset("three", {"value": np.array([0.1, 0.5, 0.9])}, {"value": (0.0, 1.0)})
SUPPORT = np.arange(-60, 61)


def errors_of(result: Result) -> Column:
    assert result.truth is not None
    return shape_of(result.estimate).values() - shape_of(result.truth).values()


@pytest.mark.parametrize(("aggregator", "bins"), [("additive", 3000), ("prio3", 300)])
def test_the_noise_of_a_release_is_the_curators(aggregator: str, bins: int) -> None:
    """n = bins, alpha 1e-9: discrete Laplace of scale 2/ε, drawn once."""
    histogram = Histogram(value="value", bins=bins)
    with Federation(parties=3, aggregator=aggregator, data=DATA) as federation:
        result = federation.run(histogram, epsilon=1.0, noise="joint")
        twice = federation.run(histogram, epsilon=1.0, noise="each-server")
    noise = np.rint(errors_of(result)).astype(np.int64)
    assert fits(noise, SUPPORT, discrete_laplace_pmf(SUPPORT, 2.0)) > ALPHA
    q = np.exp(-0.5)
    assert result.deviations[0] ** 2 == pytest.approx(2 * q / (1 - q) ** 2)
    assert twice.deviations[0] ** 2 == pytest.approx(2 * result.deviations[0] ** 2)
    assert result.privacy.noise == "joint"
    assert "neither knows it" in result.privacy.threat_model
    checked = "a server that garbles other noise ends the run"
    assert checked in result.privacy.threat_model
    assert checked not in twice.privacy.threat_model


@pytest.mark.parametrize(
    ("aggregator", "bins", "security"),
    [("additive", 1000, ""), ("prio3", 200, ""), ("additive", 200, "covert")],
)
def test_gaussian_noise_of_a_release_is_the_curators(
    aggregator: str, bins: int, security: str
) -> None:
    """n = bins, alpha 1e-9: discrete Gaussian of σ² = 2000, of two tables, drawn once."""
    histogram = Histogram(value="value", bins=bins)
    with Federation(parties=3, aggregator=aggregator, data=DATA) as federation:
        result = federation.run(
            histogram, "rho 1/2000", noise="joint", noise_law="gaussian", security=security
        )
    noise = np.rint(errors_of(result)).astype(np.int64)
    support = np.arange(-300, 301)
    chances = np.exp(-(support**2) / 4000)
    assert fits(noise, support, chances / chances.sum()) > ALPHA
    assert result.deviations[0] ** 2 == pytest.approx(2000)
    assert result.privacy.loss.rho == Fraction(1, 2000)
    assert 0 < result.privacy.delta <= 2.0**-40


def test_joint_gaussian_noise_takes_at_most_twice_the_bytes_of_laplace_noise() -> None:
    """A curve by the strategy of either law, at what both are granted."""
    curve = Ecdf(value="value", thresholds=64)
    with Federation(parties=3, data=DATA, seed=4) as federation:
        laplace = federation.run(curve, 1.0, noise="joint", delta=1e-6)
        gaussian = federation.run(curve, 1.0, noise="joint", noise_law="gaussian", delta=1e-6)
    sent = [each.bill.by_phase()["prepare"].bytes for each in (laplace, gaussian)]
    assert sent[1] <= 2 * sent[0]


@pytest.mark.parametrize("aggregator", ["fss", "fss?verified=yes"])
def test_a_curve_of_keys_errs_as_it_says(aggregator: str) -> None:
    """The root mean square of errors over deviations, at 64 points of a tree: within a factor 3."""
    with Federation(parties=3, aggregator=aggregator, data=DATA, seed=4) as federation:
        result = federation.run(
            Ecdf(value="value", thresholds=64, smooth="none"), 1.0, noise="joint"
        )
    noisy = result.deviations > 0  # the last point is the number of records, which is public
    ratio = np.sqrt(np.mean((errors_of(result)[noisy] / result.deviations[noisy]) ** 2))
    assert 1 / 3 < ratio < 3


def test_the_totals_of_pairs_have_it_by_default() -> None:
    data = Dataset("equal", {"value": np.full(8, 0.5)}, {"value": (0.0, 1.0)})
    with Federation(parties=2, data=data, seed=1) as federation:
        result = federation.run(Gini(value="value", bits=6), epsilon=1e6, delta=1e-9, noise="total")
        assert result.privacy.noise == "total"
        result = federation.run(CollisionEntropy(value="value"), epsilon=8.0)
        by_servers = federation.run(CollisionEntropy(value="value", meet="servers"), epsilon=8.0)
        asked = CollisionEntropy(value="value", meet="servers", outputs="weighed")
        weighed = federation.run(asked, epsilon=8.0)
    assert "server-0, which garbles pairs, is not checked" in by_servers.privacy.threat_model
    assert "no further than a record may" in by_servers.privacy.threat_model
    assert "which garbles pairs, must follow the protocol" in weighed.privacy.threat_model
    assert "the released total can tell any record" in weighed.privacy.threat_model
    assert "garbles other noise ends the run" in by_servers.privacy.threat_model
    assert "the party that garbles a pair is not checked" in result.privacy.threat_model
    assert result.privacy.noise == "joint"
    assert 0 < result.privacy.delta <= 2.0**-40
    with Federation(parties=2, servers=3, data=data, seed=1) as federation:
        result = federation.run(CollisionEntropy(value="value"), epsilon=8.0)
    assert result.privacy.noise == "each-server"


def test_its_delta_is_charged_and_within_what_was_granted(tmp_path: Path) -> None:
    with Federation(parties=3, data=DATA, store=tmp_path) as federation:
        result = federation.run(Mean(value="value"), epsilon=1.0, noise="joint", delta=1e-9)
    assert 2.0**-40 < result.privacy.delta <= 1e-9
    for keeper in ("server-0", "server-1", "coordinator"):
        ledger = Ledger(tmp_path / keeper / "ledger.sqlite")
        assert ledger.rows()[0][3] == pytest.approx(result.privacy.delta)
        ledger.close()


def test_what_goes_between_servers_is_on_the_bill() -> None:
    with Federation(parties=3, data=DATA) as federation:
        result = federation.run(Histogram(value="value", bins=20), epsilon=1.0, noise="joint")
    bill = result.bill
    assert bill.by_link()["server->server"] == bill.by_phase()["prepare"]
    assert bill.by_phase()["prepare"].messages == 10
    ends = {(sender, receiver) for _, _, sender, receiver, _, _ in bill.rows()}
    assert {(f"server-{i}", "the other server") for i in (0, 1)} <= ends


def test_a_large_epsilon_has_joint_noise_too() -> None:
    """At ε = 100 there is none of 3 noises in 10^21 answers; at 700 it is told that none is."""
    with Federation(parties=3, hosts=1, data=DATA) as federation:
        result = federation.run(Histogram(value="value", bins=3), epsilon=100, noise="joint")
        assert errors_of(result).tolist() == [0, 0, 0]
        assert 0 < result.privacy.delta <= 2.0**-40
        with pytest.raises(LocalError, match="choose another --noise, or inf"):
            federation.run(Histogram(value="value", bins=3), epsilon=700, noise="joint")


def test_coins_without_end_are_not_drawn() -> None:
    """Whoever asks chooses δ, and with it how many coins a noise takes."""
    with (
        Federation(parties=3, hosts=1, data=DATA) as federation,
        pytest.raises(LocalError, match="too many to draw together: grant more delta"),
    ):
        federation.run(
            Histogram(value="value", bins=1 << 16), epsilon="0.001", noise="joint", delta=1e-250
        )


def test_gaussian_noise_without_end_is_not_drawn() -> None:
    """Whoever asks chooses ρ, and with it how many tables a noise is drawn from."""
    with (
        Federation(parties=3, hosts=1, data=DATA) as federation,
        pytest.raises(LocalError, match=r"too many to draw together: .*--noise each-server"),
    ):
        federation.run(
            Histogram(value="value", bins=1 << 16), "rho 1e-15", "joint", noise_law="gaussian"
        )


@pytest.mark.parametrize(
    ("servers", "aggregator", "words"),
    [
        (1, "curator", "drawn by two servers, not by 1"),
        (1, "masking", "drawn by two servers, not by 1"),
        (3, "additive", "drawn by two servers, not by 3"),
        (2, "shamir?threshold=2", "parties"),
    ],
)
def test_where_there_is_none_is_said_in_one_line(servers: int, aggregator: str, words: str) -> None:
    with (
        Federation(parties=3, servers=servers, aggregator=aggregator, data=DATA) as federation,
        pytest.raises(LocalError, match=words),
    ):
        federation.run(Mean(value="value"), epsilon=1.0, noise="joint")


@pytest.mark.parametrize(
    ("servers", "honest", "asked"),
    [(3, 2, "shared"), (4, 3, "shared"), (4, 2, "shared?honest=2"), (3, 3, "shared?honest=3")],
)
def test_shared_noise_is_that_of_all_shares_and_the_honest_suffice(
    servers: int, honest: int, asked: str
) -> None:
    """n = 3000, alpha 1e-9: differences of two negative binomials of shape m/h, a majority unless
    somebody says; the shares of h servers sum to discrete Laplace itself."""
    with Federation(parties=3, servers=servers, data=DATA, seed=3) as federation:
        result = federation.run(Histogram(value="value", bins=3000), epsilon=1.0, noise=asked)
    assert f"at most {servers - honest} of them collude" in result.privacy.threat_model
    noise = np.rint(errors_of(result)).astype(np.int64)
    q = np.exp(-0.5)
    one = stats.nbinom.pmf(np.arange(200), servers / honest, 1 - q)
    law = np.convolve(one, one[::-1])[199 - 60 : 199 + 61]
    assert fits(noise, SUPPORT, law) > ALPHA
    assert result.deviations[0] ** 2 == pytest.approx(servers / honest * 2 * q / (1 - q) ** 2)
    shares = [
        DiscreteLaplace(Fraction(2)).draw_shares(
            np.zeros(1, dtype=np.uint32), honest, 3000, Randomness.from_seed(server, "server")
        )[0]
        for server in range(honest)
    ]
    total = np.sum(shares, axis=0)
    assert fits(total, SUPPORT, discrete_laplace_pmf(SUPPORT, 2.0)) > ALPHA
    fewer = np.sum(shares[1:], axis=0)
    assert fits(fewer, SUPPORT, discrete_laplace_pmf(SUPPORT, 2.0)) < ALPHA


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ("shared?honest=4", "4 honest servers: there are 3"),
        ("shared?honest=0", "shared.honest=H for H honest servers"),
        ("shared?honest=1e9", "shared.honest=H for H honest servers"),
        ("joint?honest=2", "no noise placement"),
    ],
)
def test_honest_servers_that_there_are_not_are_one_line(noise: str, words: str) -> None:
    with (
        Federation(parties=3, servers=3, data=DATA) as federation,
        pytest.raises(LocalError, match=words),
    ):
        federation.run(Mean(value="value"), epsilon=1.0, noise=noise)


def test_a_party_that_trusts_fewer_servers_takes_no_part() -> None:
    """By default a majority is taken to be honest: noise that needs all of them is refused."""
    for policy, noise, refused in (
        (Policy(), "shared?honest=3", True),
        (Policy(), "shared", False),
        (Policy(honest_servers=1), "shared", True),
        (Policy(honest_servers=1), "shared?honest=1", False),
        (Policy(honest_servers=3), "shared?honest=3", False),
    ):
        with Federation(parties=3, servers=3, data=DATA, policy=policy) as federation:
            if not refused:
                federation.run(Mean(value="value"), epsilon=1.0, noise=noise)
                continue
            with pytest.raises(RunFailed, match="servers for honest, and shared noise needs"):
                federation.run(Mean(value="value"), epsilon=1.0, noise=noise)


def test_two_servers_do_not_share_noise() -> None:
    with (
        Federation(parties=3, data=DATA) as federation,
        pytest.raises(LocalError, match="three servers or more, not 2"),
    ):
        federation.run(Mean(value="value"), epsilon=1.0, noise="shared")


def fails(change: Change) -> str:
    with Federation(parties=3, data=DATA) as federation:
        runtime = Tampered(federation.runtime.layout)
        runtime.change = change
        federation.runtime = runtime
        with pytest.raises(RunFailed) as caught:
            federation.run(Mean(value="value"), epsilon=1.0, noise="joint")
    return str(caught.value)


def test_a_server_that_sends_a_malformed_circuit_is_named() -> None:
    def garbled_otherwise(message: Message) -> Message:
        if message.phase is Phase.PREPARE and message.width > 5000 and message.senders[0] == 0:
            body = message.body.copy()
            body[0, 3000] ^= 1
            return replace(message, body=body)
        return message

    assert fails(garbled_otherwise) == (
        "server-1 cannot go on: server-0: an answer that does not fit its digest"
    )


def test_a_server_that_asks_for_what_it_may_not_is_named() -> None:
    def inconsistent(message: Message) -> Message:
        if message.phase is Phase.PREPARE and message.width > 5000 and message.senders[0] == 1:
            body = message.body.copy()
            start = 8 + REPLY_BYTES  # of base transfers in which server 1 is the garbler
            body[0, start : start + 16] ^= 0xFF
            return replace(message, body=body)
        return message

    said = fails(inconsistent)
    assert said.startswith("server-0 ")
    assert "server-1: choices that are inconsistent" in said


def test_a_server_of_another_version_is_named() -> None:
    def older(message: Message) -> Message:
        if message.phase is Phase.PREPARE and message.senders[0] == 1:
            body = message.body.copy()
            body[0, 4] = 99
            return replace(message, body=body)
        return message

    assert fails(older) == "server-0 cannot go on: server-1: does not speak version 3 of this"


@pytest.mark.parametrize(
    ("role", "sender"), [(Role.PARTY, 1), (Role.COORDINATOR, 0), (Role.SERVER, 0), (Role.SERVER, 7)]
)
def test_nobody_else_computes_with_a_server(role: Role, sender: int) -> None:
    """Server 0 takes what server 1 says, and from nobody else, itself included."""

    def forged(message: Message) -> Message:
        if message.phase is Phase.PREPARE and message.receivers[0] == 0:
            return replace(message, sender_role=role, senders=address(sender), round=1)
        return message

    said = fails(forged)
    assert "only the other server computes with this one" in said or "deadline" in said
