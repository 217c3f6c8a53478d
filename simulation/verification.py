"""A result on paper, checked by anybody: all that it says follows from what servers signed.

A field of a result either is held to the receipts, or is in `UNSIGNED`, which `tally verify` prints
whatever it finds. One that is neither is refused. So is a field that is missing: what servers
signed says which there are.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import PeerError, TallyError
from tallyroom.protocols.plans.interval import NOISE
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.promise import Promise, promise_of, together
from tallyroom.protocols.run.question import asking_of
from tallyroom.protocols.run.receipts import Receipt
from tallyroom.protocols.statistics.contract import asked_as
from tallyroom.protocols.statistics.estimates import Estimate, plain, shape_of
from tallyroom.protocols.statistics.release import Answer, Intervals
from tallyroom.protocols.studies.contract import Study
from tallyroom.simulation.proof import MALFORMED, Proof, fingerprint_of, intervals_json, parse
from tallyroom.simulation.replay import concluded, described, finding_intervals, study_of
from tallyroom.simulation.result import SCHEMA
from tallyroom.simulation.statement import describe_data
from tallyroom.simulation.study import salt_of

SAME = 1e-9
"""Relative difference of estimates that two machines may compute from the same shares."""
UNSIGNED = (
    "version",
    "date",
    "command",
    "machine",
    "roles",
    "truth",
    "error",
    "noise_error",
    "method_error",
    "federation.runtime",
    "federation.network",
    "federation.seed",
    "federation.trust",
    "communication",
    "timing",
    "caught",
    "refusals",
    "reused",
    "lost_pairs",
    "bytes",
    "notes",
)
"""What no server signs, of a result and of a study's questions. `notes` have all concessions."""
UNSIGNED_SUM = ("estimate", "interval", "intervals")
"""Nor these, where only the coordinator can open the reports."""
UNSIGNED_READING = ("receipts.asked.records", "receipts.asked.parameters")
"""Nor, there, how many reports could be used, and how the release was read: parameters that decide
what is released are signed."""


@dataclass(frozen=True)
class Verdict:
    """On a result that holds: its receipts, and the fields that nobody signed for."""

    receipts: list[Receipt]
    unsigned: tuple[str, ...]


def verify(document: dict[str, Any], authority: bytes | None = None) -> Verdict:
    """That all receipts of a result hold, and all that it says follows from them.

    Raises `TallyError` otherwise. `authority` is the members' authority that is to have signed;
    left out, the result's own is taken. Of a study, the questions are held to their receipts, and
    what it says of itself to what it concludes from the answers again.
    """
    try:
        verified = _all_verified(document, authority)
        if "questions" in document:
            _check_study(document, verified)
        _hold("schema", document.get("schema"), SCHEMA)
    except (*MALFORMED, TallyError) as bad:
        raise TallyError(f"the result does not hold: {bad}") from None
    summed = all(each.total is not None for each in verified)
    receipts = [receipt for each in verified for receipt in each.receipts]
    return Verdict(receipts, UNSIGNED if summed else (*UNSIGNED, *UNSIGNED_SUM, *UNSIGNED_READING))


def authority_of(document: dict[str, Any]) -> str:
    """The fingerprint that a verified result gives of the servers' authority."""
    first = document["questions"][0] if "questions" in document else document
    return str(first["receipts"][0]["asked"]["authority_sha256"])


@dataclass(frozen=True)
class _Verified:
    """A question whose receipts hold. `total` is None where servers sign for no sum."""

    receipts: list[Receipt]
    query: Query
    proof: Proof
    contributors: int
    total: Vector | None

    @property
    def name(self) -> str:
        return asked_as(self.proof.statistic)

    @property
    def promise(self) -> Promise:
        return promise_of(self.query)

    def answer(self, total: Vector) -> Answer:
        return self.proof.answer(self.query, total, self.contributors)

    @property
    def signed(self) -> dict[str, object]:
        """The fields of a result that follow from what was signed, but for the answer itself."""
        query = self.query
        return {
            "statistic": self.name,
            "data": describe_data(query, self.proof),
            "privacy": self.promise.as_json(),
            "federation": {
                "parties": query.parties,
                "servers": query.servers,
                "aggregator": query.aggregator,
            },
            "receipts": self.proof.as_json(),
        }


