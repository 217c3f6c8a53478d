"""The coordinator: enrols parties, asks, opens the noisy shares, answers.

Trusted to be there, not with data: what it sees is noisy before it arrives.
"""

import json
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from protocols.aggregation import aggregator_named
from protocols.aggregation.contract import Total
from protocols.aggregation.roles import Collector, spend_of
from protocols.errors import LocalError, PeerError, RunFailed
from protocols.machine import Continue, Done, Machine
from protocols.messages import RUN_BYTES, Message, Role
from protocols.participant import Outcome, Participant
from protocols.privacy.mechanisms import Placement, parse_epsilon
from protocols.query import Query
from protocols.randomness import Randomness
from protocols.statistics import Statistic, statistic_named
from servers.ledger import Ledger

Ids = NDArray[np.uint32]


@dataclass(frozen=True)
class Question:
    """What an analyst asks. `minimum` None means that every party is needed."""

    statistic: Statistic
    aggregator: str
    epsilon: Fraction | None
    noise: Placement
    data: str = "data"
    unit: str = "record"
    minimum: int | None = None
    deadline: float = 30.0
    options: dict[str, object] = field(default_factory=dict)

    def encode(self) -> str:
        return json.dumps(
            {
                **self.__dict__,
                "statistic": self.statistic.name,
                "parameters": self.statistic.parameters(),
                "epsilon": "inf" if self.epsilon is None else str(self.epsilon),
            }
        )

    @classmethod
    def decode(cls, text: str) -> "Question":
        """Raises `LocalError` on anything but a valid question."""
        try:
            fields = json.loads(text)
            kind = statistic_named(fields.pop("statistic"))
            fields["statistic"] = kind.from_parameters(fields.pop("parameters"))
            fields["epsilon"] = parse_epsilon(fields["epsilon"])
            fields["noise"] = Placement(fields["noise"])
            for key, kinds in _KINDS.items():
                if type(fields[key]) not in kinds:
                    raise TypeError(f"{key} cannot be {fields[key]!r}")
            return cls(**fields)
        except (
            ArithmeticError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            RecursionError,
        ) as error:
            raise LocalError(f"malformed question: {error}") from None


_KINDS: dict[str, tuple[type, ...]] = {
    "aggregator": (str,),
    "data": (str,),
    "unit": (str,),
    "minimum": (int, type(None)),
    "deadline": (int, float),
    "options": (dict,),
}


class Coordinator(Participant):
    def __init__(self, servers: int, parties: int, ledger: Ledger, randomness: Randomness) -> None:
        super().__init__(Role.COORDINATOR, ledger.record)
        self.servers = servers
        self.parties = parties
        self._ledger = ledger
        self._randomness = randomness
        self._records = np.zeros(parties, dtype=np.int64)
        self._present = np.zeros(parties, dtype=bool)

    @property
    def enrolled(self) -> int:
        """How many parties are here now."""
        return int(np.count_nonzero(self._present))

    def enrol(self, ids: Ids, records: NDArray[np.uint32]) -> None:
        """Parties join, with the number of records that each holds, which is public."""
        if len(ids) != len(records) or len(ids) == 0 or int(records.min()) < 1:
            raise LocalError("every party needs at least one record to join")
        if int(ids.max()) >= self.parties:
            raise LocalError(f"this federation has room for {self.parties} parties")
        self._records[ids] = records
        self._present[ids] = True

    def leave(self, ids: Ids) -> None:
        """Parties are gone; they may join again."""
        self._present[ids] = False

    def open(self, message: Message) -> Machine:
        raise PeerError(message.sender, "a coordinator asks, it is not asked")

    def query(self, question: Question) -> Query:
        """The query for a question. Raises `LocalError` where it cannot be asked here."""
        if self.enrolled == 0:
            raise RunFailed("no party is here")
        group = {"record": 1, "party": int(self._records.max())}.get(question.unit)
        if group is None:
            raise LocalError(f"the unit of privacy is record or party, not {question.unit!r}")
        query = Query(
            run=self._randomness.bytes(RUN_BYTES),
            statistic=question.statistic,
            aggregator=question.aggregator,
            parties=self.parties,
            servers=self.servers,
            records=int(np.maximum(self._records, 1).sum()),
            epsilon=question.epsilon,
            noise=question.noise,
            data=question.data,
            minimum=self.parties if question.minimum is None else question.minimum,
            group=group,
            deadline=question.deadline,
            options=question.options,
        )
        aggregator_named(query.aggregator).check(query)
        _ = query.mechanism  # refuses an epsilon whose noise would not fit the ring
        self._ledger.check(spend_of(query))
        return query

    def ask(self, query: Query) -> Outcome:
        """Puts the query to all; servers are told not to wait for parties that are not here."""
        outcome = self.begin(query.run, aggregator_named(query.aggregator).collector(query))
        if not self._present.all():
            absent = np.flatnonzero(~self._present).astype(np.uint32)
            outcome.messages += self.lose(query.run, absent).messages
        return outcome

    def lose(self, run: bytes, parties: Ids) -> Outcome:
        """Servers need not wait any more for what these parties have not submitted."""
        return self.advance(
            run,
            lambda machine: machine.lose(parties) if isinstance(machine, Collector) else Continue(),
        )

    def records_of(self, done: Done) -> tuple[Total, int]:
        """What a finished run gave, and how many records are in it."""
        total = done.output
        if not isinstance(total, Total):
            raise TypeError(f"a collector is done with a Total, not {type(total).__name__}")
        return total, int(self._records[total.contributors].sum())
