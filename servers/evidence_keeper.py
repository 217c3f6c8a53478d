"""The coordinator as a witness: what it asked servers to release, and what they signed for it."""

from collections.abc import Sequence
from dataclasses import replace

from tallyroom.protocols.aggregation.collector import Collector
from tallyroom.protocols.aggregation.contract import Total
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.evidence import Answered, Evidence
from tallyroom.protocols.run.participant import Participant, RecordSpends, Reply
from tallyroom.protocols.run.receipts import RECEIPT_BYTES, request_of
from tallyroom.protocols.wire.machine import Done, Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.storage.certificates import Certificates


class EvidenceKeeper(Participant):
    """Takes receipts off shares, and adds them to the total as evidence for it.

    `certificates` are those that servers sign with, as far as they are known.
    """

    def __init__(self, role: Role, record_spends: RecordSpends) -> None:
        super().__init__(role, record_spends)
        self.certificates = Certificates(None)
        self._evidence: dict[bytes, Evidence] = {}

    def witness(self, query: Query, release: bytes | None = None) -> None:
        """From here on, for the run of this query; `release` is what it was released over before,
        if it was."""
        evidence = Evidence(query.run, query.encode())
        self._evidence[query.run] = evidence if release is None else evidence.released(release)

    def forget(self, run: bytes) -> None:
        super().forget(run)
        self._evidence.pop(run, None)

    def _receive(self, machine: Machine, message: Message) -> Step:
        """A collector takes shares; their receipts are kept beside it."""
        if message.phase is Phase.SHARE:
            if message.links != 1 or message.width < RECEIPT_BYTES:
                return Rejected(message.sender, "a share without its receipt")
            evidence = self._evidence.get(message.run)
            request = request_of(message.body[0, :RECEIPT_BYTES].tobytes())
            if evidence is not None and evidence.is_stale(request):
                return Rejected(message.sender, "a share of other points than were asked last")
            message = replace(message, body=message.body[:, RECEIPT_BYTES:])
        return super()._receive(machine, message)

    def _hear(self, message: Message) -> None:
        super()._hear(message)
        if message.phase is Phase.SHARE:
            machine, server = self._machines.get(message.run), int(message.senders[0])
            public = isinstance(machine, Collector) and machine.public
            body = message.body[0].tobytes()
            answer = Answered(
                server,
                body[RECEIPT_BYTES:] if public else b"",
                body[:RECEIPT_BYTES],
                self.certificates.get(server, b""),
            )
            if (evidence := self._evidence.get(message.run)) is not None:
                self._evidence[message.run] = evidence.answered(answer)

    def _send(self, run: bytes, messages: Sequence[Message]) -> list[Message]:
        for message in messages:
            evidence = self._evidence.get(run)
            if evidence is not None and message.phase is Phase.RELEASE:
                self._evidence[run] = evidence.released(message.body[0].tobytes())
            elif evidence is not None and message.phase is Phase.ASK:
                self._evidence[run] = evidence.asked(message.body[0].tobytes())
        return super()._send(run, messages)

    def _carry_out(self, run: bytes, step: Step) -> Reply:
        """What a machine is done with goes with the evidence for it."""
        if isinstance(step, Done) and isinstance(step.output, Total):
            step = replace(
                step, output=replace(step.output, evidence=self._evidence.pop(run, None))
            )
        return super()._carry_out(run, step)