def _all_verified(document: dict[str, Any], authority: bytes | None) -> list[_Verified]:
    if "questions" not in document:
        return [_verified(document, authority, {"schema"})]
    questions = document["questions"]
    if not questions or any("questions" in each for each in questions):
        raise ValueError("a study has questions, which are no studies")
    return [_verified(each, authority, {"epsilon", "rho", "delta", "bytes"}) for each in questions]


def _verified(document: dict[str, Any], authority: bytes | None, more: set[str]) -> _Verified:
    """`more` are fields that stand there beside those of every answer."""
    proof, receipts = parse(document)
    if authority is not None and fingerprint_of(authority) != proof.fingerprint:
        raise PeerError("authority", f"the result was made under {proof.fingerprint}")
    evidence = proof.evidence
    query = evidence.check(proof.authority)
    members = np.unpackbits(np.frombuffer(evidence.release, np.uint8), count=query.parties)
    contributors = np.flatnonzero(members).astype(np.uint32)
    evidence.check_contributors(query, contributors, proof.records)
    if proof.plan(query).identity != query.plan.identity:
        raise PeerError("result", "its statistic cannot be read off what was released")
    again = document.get("reused") is True or query.points is not None
    if not again and proof.statistic.parameters() != query.statistic.parameters():
        raise PeerError("result", "it was read otherwise than it was asked")
    total = evidence.total(query, proof.points(query), proof.records)
    found = _Verified(receipts, query, proof, len(contributors), total)
    _check_fields(document, found.signed, more | {"key"})
    _check_notes(document, found.promise)
    _check_key(document, query)
    if total is not None:
        answer = found.answer(total)
        if not same(document["estimate"], plain(answer.estimate)):
            raise PeerError("result", "its estimate is not what the servers released")
        if not _tells(document, answer.intervals, answer.estimate):
            raise PeerError("result", "its interval is not what follows from the release")
    return found


def _tells(document: dict[str, Any], intervals: Intervals, estimate: Estimate) -> bool:
    """Whether a result tells both intervals, and shows one of them. Results of earlier versions
    have that of the noise alone."""
    told = intervals_json(intervals, shape_of(estimate).scalar)
    stated = document.get("interval")
    if "intervals" not in document:
        return same(stated and {**stated, "covers": NOISE}, told[NOISE]) and (
            stated is None or "covers" not in stated
        )
    covers = NOISE if stated is None else stated["covers"]
    return same(stated, told[covers]) and same(document["intervals"], told)


# --- field by field ---


def _check_fields(
    document: dict[str, Any], signed: Mapping[str, object], others: set[str], inside: str = ""
) -> None:
    """That a result has these fields as they were signed, and beside them only such as nobody
    signs, and `others`, which are checked elsewhere. Raises `PeerError`."""
    for name, value in signed.items():
        if name == "federation" and isinstance(value, dict):
            _check_fields(document[name], value, set(), "federation.")
        elif name not in document or not same(document[name], json.loads(json.dumps(value)), 0.0):
            _differs(f"{inside}{name}", document.get(name), value)
    known = signed.keys() | others | (set() if inside else set(UNSIGNED_SUM))
    for name in document.keys() - known:
        if f"{inside}{name}" not in UNSIGNED:
            raise PeerError("result", f"a field that no result has: {f'{inside}{name}'!r:.60}")


def _hold(name: str, said: object, signed: object) -> None:
    if not same(said, signed, 0.0):
        _differs(name, said, signed)


def _differs(name: str, said: object, signed: object) -> None:
    """Raises `PeerError` for the first part of a field that is not as it was signed."""
    if isinstance(said, dict) and isinstance(signed, dict):
        for key in (*signed, *said):
            there = json.loads(json.dumps(signed.get(key)))
            if key not in said or key not in signed or not same(said[key], there, 0.0):
                _differs(f"{name}.{key}", said.get(key), signed.get(key))
    raise PeerError(
        "result",
        f"its {name} is {said!r:.200}, where what the servers signed makes it {signed!r:.200}",
    )


