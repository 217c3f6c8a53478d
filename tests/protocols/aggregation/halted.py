"""Masked sums of 4 parties, halted at any point, and every message of an honest one."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.masking.party import MaskingParty, PartyState
from tallyroom.protocols.aggregation.masking.server import (
    MaskingServer,
    Stage,
)
from tallyroom.protocols.wire.loop import unchanged
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.protocols.aggregation.masking_samples import FULL, a_masked_query, some_vectors
from tests.protocols.aggregation.rounds import Rounds
from tests.samples import bitmap

COUNT = 4
EVERYONE = bitmap(COUNT, [0, 1, 2, 3])
PARTY_PHASES = [Phase.KEYS, Phase.DEAL, Phase.SUBMIT, Phase.CHECK, Phase.UNMASK]


class Halted(Rounds):
    """A run of 4 parties in one block, halted where a message is held back and kept."""

    def __init__(self, holds: Callable[[Message], bool], blocks: int = 1) -> None:
        self.held: list[Message] = []

        def intercept(message: Message) -> Iterable[Message]:
            if holds(message):
                self.held.append(message)
                return ()
            return (message,)

        super().__init__(FULL, a_masked_query(COUNT), some_vectors(COUNT), blocks, intercept)
        self.begin()

    def let_go(self) -> None:
        """Nothing is held back any more; what was stays so."""
        self.on_way = unchanged

    @property
    def server(self) -> MaskingServer:
        (server,) = self.servers
        assert isinstance(server, MaskingServer)
        return server

    @property
    def party(self) -> MaskingParty:
        (party,) = self.blocks.values()
        assert isinstance(party, MaskingParty)
        return party


def spoken() -> dict[tuple[Phase, Role], Message]:
    """Every message of an honest run, by its phase and its sender's role."""
    run = Rounds(FULL, a_masked_query(COUNT), some_vectors(COUNT)).run()
    return {(message.phase, message.sender_role): message for message in run.sent}


SPOKEN = spoken()


def server_at(stage: Stage) -> MaskingServer:
    """Parties answered every stage before."""
    phase = Phase.RELEASE if stage is Stage.OPEN else stage.phase
    sender = Role.COORDINATOR if stage is Stage.OPEN else Role.PARTY
    run = Halted(lambda m: m.phase is phase and m.sender_role is sender)
    assert run.server.stage is stage
    assert run.rejected == []
    return run.server


def party_in(state: PartyState) -> MaskingParty:
    if state is PartyState.OVER:
        run = Halted(lambda m: False)
    else:
        run = Halted(lambda m: m.phase is Phase[state.name] and m.sender_role is Role.SERVER)
    assert set(run.party.states) == {state}
    return run.party


def changed(message: Message, change: Callable[[NDArray[np.uint8]], object]) -> Message:
    body = message.body.copy()
    change(body)
    return replace(message, body=body)
