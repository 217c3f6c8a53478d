"""The proof of an answer: checked when it comes, kept in result.json, checked again by anybody.

What it proves: that the servers it names, each certified by the members' authority, released these
shares over these parties in answer to this query, charged its ε and δ, and that the estimate is
what the shares add up to. What it cannot prove: how many records the contributors hold, within what
the query allows; and under `shuffle` the sum itself: only the coordinator can open the reports.
A study is proved by its questions, from whose answers it concludes again.
"""

import base64
import binascii
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from protocols.aggregation import aggregator_named
from protocols.aggregation.contract import Ids
from protocols.algebra.ring import Vector
from protocols.errors import (
    AnswerRefused,
    LocalError,
    PeerError,
    RunFailed,
    TallyError,
)
from protocols.privacy.ledger import as_written
from protocols.run.evidence import Answered, Evidence, Opening
from protocols.run.messages import Role
from protocols.run.query import Query
from protocols.run.question import Question
from protocols.run.receipts import Receipt, decode_receipt
from protocols.statistics import Statistic, statistic_named
from protocols.statistics.estimates import Estimate, plain, shape_of
from protocols.statistics.interval import LEVEL, Interval
from protocols.studies.contract import Answer

SAME = 1e-9
"""Relative difference of estimates that two machines may compute from the same shares."""
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What reading a document raises that is none."""


@dataclass(frozen=True)
class Proof:
    """`statistic` is what was decoded: that of the query, or another reading of its release."""

    evidence: Evidence
    authority: bytes
    statistic: Statistic
    records: int

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.authority)

    def as_json(self) -> list[dict[str, object]]:
        """The receipts in result.json. Each can be checked by itself: it has what was asked."""
        evidence = self.evidence
        asked: dict[str, object] = {
            "run": evidence.run.hex(),
            "query": evidence.query.decode(),
            "release": _text(evidence.release),
            "records": self.records,
            "statistic": self.statistic.name,
            "parameters": self.statistic.parameters(),
            "authority": self.authority.decode(),
            "authority_sha256": self.fingerprint,
        }
        return [
            _receipt_json(evidence.run, answer, opening.ask) | {"asked": asked}
            for opening in evidence.openings
            for answer in opening.answers
        ]


def prove(
    question: Question,
    evidence: Evidence | None,
    authority: bytes,
    total: Vector,
    contributors: Ids,
    records: int,
    reused: bool = False,
) -> tuple[Query, Proof]:
    """Holds an answer against the question. Raises `AnswerRefused` with who is not to be believed.

    `reused` is whether the coordinator says that it is of an earlier release.
    """
    try:
        if evidence is None:
            raise PeerError("coordinator", "it has no receipts")
        query = evidence.check(authority)
        if (field := question.difference(query)) is not None:
            old = "it is the answer to an earlier asking"
            other = f"it put another question: its {field} is not as asked"
            raise PeerError("coordinator", old if field == "asking" else other)
        again = bool(question.key) and query.asking != question.asking
        if again and not reused and not query.statistic.on_demand:
            raise PeerError("coordinator", "it passes an earlier release off as a new one")
        evidence.check_contributors(query, contributors, records)
        # As the question wants it read, with what the coordinator was to decide (`prepared`).
        statistic = question.as_put(query).statistic
        summed = evidence.total(query, statistic, records)
        if summed is not None and not np.array_equal(summed, total):
            raise PeerError("coordinator", "its total is not the sum of the servers' shares")
    except (PeerError, LocalError) as error:
        raise AnswerRefused(f"the answer is refused: {error}") from None
    return query, Proof(evidence, authority, statistic, records)


# --- result.json, later ---


def read_result(path: Path) -> dict[str, Any]:
    """The document of a result, in a folder or by itself. Raises `LocalError`."""
    file = path / "result.json" if path.is_dir() else path
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        raise LocalError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise LocalError(f"{file} is not a result") from None
    if not isinstance(document, dict) or not (
        document.get("receipts") or document.get("questions")
    ):
        raise LocalError(f"{file} has no receipts")
    return document


def verify(document: dict[str, Any], authority: bytes | None = None) -> list[Receipt]:
    """The receipts of a result, if all of them hold and all that the result says follows from them.

    Raises `TallyError` otherwise. `authority` is the members' authority that is to have signed;
    left out, the result's own is taken. Of a study, the questions are held to their receipts, its ε
    and δ to those, and what it concluded to what it concludes from the answers again.
    """
    if "questions" in document:
        return _verify_study(document, authority)
    return _verified(document, authority).receipts


@dataclass(frozen=True)
class _Verified:
    """A question whose receipts hold. `total` is None where servers sign for no sum."""

    receipts: list[Receipt]
    query: Query
    proof: Proof
    contributors: int
    total: Vector | None

    def estimate(self, total: Vector) -> Estimate:
        exact = aggregator_named(self.query.aggregator).release(self.query).exact
        return self.proof.statistic.decode(total, self.proof.records, exact=exact)

    def interval(self, total: Vector) -> Interval | None:
        release = aggregator_named(self.query.aggregator).release(self.query)
        statistic, records = self.proof.statistic, self.proof.records
        return release.interval(statistic, total, records, self.contributors)

    def answer(self, total: Vector) -> Answer:
        """What a study was told."""
        interval = self.interval(total)
        errors = np.zeros(1) if interval is None else interval.errors
        return Answer(self.estimate(total), errors, self.proof.records)


def _verified(document: dict[str, Any], authority: bytes | None) -> _Verified:
    try:
        proof, receipts = _parse(document)
        if authority is not None and fingerprint_of(authority) != proof.fingerprint:
            raise PeerError("authority", f"the result was made under {proof.fingerprint}")
        evidence = proof.evidence
        query = evidence.check(proof.authority)
        members = np.unpackbits(np.frombuffer(evidence.release, np.uint8), count=query.parties)
        contributors = np.flatnonzero(members).astype(np.uint32)
        evidence.check_contributors(query, contributors, proof.records)
        if proof.statistic.release_key() != query.statistic.release_key():
            raise PeerError("result", "its statistic cannot be read off what was released")
        _check_summary(document, query, proof.statistic)
        total = evidence.total(query, proof.statistic, proof.records)
        found = _Verified(receipts, query, proof, len(contributors), total)
        if total is not None:
            estimate = found.estimate(total)
            if not _same(document["estimate"], estimate):
                raise PeerError("result", "its estimate is not what the servers released")
            off = found.interval(total)
            told = None if off is None else interval_json(off, shape_of(estimate).scalar)
            if not _close(document.get("interval"), told):
                raise PeerError("result", "its interval is not that of the noise in the release")
    except (*MALFORMED, TallyError) as bad:
        raise TallyError(f"the result does not hold: {bad}") from None
    return found


def interval_json(interval: Interval, scalar: bool) -> dict[str, object]:
    """Numbers for a number, else lists in the order of the estimate's values."""
    if interval.unknown:
        nothing = dict.fromkeys(("low", "high", "standard_error"))
        return {"level": LEVEL, **nothing, "unknown": interval.unknown}
    found = (interval.low, interval.high, interval.errors)
    low, high, error = (each.tolist()[0] if scalar else each.tolist() for each in found)
    return {
        "level": LEVEL,
        "low": plain(low),
        "high": plain(high),
        "standard_error": plain(error),
        **({"without": interval.without} if interval.without else {}),
    }


