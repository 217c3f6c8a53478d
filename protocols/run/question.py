"""A question as an analyst asks it, before a federation makes a query of it."""

import hashlib
import json
from dataclasses import dataclass, fields
from fractions import Fraction

from protocols.errors import LocalError
from protocols.privacy.mechanisms import Placement, parse_epsilon
from protocols.run.query import MAX_DEADLINE, Query
from protocols.statistics import Statistic, statistic_named


@dataclass(frozen=True)
class Question:
    """What an analyst asks. `minimum` None means that every party is needed. `aggregator` is a
    name with its options, `delta` the δ that is granted to mechanisms that need one.

    `key` is the analyst's own name for the question: asking again under it asks nothing new, it
    waits for the same answer. `fresh` asks for noise of its own, where an earlier release of the
    same data would be given again.
    """

    statistic: Statistic
    aggregator: str
    epsilon: Fraction | None
    noise: Placement
    data: str = "data"
    unit: str = "record"
    minimum: int | None = None
    deadline: float = 30.0
    key: str = ""
    delta: float = 0.0
    fresh: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.deadline <= MAX_DEADLINE:  # nor is it one that never passes
            raise LocalError(f"a deadline of {self.deadline} seconds is not possible")

    def query(self, nonce: bytes, parties: int, servers: int, records: int, most: int) -> Query:
        """The question as it is put to a federation. Raises `LocalError` if it cannot be."""
        group = {"record": 1, "party": most}.get(self.unit)
        if group is None:
            raise LocalError(f"the unit of privacy is record or party, not {self.unit!r}")
        return Query(
            nonce=nonce,
            statistic=self.statistic.prepared(
                records,
                most,
                self.epsilon,
                self.noise is Placement.PER_PAIR,
                hashlib.blake2s(nonce, person=b"matching").digest(),
            ),
            aggregator=self.aggregator,
            parties=parties,
            servers=servers,
            records=records,
            epsilon=self.epsilon,
            noise=self.noise,
            data=self.data,
            minimum=parties if self.minimum is None else self.minimum,
            group=group,
            most=most,
            deadline=self.deadline,
            delta=self.delta,
        )

    def as_put(self, query: Query) -> Query:
        """The query that this question would have been, for the federation of `query`."""
        return self.query(query.nonce, query.parties, query.servers, query.records, query.most)

    def difference(self, query: Query) -> str | None:
        """In which field a query does not ask what this question does; None if it does.

        What is left to post-processing may differ, and for how long parties are waited for: a
        release that is there already is given again to a question that differs in no more.
        """
        expected = self.as_put(query)
        for each in fields(Query):
            if each.name == "statistic":
                if expected.statistic.release_key() != query.statistic.release_key():
                    return each.name
            elif each.name != "deadline" and getattr(expected, each.name) != getattr(
                query, each.name
            ):
                return each.name
        return None

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
        except LocalError:
            raise
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
    "key": (str,),
    "delta": (int, float),
    "fresh": (bool,),
}
