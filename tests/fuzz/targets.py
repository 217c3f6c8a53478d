"""What reads bytes that others wrote, each with the one error that may come of it.

A target takes any bytes and returns; whatever else it raises is a finding. The seeds are valid
inputs: mutations of them reach further than random bytes do.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from tallyroom.fss.comparison import Comparison
from tallyroom.fss.ring import Bytes, Ring
from tallyroom.parties.schema import PUBLISHED, parse_lines
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling.outputs import OutputShares
from tallyroom.protocols.predicates import canonical
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import decode_query, run_name
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.wire.messages import Phase, Role, decode
from tallyroom.protocols.wire.meter import Direction, Meter
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import accounts_from_wire, accounts_to_wire
from tallyroom.storage.journal import Journal, Kind, read_records
from tests.fuzz.pair_targets import PAIR_TARGETS
from tests.protocols.garbling.circuits import greater
from tests.protocols.pairwise.dealing import dealt
from tests.samples import NONCE, RUN, a_message, a_query

COMPARISONS = (Comparison(8, Ring(64), 2), Comparison(4, Ring(64), 3), Comparison(16, Ring(32), 3))
THRESHOLDS = np.array([0, 3, 15], dtype=np.uint64)
PAIR_CIRCUIT = greater(8)
PAIR_LINK = np.array([1], dtype=np.uint64)
PAIR_BITS = np.ones((1, 2, 8), dtype=np.uint8)


@dataclass(frozen=True)
class Target:
    """`run` takes any bytes; `seeds` are some that it takes without complaint."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def message(data: bytes) -> None:
    """What is decoded is exactly what it encodes to."""
    try:
        decoded = decode(data, "peer")
    except PeerError:
        return
    assert decoded.encode() == data


def query(data: bytes) -> None:
    try:
        decoded = decode_query(run_name(NONCE, data), data, "peer")
        _ = decoded.noise_law  # what a server asks of a query before it takes part
    except (PeerError, LocalError):
        return
    assert decoded.encode() == data


def question(data: bytes) -> None:
    try:
        decoded = Question.decode(data.decode(errors="replace"))
    except LocalError:
        return
    assert Question.decode(decoded.encode()) == decoded


def condition(data: bytes) -> None:
    """What is taken has one canonical form, which is taken too."""
    try:
        written = canonical(data.decode(errors="replace"))
    except LocalError:
        return
    assert canonical(written) == written


def accounts(data: bytes) -> None:
    try:
        accounts_from_wire(pb.AccountList.FromString(data), "peer")
    except (PeerError, DecodeError):
        return


