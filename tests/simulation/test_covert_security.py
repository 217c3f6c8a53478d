"""`--security` through the real servers: right answers, and liars that are caught and proved."""

import json
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation.cheat_certificate import CheatCertificate
from tallyroom.protocols.errors import LocalError, PeerError, RunFailed
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode, TopK
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.simulation import Federation
from tests.conftest import Tally

VALUES = np.random.default_rng(1).random(30)
DATA = Dataset(
    "two",
    {"value": VALUES, "score": VALUES, "label": (VALUES > 0.6).astype(np.float64)},
    {"value": (0.0, 1.0), "score": (0.0, 1.0)},
)
HISTOGRAM = Histogram(value="value", bins=4)
STATISTICS: dict[str, Statistic] = {
    "histogram": HISTOGRAM,
    "mode": Mode(value="value", bins=4),
    "top-k": TopK(value="value", bins=4, k=2),
    "auc": Auc(score="score", label="label", meet="servers", pairs_per_party="4"),
}


@pytest.mark.parametrize("level", ["semi-honest", "covert", "malicious"])
@pytest.mark.parametrize("name", STATISTICS)
def test_every_level_gives_the_exact_answer_without_noise(name: str, level: str) -> None:
    with Federation(parties=3, data=DATA, seed=1) as federation:
        told = [
            federation.run(STATISTICS[name], epsilon="inf", noise="joint", security=security)
            for security in (level, "")
        ]
    assert told[0].estimate == told[1].estimate


@pytest.mark.parametrize("aggregator", ["additive", "prio3", "fss"])
def test_covert_noise_is_added_and_private_answers_say_so(aggregator: str) -> None:
    with Federation(parties=3, aggregator=aggregator, data=DATA) as federation:
        result = federation.run(HISTOGRAM, noise="joint", security="covert")
    assert "proved to have lied" in result.privacy.threat_model
    assert result.truth is not None
    assert result.bill.by_link()["server->server"].bytes > 50_000


def cheated(security: str, seed: int) -> bytes | None:
    """The proof with which a run in which server 0 garbles no noise fails; None if it does not."""
    cheats = ["server-0:no-noise"]
    with Federation(parties=3, data=DATA, seed=seed, cheats=cheats) as federation:
        try:
            result = federation.run(HISTOGRAM, noise="joint", security=security)
        except RunFailed as error:
            failed = error
        else:
            assert result.estimate == result.truth  # it got through: there is no noise
            return None
    assert failed.proof is not None
    assert "server-0: garbled otherwise than it must" in str(failed)
    assert len(str(failed)) < 300
    return failed.proof
    assert result.estimate == result.truth  # it got through: there is no noise
    return None


def test_a_server_that_leaves_noise_out_is_caught_and_named_by_a_certificate(
    tmp_path: Path, tally_here: Tally
) -> None:
    proofs = [cheated("covert", seed) for seed in range(6)]
    assert None in proofs
    proof = next(each for each in proofs if each is not None)
    document = json.loads(proof)
    certificate = CheatCertificate.decode(document)
    assert certificate.cheater == "server-0"
    assert certificate.check().statistic.name == "histogram"
    with Federation(parties=3, data=DATA) as other:
        other.start()
        with pytest.raises(PeerError, match="not signed by the members' authority"):
            certificate.check(other.runtime._authority)  # type: ignore[attr-defined]
    for change in ({"run": "00" * 28}, {"query": ""}, {"schema": 2}, {"more": 1}, {"run": 1}):
        with pytest.raises(PeerError):
            CheatCertificate.decode(document | change).check()
    file = tmp_path / "certificate.json"
    file.write_bytes(proof)
    said = tally_here("verify", str(tmp_path))
    assert said.returncode == 0
    assert said.stdout.startswith("server-0 cheated in run")
    accusation = document["accusation"]
    other_copy = accusation | {"copy": 1 - accusation["copy"]}
    file.write_text(json.dumps(document | {"accusation": other_copy}))
    said = tally_here("verify", str(file))
    assert said.returncode == 3
    assert "proves nothing" in said.stderr
    assert not said.stdout


def test_without_checks_the_same_lie_passes_and_with_them_the_run_ends() -> None:
    assert cheated("semi-honest", 1) is None
    cheats = ["server-0:no-noise"]
    with (
        Federation(parties=3, data=DATA, cheats=cheats) as federation,
        pytest.raises(RunFailed, match="came out differently") as failed,
    ):
        federation.run(Histogram(value="value", bins=60), noise="joint")
    assert failed.value.proof is None


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        ("server-1:no-noise", "server-0 garbles"),
        ("server-0:everything", "no-noise"),
        ("server-0", "no-noise"),
    ],
)
def test_other_cheats_of_servers_are_refused(cheat: str, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Federation(parties=3, data=DATA, cheats=[cheat])
    with pytest.raises(LocalError, match="inprocess"):
        Federation(parties=3, data=DATA, cheats=["server-0:no-noise"], runtime="processes")
