"""The proof of an answer: checked when it comes, and kept in result.json.

What it proves: that the servers it names, each certified by the members' authority, released these
shares over these parties in answer to this query, charged its ε and δ, and that the estimate is
what the shares add up to. What it cannot prove: how many records the contributors hold, within what
the query allows; and under `shuffle` the sum itself: only the coordinator can open the reports.
`simulation.verification` checks it again, for anybody who holds the result.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.cheat_certificate import KIND, CheatCertificate
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import (
    AnswerRefused,
    LocalError,
    PeerError,
)
from tallyroom.protocols.plans.contract import Plan, Points
from tallyroom.protocols.plans.interval import LEVEL, Interval
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.evidence import Answered, Evidence, Opening
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.run.receipts import Receipt, decode_receipt
from tallyroom.protocols.statistics import Statistic, statistic_named
from tallyroom.protocols.statistics.estimates import plain
from tallyroom.protocols.statistics.release import Answer, Intervals
from tallyroom.protocols.wire.messages import Role

if TYPE_CHECKING:
    from tallyroom.simulation.runtimes.contract import Opened

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

    def answer(self, query: Query, total: Vector, contributors: int) -> Answer:
        """What the statistic reads off the release of `query`."""
        mechanism, plan = aggregator_named(query.aggregator).mechanism(query), self.plan(query)
        return self.statistic.read(mechanism.release(total, self.records, contributors, plan))

    def plan(self, query: Query) -> Plan:
        """That of the statistic that reads the release, given the facts of `query`."""
        return self.statistic.plan(query.facts)

    def points(self, query: Query) -> Points | None:
        """The same, where it asks point after point."""
        plan = self.plan(query)
        return plan if isinstance(plan, Points) else None

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


def prove(question: Question, opened: "Opened") -> tuple[Query, Proof]:
    """Holds an answer against the question. Raises `AnswerRefused`, with who is not believed."""
    evidence, records = opened.evidence, opened.records
    try:
        if evidence is None:
            raise PeerError("coordinator", "it has no receipts")
        query = evidence.check(opened.authority)
        if (field := question.difference(query)) is not None:
            old = "it is the answer to an earlier asking"
            other = f"it put another question: its {field} is not as asked"
            raise PeerError("coordinator", old if field == "asking" else other)
        again = bool(question.key) and query.asking != question.asking
        if again and not opened.reused and query.points is None:
            raise PeerError("coordinator", "it passes an earlier release off as a new one")
        evidence.check_contributors(query, opened.contributors, records)
        # As the question wants it read, with what the coordinator was to decide (`prepared`).
        statistic = question.as_put(query).statistic
        proof = Proof(evidence, opened.authority, statistic, records)
        summed = evidence.total(query, proof.points(query), records)
        if summed is not None and not np.array_equal(summed, opened.total):
            raise PeerError("coordinator", "its total is not the sum of the servers' shares")
    except (PeerError, LocalError) as error:
        raise AnswerRefused(f"the answer is refused: {error}") from None
    return query, proof


# --- result.json, later ---


def read_certificate(path: Path) -> CheatCertificate | None:
    """The certificate of a cheat, in a folder or by itself; None where it is something else. Raises
    `PeerError` for one that is malformed."""
    file = path
    if path.is_dir():
        file = path / "certificate.json"
        if (path / "result.json").exists():
            return None
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        return None
    return CheatCertificate.decode(document)


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


def interval_json(interval: Interval, scalar: bool) -> dict[str, object]:
    """Numbers for a number, else lists in the order of the estimate's values."""
    if interval.unknown:
        nothing = dict.fromkeys(("low", "high", "standard_error"))
        return {
            "level": LEVEL,
            "covers": interval.covers,
            **nothing,
            "unknown": interval.unknown,
        }
    found = (interval.low, interval.high, interval.errors)
    low, high, error = (each.tolist()[0] if scalar else each.tolist() for each in found)
    return {
        "level": LEVEL,
        "covers": interval.covers,
        "low": plain(low),
        "high": plain(high),
        "standard_error": plain(error),
        **({"without": interval.without} if interval.without else {}),
    }


def intervals_json(intervals: Intervals, scalar: bool) -> dict[str, object]:
    """Both intervals; null for that of the noise where there was none."""
    return {
        covers: None if each is None else interval_json(each, scalar)
        for covers, each in intervals.items()
    }


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
        **receipt.loss.encode(),
        "delta": repr(receipt.loss.written_delta),
        "request": receipt.request.hex(),
        "share_digest": receipt.share.hex(),
        "signature": receipt.signature.hex(),
        "ask": _text(ask),
        "share": _text(answer.share),
        "certificate": answer.certificate.decode(),
    }


def parse(document: dict[str, Any]) -> tuple[Proof, list[Receipt]]:
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
            PrivacyLoss.decode({**entry, "delta": float(entry["delta"])}),
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


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