def _check_notes(document: dict[str, Any], promise: Promise) -> None:
    notes = document.get("notes", [])
    if missing := [each for each in promise.concessions if each not in notes]:
        raise PeerError("result", f"its notes leave out: {missing[0]}")


def _check_key(document: dict[str, Any], query: Query) -> None:
    """Who asked under a key has the answer to that asking, or one that was there before it."""
    if "key" not in document or document.get("reused") is True or query.points is not None:
        return
    if asking_of(document["key"]) != query.asking:
        raise PeerError("result", "its key is not that of what was asked")


def same(stated: object, found: object, tolerance: float = SAME) -> bool:
    """Whether two values of JSON are the same but for the last digits of real numbers."""
    match found:
        case float() | int() if not isinstance(found, bool):
            if not isinstance(stated, int | float) or isinstance(stated, bool):
                return False
            small = 1e-12 if tolerance else 0.0
            return math.isclose(stated, found, rel_tol=tolerance, abs_tol=small)
        case list():
            return (
                isinstance(stated, list)
                and len(stated) == len(found)
                and all(same(*pair, tolerance) for pair in zip(stated, found, strict=True))
            )
        case dict():
            return (
                isinstance(stated, dict)
                and stated.keys() == found.keys()
                and all(same(stated[key], each, tolerance) for key, each in found.items())
            )
    return type(stated) is type(found) and stated == found


# --- studies ---


def _check_study(document: dict[str, Any], verified: list[_Verified]) -> None:
    """Raises `PeerError`, or `RunFailed` for a study that would have asked something else."""
    questions = document["questions"]
    if len({authority_of(each) for each in questions}) > 1:
        raise PeerError("result", "its questions were answered under different authorities")
    receipts = [receipt for each in verified for receipt in each.receipts]
    if len({receipt.run for receipt in receipts}) < len(questions):
        raise PeerError("result", "one answer stands for several questions")
    for place, (each, found) in enumerate(zip(questions, verified, strict=True)):
        for name, cost in found.promise.charged(each.get("reused") is True).items():
            _hold(f"questions.{place}.{name}", each[name], cost)
        if "key" in document and not each["key"].startswith(
            f"{salt_of(document['key'], place + 1)}-"
        ):
            raise PeerError("result", "its key is not that of its questions")
    study = study_of(document["study"])
    whole = _check_conclusion(document, study, verified)
    promise = together([(each.name, each.promise) for each in verified])
    last = verified[-1].signed
    signed = {
        "statistic": study.title,
        "study": described(study),
        "privacy": promise.as_json(),
        "federation": last["federation"],
        "data": (verified[-1] if whole is None else verified[whole]).signed["data"],
    }
    _check_fields(document, signed, {"schema", "questions", "key"})
    _check_notes(document, promise)


def _check_conclusion(
    document: dict[str, Any], study: Study, verified: list[_Verified]
) -> int | None:
    """That the study says what it concludes from these answers; which of them it is the answer to.
    Where one of them is a total that no server signed for, as under `shuffle`, nobody can tell.
    Raises `PeerError`."""
    answers = [each.answer(each.total) for each in verified if each.total is not None]
    if len(answers) < len(verified):
        return None
    asked = [
        (each.query, each.proof.statistic, answer)
        for each, answer in zip(verified, answers, strict=True)
    ]
    finding, whole = concluded(study, asked)
    if not same(document["estimate"], plain(finding.estimate)):
        raise PeerError("result", "its estimate is not what the study concludes from its answers")
    private = any(each.query.epsilon is not None for each in verified)
    intervals = finding_intervals(study, finding, answers, whole, private)
    if not _tells(document, intervals, finding.estimate):
        raise PeerError("result", "its interval is not what the study concludes from its answers")
    return whole
