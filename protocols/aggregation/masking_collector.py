"""The coordinator of a masked sum: as in one round, but told whether the masks came off."""

from dataclasses import replace

import numpy as np

from protocols.aggregation.bodies import parse_roster
from protocols.aggregation.collector import Collector, CollectorState, _some
from protocols.aggregation.contract import Records
from protocols.aggregation.masking_graph import Members, Plan
from protocols.aggregation.masking_server import ENDING, Ending
from protocols.machine import Failed, Rejected, Step
from protocols.messages import Message, Phase
from protocols.query import Query
from protocols.ring import add_shares

_DONE = {
    Phase.KEYS: "sent keys",
    Phase.DEAL: "dealt shares",
    Phase.SUBMIT: "submitted",
    Phase.CHECK: "confirmed who submitted",
    Phase.UNMASK: "gave shares",
}


class MaskingCollector(Collector):
    """Sees the noisy sum and who is in it. A run whose masks stay on fails, and says why."""

    def __init__(self, plan: Plan, query: Query, records: Records) -> None:
        super().__init__(query, records, add_shares)
        self._plan = plan

    def _roster(self, message: Message) -> Step:
        if message.width < ENDING.size:
            return Rejected(message.sender, "a roster that does not say how the stages ended")
        ending, phase, fewest = ENDING.unpack(message.body[0, -ENDING.size :].tobytes())
        if ending not in list(Ending) or phase not in list(_DONE):
            return Rejected(message.sender, f"an unknown ending {ending} at {phase}")
        proper = replace(message, body=np.ascontiguousarray(message.body[:, : -ENDING.size]))
        if ending == Ending.OPENED:
            return super()._roster(proper)
        parsed = parse_roster(proper, self._query.parties)
        if isinstance(parsed, Rejected):
            return parsed
        self._state = CollectorState.OVER
        if ending == Ending.MISFIT:
            return Failed("masks cannot be removed: the shares of a key do not fit that key")
        return Failed(self._too_few(parsed[0], Phase(phase), fewest))

    def _too_few(self, answered: Members, phase: Phase, fewest: int) -> str:
        query, count = self._query, np.count_nonzero(answered)
        missing = _some(np.flatnonzero(~answered).astype(np.uint32))
        said = f"only {count} of {query.parties} parties {_DONE[phase]}"
        if phase in (Phase.KEYS, Phase.DEAL, Phase.SUBMIT) and count < query.minimum:
            return f"{said} and {query.minimum} are needed; missing: {missing}"
        return (
            f"{said}, which leaves {fewest} of {self._plan.holders} holders of a secret where "
            f"{self._plan.threshold} are needed; missing: {missing}"
        )
