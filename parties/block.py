"""The parties of one host: their records, and what they answer to a query."""

from collections.abc import Sequence

import numpy as np

from parties.misbehaviour import HONEST, Cheat, Misbehaviour, Script
from protocols.errors import LocalError, PeerError
from protocols.in_parts import proceed
from protocols.machine import Machine
from protocols.machines import cheating_machine, party_machine
from protocols.messages import Message, Phase, Role
from protocols.participant import Outcome, Participant
from protocols.query import decode_query
from protocols.randomness import Randomness
from protocols.records import Holdings

MOST_REPEATED = 8
"""Runs of pairs whose shares are kept, to be submitted again if asked."""


class PartyBlock(Participant):
    """One party, or many whose vectors are computed together as array rows.

    In a simulation some of them may misbehave, by a script.
    """

    def __init__(
        self,
        holdings: Holdings,
        randomness: Randomness,
        misbehaviour: Misbehaviour = HONEST,
    ) -> None:
        super().__init__(Role.PARTY, lambda _: None)
        self.holdings = holdings
        self._misbehaviour = misbehaviour
        absent = misbehaviour.absent
        self._answering = holdings.without(absent) if absent else holdings
        self._scripts: dict[bytes, Script] = {}
        self._led: set[bytes] = set()
        self._of_pairs: dict[bytes, list[Message]] = {}
        self._randomness = randomness

    def handle(self, message: Message) -> Outcome:
        if self._answering is None:
            return Outcome(message.run)
        if self._answering is not self.holdings:
            answering = np.isin(message.receivers, self._answering.ids)
            if not answering.any():
                return Outcome(message.run)
            if not answering.all():
                message = message.select(np.flatnonzero(answering))
        if message.phase is Phase.PAIRING and self._is_over(message.run):
            return Outcome(message.run)  # a coordinator that was restarted says it again
        return super().handle(message)

    def deadline_of(self, run: bytes) -> float:
        """For how many seconds a run waits for what its parties say; 0 if it is not known."""
        if (asked := self._queries.get(run)) is None:
            return 0.0
        return decode_query(run, asked, "coordinator").deadline

    def _is_over(self, run: bytes) -> bool:
        return run in self._of_pairs and not self.is_open(run)

    def _asked_again(self, message: Message) -> Outcome:
        """The same shares again, drawn from the same randomness: servers count them once.

        A machine that still waits for others has said what there is to say. So has one that servers
        led from stage to stage: begun anew, it could be told something else than before, and what
        it gives the two times may together be more than it must give. Shares of pairs depend on the
        other side as well, which may have been started anew since: those are repeated as they were,
        for to meet again would give others, and half of them.
        """
        run = message.run
        if message.body[0].tobytes() != self._queries[run]:
            return super()._asked_again(message)
        if self.is_open(run) or run in self._led:
            return Outcome(run)
        if run in self._of_pairs:
            return Outcome(run, list(self._of_pairs[run]))
        return self.resume(run, self.open(message))

    def open(self, message: Message) -> Machine:
        if self._answering is None:
            raise PeerError(message.sender, "nobody here answers")
        query = decode_query(message.run, message.body[0].tobytes(), message.sender)
        if query.statistic.pairwise:
            self._of_pairs[message.run] = []
            for run in list(self._of_pairs)[:-MOST_REPEATED]:
                self._of_pairs[run].clear()
        try:
            randomness = self._randomness.derive(query.stream)
            liars = self._misbehaviour.cheaters(Cheat.OUT_OF_RANGE)
            if np.isin(self._answering.ids, list(liars)).any():
                return cheating_machine(query, self._answering, liars, randomness)
            return party_machine(query, self._answering, randomness)
        except LocalError as error:
            raise PeerError(message.sender, f"cannot answer: {error}") from error

    def proceed(self, run: bytes) -> Outcome:
        """What comes after an outcome with `more`, once that is sent."""
        return self.advance(run, proceed)

    def _hear(self, message: Message) -> None:
        super()._hear(message)
        if message.sender_role is Role.SERVER:
            self._led.add(message.run)

    def forget(self, run: bytes) -> None:
        super().forget(run)
        self._led.discard(run)
        self._scripts.pop(run, None)
        self._of_pairs.pop(run, None)

    def _remember(self, run: bytes, outgoing: list[Message]) -> None:
        super()._remember(run, outgoing)
        if run in self._of_pairs:
            self._of_pairs[run] += [m for m in outgoing if m.receiver_role is not Role.PARTY]

    def _send(self, run: bytes, messages: Sequence[Message]) -> list[Message]:
        if self._misbehaviour != HONEST:
            script = self._scripts.setdefault(run, Script(self._misbehaviour))
            messages = [played for message in messages for played in script.play(message)]
        return super()._send(run, messages)
