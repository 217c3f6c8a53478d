"""The draft's own test vectors, operation by operation, byte by byte, failures included."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.algebra.field import FIELD64, FIELD128, Bytes
from tallyroom.protocols.vdaf import xof
from tallyroom.protocols.vdaf.prio3 import (
    Messages,
    Outputs,
    Prio3,
    VerifyStates,
    prio3_count,
    prio3_histogram,
    prio3_multihot_count_vec,
    prio3_sum,
    prio3_sum_vec,
)
from tallyroom.protocols.vdaf.vectors import SumVec

FOLDER = Path(__file__).parents[2] / "vectors" / "vdaf"
FILES = sorted(FOLDER.glob("Prio3*.json"))

pytestmark = pytest.mark.usefixtures("implementation")


def instance(name: str, v: dict[str, Any]) -> Prio3:
    kind = name.split("_")[0]
    if kind == "Prio3Count":
        return prio3_count(v["shares"])
    if kind == "Prio3Sum":
        return prio3_sum(v["max_measurement"], v["shares"])
    if kind == "Prio3SumVec":
        return prio3_sum_vec(v["length"], v["max_measurement"], v["chunk_length"], v["shares"])
    if kind == "Prio3SumVecWithMultiproof":
        circuit = SumVec(v["length"], v["chunk_length"], v["max_measurement"], FIELD64)
        return Prio3(circuit, 0xFFFFFFFF, v["shares"], proofs=3)
    if kind == "Prio3Histogram":
        return prio3_histogram(v["length"], v["chunk_length"], v["shares"])
    assert kind == "Prio3MultihotCountVec"
    return prio3_multihot_count_vec(v["length"], v["max_weight"], v["chunk_length"], v["shares"])


def row(text: str) -> Bytes:
    return np.frombuffer(bytes.fromhex(text), dtype=np.uint8)[None]


class Replay:
    """Runs the operations of a vector, each on the bytes that the vector gives it."""

    def __init__(self, name: str) -> None:
        self.vector = json.loads((FOLDER / f"{name}.json").read_text())
        self.prio3 = instance(name, self.vector)
        self.ctx = bytes.fromhex(self.vector["ctx"])
        self.states: dict[tuple[int, int], VerifyStates] = {}

    def run(self, operation: dict[str, Any]) -> bool:
        """Whether the operation succeeded; asserts that what it gave is what the vector has."""
        act = getattr(self, operation["operation"])
        fields = {k: v for k, v in operation.items() if k in ("report_index", "aggregator_id")}
        succeeded: bool = act(**fields)
        return succeeded

    def shard(self, report_index: int) -> bool:
        report = self.vector["reports"][report_index]
        measurements = np.array([report["measurement"]])
        rand = row(report["rand"])
        done = self.prio3.shard(measurements, row(report["nonce"]), rand, self.ctx)
        assert done.public_shares.tobytes().hex() == report["public_share"]
        assert [share.tobytes().hex() for share in done.input_shares] == report["input_shares"]
        return True

    def verify_init(self, report_index: int, aggregator_id: int) -> bool:
        report = self.vector["reports"][report_index]
        states, shares = self.prio3.verify_init(
            bytes.fromhex(self.vector["verify_key"]),
            self.ctx,
            aggregator_id,
            row(report["nonce"]),
            row(report["public_share"]),
            row(report["input_shares"][aggregator_id]),
        )
        if states.accepted[0]:
            self.states[report_index, aggregator_id] = states
            assert shares.tobytes().hex() == report["verifier_shares"][0][aggregator_id]
        return bool(states.accepted[0])

    def verifier_shares_to_message(self, report_index: int) -> bool:
        report = self.vector["reports"][report_index]
        shares = [row(share) for share in report["verifier_shares"][0]]
        found = self.prio3.verifier_shares_to_messages(self.ctx, shares)
        if found.accepted[0]:
            assert found.rows.tobytes().hex() == report["verifier_messages"][0]
        return bool(found.accepted[0])

    def verify_next(self, report_index: int, aggregator_id: int) -> bool:
        report = self.vector["reports"][report_index]
        message = Messages(row(report["verifier_messages"][0]), np.ones(1, dtype=np.bool_))
        outputs = self.prio3.verify_next(self.states[report_index, aggregator_id], message)
        if outputs.accepted[0]:
            encoded = self.prio3.field.encode(outputs.shares)
            assert encoded.tobytes().hex() == report["out_shares"][aggregator_id]
        return bool(outputs.accepted[0])

    def aggregate(self, aggregator_id: int) -> bool:
        given = [r["out_shares"][aggregator_id] for r in self.vector["reports"]]
        shares = self.prio3.field.decode(np.concatenate([row(g) for g in given]))
        total = self.prio3.aggregate(Outputs(shares, np.ones(len(given), dtype=np.bool_)))
        expected = self.vector["agg_shares"][aggregator_id]
        assert self.prio3.field.encode(total).tobytes().hex() == expected
        return True

    def unshard(self) -> bool:
        shares = [self.prio3.field.decode(row(s))[0] for s in self.vector["agg_shares"]]
        expected = self.vector["agg_result"]
        result = self.prio3.unshard(shares)
        assert result == (expected if isinstance(expected, list) else [expected])
        return True


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_every_operation_ends_as_the_vector_says(name: str) -> None:
    replay = Replay(name)
    ends = []
    for operation in replay.vector["operations"]:
        ends.append(replay.run(operation))
        assert ends[-1] == operation["success"], operation
    assert ends
    if "_bad_" in name:
        assert not all(ends)


def test_the_vectors_are_all_there() -> None:
    assert len(FILES) == 24
    assert sum("_bad_" in path.stem for path in FILES) == 8


def test_the_xof_vector() -> None:
    v = json.loads((FOLDER / "XofTurboShake128.json").read_text())
    tag, seed, binder = bytes.fromhex(v["dst"]), row(v["seed"]), row(v["binder"])
    assert xof.derive_seeds(tag, seed, binder).tobytes().hex() == v["derived_seed"]
    expanded = xof.expand(FIELD128, tag, seed, binder, v["length"])
    assert FIELD128.encode(expanded).tobytes().hex() == v["expanded_vec_field128"]
