"""Evidence on the wire: shares one by one, the rest with the answer."""

from collections.abc import Iterator
from typing import TypedDict

from tallyroom.protocols.aggregation.contract import Total
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.run.evidence import MAX_ANSWERS, Answered, Evidence, Opening
from tallyroom.protos import tally_pb2 as pb


class Asked(TypedDict, total=False):
    run: bytes
    query: bytes
    cells: bytes


def asked_to_wire(total: Total, parties: int) -> Asked:
    """The fields of an answer that say what was asked and released."""
    if total.evidence is None:
        return {}
    evidence = total.evidence
    return {
        "run": evidence.run,
        "query": evidence.query,
        "cells": evidence.release[-(-parties // 8) :],
    }


def shares_to_wire(total: Total) -> Iterator[pb.Event]:
    if total.evidence is None:
        return
    for opening in total.evidence.openings:
        for answer in opening.answers:
            yield pb.Event(share=pb.SignedShare(**answer.__dict__, ask=opening.ask))


class EvidenceReader:
    """Puts together what the coordinator sends. Nothing of it is believed yet."""

    def __init__(self) -> None:
        self._openings: list[Opening] = []
        self._count = 0

    def take(self, share: pb.SignedShare) -> None:
        """Raises `PeerError` past what any answer can have."""
        self._count += 1
        if self._count > MAX_ANSWERS:
            raise PeerError("coordinator", f"more than {MAX_ANSWERS} shares of an answer")
        answer = Answered(share.server, share.share, share.receipt, share.certificate)
        last = self._openings[-1] if self._openings else None
        again = last is not None and any(a.server == share.server for a in last.answers)
        if last is None or last.ask != share.ask or again:
            self._openings.append(Opening((answer,), share.ask))
        else:
            self._openings[-1] = Opening((*last.answers, answer), share.ask)

    def finish(self, answer: pb.Answer) -> Evidence:
        return Evidence(
            answer.run, answer.query, answer.contributors + answer.cells, tuple(self._openings)
        )