def authority_of(document: dict[str, Any]) -> str:
    """The fingerprint that a verified result gives of the servers' authority."""
    first = document["questions"][0] if "questions" in document else document
    return str(first["receipts"][0]["asked"]["authority_sha256"])


def _verify_study(document: dict[str, Any], authority: bytes | None) -> list[Receipt]:
    try:
        questions = document["questions"]
        if not questions or any("questions" in each for each in questions):
            raise ValueError("a study has questions, which are no studies")
        if "receipts" in document:
            raise ValueError("the receipts of a study are those of its questions")
        for what in ("epsilon", "delta"):
            parts = [each["privacy"][what] for each in questions]
            total = "inf" if "inf" in parts else float(sum(map(as_written, parts)))
            if document["privacy"][what] != total:
                raise PeerError("result", f"its {what} is not that of its questions together")
        verified = [_verified(each, authority) for each in questions]
        receipts = [receipt for each in verified for receipt in each.receipts]
        if len({authority_of(each) for each in questions}) > 1:
            raise PeerError("result", "its questions were answered under different authorities")
        if len({receipt.run for receipt in receipts}) < len(questions):
            raise PeerError("result", "one answer stands for several questions")
        _check_conclusion(document, verified)
    except (*MALFORMED, PeerError, RunFailed) as bad:
        raise TallyError(f"the result does not hold: {bad}") from None
    return receipts


def _check_conclusion(document: dict[str, Any], verified: list[_Verified]) -> None:
    """That the study says what it concludes from these answers. Where one of them is a total that
    no server signed for, as under `shuffle`, nobody can tell. Raises `PeerError`."""
    from simulation.replay import concluded, study_of

    study = study_of(document["study"])
    asked = [
        (each.query, each.proof.statistic, each.answer(each.total))
        for each in verified
        if each.total is not None
    ]
    if len(asked) == len(verified) and not _same(document["estimate"], concluded(study, asked)):
        raise PeerError("result", "its estimate is not what the study concludes from its answers")