def stored_keys(data: bytes) -> None:
    """Of all constructions: the first byte chooses, the others are keys as uploaded."""
    comparison = COMPARISONS[data[0] % len(COMPARISONS)] if data else COMPARISONS[0]
    server = (data[0] // 16) % comparison.servers if data else 0
    stored = np.frombuffer(data[1:], dtype=np.uint8)
    try:
        width = comparison.key_bytes(server)
        keys = stored[: stored.size // width * width].reshape(-1, width)
        comparison.evaluate_sum(server, keys, THRESHOLDS, threads=1)
    except ValueError:
        return


def journal(data: bytes) -> None:
    """Reading cuts a torn end off; reading again finds the same and cuts nothing."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        path = Path(folder) / "run.log"
        path.write_bytes(data)
        records = read_records(path)
        left = path.read_bytes()
        assert data.startswith(left)
        assert read_records(path) == records
        assert path.read_bytes() == left


def pair_request(data: bytes) -> None:
    """Whatever a garbler takes, it answers with rows of one length."""
    _, garbler = dealt(PAIR_LINK, 1)
    try:
        answer = garbler.answer(PAIR_CIRCUIT, PAIR_BITS, _row(data), OutputShares.SIGNED)
    except PeerError:
        return
    assert answer.rows.shape == (1, len(_pair_seeds()[1][0]))


def pair_answer(data: bytes) -> None:
    """An evaluator takes the one right answer and no other bytes."""
    evaluator, _ = dealt(PAIR_LINK, 1)
    evaluator.request(PAIR_CIRCUIT, PAIR_BITS, OutputShares.SIGNED)
    try:
        evaluator.finish(_row(data))
    except PeerError:
        return
    assert data == _pair_seeds()[1][0]


def schema(data: bytes) -> None:
    """What is read is what options say, and reads the same again."""
    try:
        found = parse_lines(data, "schema")
    except LocalError:
        return
    assert parse_lines("\n".join(found).encode(), "schema") == found


def _row(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8).reshape(1, -1)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _message_seeds() -> tuple[bytes, ...]:
    batch = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (0, 1, 2), body=bytes(16))
    shared = replace(batch, body=batch.body[:1])
    one = a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=b"\xf0")
    return batch.encode(), shared.encode(), one.encode()


def _query_seeds() -> tuple[bytes, ...]:
    curve = Ecdf(lower=0.0, upper=1.0, thresholds=8)
    queries = (a_query(), a_query(statistic=curve, epsilon=Fraction(1, 3)))
    return tuple(each.encode() for each in queries)


def _question_seeds() -> tuple[bytes, ...]:
    statistics = (Mean(lower=0.0, upper=1.0), Histogram(bins=5), Ecdf(thresholds=8))
    return tuple(
        Question(each, "additive", Fraction(1, 2), Placement.EACH_SERVER, min_parties=3)
        .encode()
        .encode()
        for each in statistics
    )


def _account_seeds() -> tuple[bytes, ...]:
    meter = Meter()
    for round_ in (1, 2):
        sent = a_message(
            Phase.SUBMIT, Role.PARTY, Role.SERVER, (0, 1, 5), body=bytes(8), round_=round_
        )
        meter.record(Direction.RECEIVED, sent)
    return (accounts_to_wire(meter).SerializeToString(),)


def _key_seeds() -> tuple[bytes, ...]:
    seeds = []
    for number, comparison in enumerate(COMPARISONS):
        width = comparison.randomness_bytes
        randomness = np.arange(2 * width, dtype=np.uint8).reshape(2, width)
        rows = comparison.gen(np.array([1, 9], dtype=np.uint64), randomness)
        for server in range(comparison.servers):
            chosen = next(
                b for b in range(256) if b % 3 == number and b // 16 % comparison.servers == server
            )
            seeds.append(bytes([chosen]) + rows[server].tobytes())
    return tuple(seeds)


def _journal_seeds() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        written = Journal(Path(folder))
        for kind, data in ((Kind.QUERY, b"asked"), (Kind.MESSAGE, bytes(30)), (Kind.EXPIRE, b"")):
            written.append(RUN, kind, data)
        written.close()
        return ((Path(folder) / f"{RUN.hex()}.log").read_bytes(),)


@cache
def _pair_seeds() -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """A request, and the answer to it."""
    evaluator, garbler = dealt(PAIR_LINK, 1)
    request = evaluator.request(PAIR_CIRCUIT, PAIR_BITS, OutputShares.SIGNED)
    answer = garbler.answer(PAIR_CIRCUIT, PAIR_BITS, request, OutputShares.SIGNED)
    return (request.tobytes(),), (answer.rows.tobytes(),)


TARGETS: dict[str, Target] = {
    "message": Target(message, _message_seeds()),
    "query": Target(query, _query_seeds()),
    "question": Target(question, _question_seeds()),
    "accounts": Target(accounts, _account_seeds()),
    "stored_keys": Target(stored_keys, _key_seeds()),
    "journal": Target(journal, _journal_seeds()),
    "schema": Target(schema, ("\n".join(PUBLISHED["adult"]).encode(), b"# a\n\na = 0:1\n")),
    "condition": Target(
        condition, (b'age >= 40 and (sex = "F" or not x in (1, 2.5))', b"a is null")
    ),
    "pair_request": Target(pair_request, _pair_seeds()[0]),
    "pair_answer": Target(pair_answer, _pair_seeds()[1]),
    **{name: Target(*each) for name, each in PAIR_TARGETS.items()},
}

if __name__ == "__main__":
    print(*TARGETS)
