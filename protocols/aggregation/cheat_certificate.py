"""A certificate that a server cheated, which anybody can check: with the members' authority, and
without asking anybody.

It has the query of the run, which its name commits to, what the garbler signed, and what the
evaluator tells to open a copy (`joint.covert`). Whoever checks it does again what both had to do.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any, Self

from tallyroom.protocols.accusation_text import with_proof
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.algebra.field import Field
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.joint.computation import GARBLER, Name
from tallyroom.protocols.joint.covert import Accusation, judge
from tallyroom.protocols.joint.levels import Level
from tallyroom.protocols.joint.noise import copies_of
from tallyroom.protocols.query import MALFORMED, Query, decode_query
from tallyroom.protocols.wire.messages import Role

KIND = "certificate of a cheat"
_FIELDS = {"schema", "kind", "run", "query", "authority", "accusation"}


def noise_name(query: Query, field: Field | None) -> Name:
    """What both servers call the drawing of a query's noise."""
    noise = query.joint_noise
    security = query.secured_noise
    told = () if security.level is Level.MALICIOUS else (str(security),)
    return Name(query.run, repr((noise, query.plan.noises, field, *told)))


@dataclass(frozen=True)
class CheatCertificate:
    """`authority` is what the accuser says certified the servers, as PEM."""

    run: bytes
    query: bytes
    authority: bytes
    accusation: Accusation

    @property
    def cheater(self) -> str:
        return Role.SERVER.named(GARBLER)

    def encode(self) -> bytes:
        told = {
            "schema": 1,
            "kind": KIND,
            "run": self.run.hex(),
            "query": base64.b64encode(self.query).decode(),
            "authority": base64.b64encode(self.authority).decode(),
            "accusation": json.loads(self.accusation.encode()),
        }
        return json.dumps(told, sort_keys=True).encode()

    @classmethod
    def decode(cls, document: dict[str, Any]) -> Self:
        """Raises `PeerError` on anything else."""
        try:
            if document.keys() != _FIELDS or document["schema"] != 1 or document["kind"] != KIND:
                raise ValueError("other fields")
            return cls(
                bytes.fromhex(document["run"]),
                base64.b64decode(document["query"], validate=True),
                base64.b64decode(document["authority"], validate=True),
                Accusation.decode(document["accusation"]),
            )
        except MALFORMED as error:
            raise PeerError("the certificate", f"is malformed: {error}") from None

    @property
    def text(self) -> str:
        """As it is appended to why a run failed."""
        return with_proof("", self.encode()).strip()

    def check(self, authority: bytes | None = None) -> Query:
        """The query of the run in which the cheater is proved to have cheated. `authority` is the
        members' one, if it is known. Raises `PeerError` where nothing is proved."""
        query = decode_query(self.run, self.query, "the certificate")
        try:
            noise, security = query.joint_noise, query.secured_noise
            field = aggregator_named(query.aggregator).noise_field(query)
            if noise is None or security.level is not Level.COVERT:
                raise PeerError("the certificate", "proves nothing: its run draws no covert noise")
            drawn = copies_of(noise, query.plan.noises, field, security.copies)
        except LocalError as error:
            raise PeerError("the certificate", f"proves nothing: {error}") from None
        judge(self.accusation, drawn, noise_name(query, field).label, authority or self.authority)
        return query