def fingerprint_of(authority: bytes) -> str:
    """Raises `LocalError` if it is not a certificate."""
    try:
        return x509.load_pem_x509_certificate(authority).fingerprint(hashes.SHA256()).hex()
    except ValueError:
        raise LocalError("the authority is not a certificate (PEM)") from None


def _receipt_json(run: bytes, answer: Answered, ask: bytes) -> dict[str, object]:
    receipt = decode_receipt(run, answer.server, answer.receipt)
    return {
        "server": Role.SERVER.named(answer.server),
        "epsilon": receipt.epsilon,
        "delta": receipt.delta,
        "request": receipt.request.hex(),
        "share_digest": receipt.share.hex(),
        "signature": receipt.signature.hex(),
        "ask": _text(ask),
        "share": _text(answer.share),
        "certificate": answer.certificate.decode(),
    }


def _parse(document: dict[str, Any]) -> tuple[Proof, list[Receipt]]:
    """Raises what reading a document raises that is not one."""
    asked = document["receipts"][0]["asked"]
    if any(entry["asked"] != asked for entry in document["receipts"]):
        raise ValueError("receipts of different questions")
    run = bytes.fromhex(asked["run"])
    openings: list[Opening] = []
    receipts = []
    for entry in document["receipts"]:
        server = int(entry["server"].removeprefix("server-"))
        receipt = Receipt(
            run,
            server,
            bytes.fromhex(entry["request"]),
            bytes.fromhex(entry["share_digest"]),
            entry["epsilon"],
            entry["delta"],
            bytes.fromhex(entry["signature"]),
        )
        if Role.SERVER.named(server) != entry["server"]:
            raise ValueError(f"no server is called {entry['server']}")
        answer = Answered(
            server, _bytes(entry["share"]), receipt.encode(), entry["certificate"].encode()
        )
        ask = _bytes(entry["ask"])
        last = openings[-1] if openings else None
        again = last is not None and any(known.server == server for known in last.answers)
        if last is None or last.ask != ask or again:
            openings.append(Opening((answer,), ask))
        else:
            openings[-1] = Opening((*last.answers, answer), ask)
        receipts.append(receipt)
    evidence = Evidence(run, asked["query"].encode(), _bytes(asked["release"]), tuple(openings))
    statistic = statistic_named(asked["statistic"]).from_parameters(asked["parameters"])
    if type(asked["records"]) is not int:
        raise TypeError("records are a whole number")
    proof = Proof(evidence, asked["authority"].encode(), statistic, asked["records"])
    if asked["authority_sha256"] != proof.fingerprint:
        raise ValueError("the authority's fingerprint is not as stated")
    return proof, receipts


def _check_summary(document: dict[str, Any], query: Query, statistic: Statistic) -> None:
    """That the result says of itself what the servers were asked. Raises `PeerError`."""
    release = aggregator_named(query.aggregator).release(query)
    stated = {
        "statistic": (document["statistic"], statistic.asked_as),
        "epsilon": (
            document["privacy"]["epsilon"],
            "inf" if query.epsilon is None else float(query.epsilon),
        ),
        "delta": (document["privacy"]["delta"], release.delta),
        "noise": (document["privacy"]["noise"], release.placement),
        "parties": (document["federation"]["parties"], query.parties),
        "servers": (document["federation"]["servers"], query.servers),
        "aggregator": (document["federation"]["aggregator"], query.aggregator),
    }
    for what, (said, asked) in stated.items():
        if said != asked:
            raise PeerError("result", f"its {what} is {said}, where the servers were asked {asked}")


def _same(stated: object, estimate: Estimate) -> bool:
    return _close(stated, plain(estimate))


def _close(stated: object, found: object) -> bool:
    """Whether two values of JSON are the same but for the last digits of real numbers."""
    match found:
        case float() | int() if not isinstance(found, bool):
            if not isinstance(stated, int | float) or isinstance(stated, bool):
                return False
            return math.isclose(stated, found, rel_tol=SAME, abs_tol=1e-12)
        case list():
            return (
                isinstance(stated, list)
                and len(stated) == len(found)
                and all(map(_close, stated, found))
            )
        case dict():
            return (
                isinstance(stated, dict)
                and stated.keys() == found.keys()
                and all(_close(stated[key], each) for key, each in found.items())
            )
    return type(stated) is type(found) and stated == found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
