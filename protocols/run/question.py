"""A question as an analyst asks it, before a federation makes a query of it."""

import hashlib
import json
from dataclasses import dataclass, fields, replace
from fractions import Fraction

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss, parse_epsilon
from tallyroom.protocols.privacy.mechanisms import LAPLACE, Placement
from tallyroom.protocols.query import (
    ASKING_BYTES,
    MALFORMED,
    MAX_DEADLINE,
    SAID_IF_CHOSEN,
    Query,
    check_later,
    chosen,
    decode_later,
    encode_later,
    of_the_release,
)
from tallyroom.protocols.statistics import Statistic, statistic_named


def asking_of(key: str) -> str:
    """What a query has of the key that it was asked under."""
    if not key:
        return ""
    return hashlib.blake2s(key.encode(), digest_size=ASKING_BYTES, person=b"asking").hexdigest()


@dataclass(frozen=True)
class Question:
    """What an analyst asks. `min_parties` None means that every party is needed. `aggregator` is a
    name with its options, `delta` the δ that is granted to mechanisms that need one.

    `key` is the analyst's own name for the question: asking again under it asks nothing new, it
    waits for the same answer, and no other is taken for it. `fresh` asks for noise of its own,
    where an earlier release of the same data would be given again. `later` is what the rest of a
    study may spend after it. `honest`, `law`, `rho` and `security` are as in `Query`.
    """

    statistic: Statistic
    aggregator: str
    epsilon: Fraction | None
    noise: Placement
    data: str = "data"
    unit: str = "record"
    min_parties: int | None = None
    deadline: float = 30.0
    key: str = ""
    delta: float = 0.0
    fresh: bool = False
    later: PrivacyLoss = NO_LOSS
    honest: int = 0
    law: str = LAPLACE
    rho: str = ""
    security: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.deadline <= MAX_DEADLINE:  # nor is it one that never passes
            raise LocalError(f"a deadline of {self.deadline} seconds is not possible")
        check_later(self.epsilon, self.later)

    @property
    def asking(self) -> str:
        """The key as the query has it, and with the query all that servers sign."""
        return asking_of(self.key)

    def takes(self, query: Query) -> bool:
        """Whether the answer to `query` may be given to this asking.

        An earlier one may where the same release would be given again and no fresh one is wanted.
        Who names no key cannot tell one asking from another.
        """
        if not self.key or query.asking == self.asking:
            return True
        return self._may_reuse(query)

    def _may_reuse(self, query: Query) -> bool:
        return not self.fresh and query.plan.reusable

    def query(
        self, nonce: bytes, parties: int, servers: int, records: int, max_records_per_party: int
    ) -> Query:
        """The question as it is put to a federation. Raises `LocalError` if it cannot be.

        What the aggregator's options leave open is settled here, for all who are asked and in all
        that they sign.
        """
        if self.unit not in ("record", "party"):
            raise LocalError(f"the unit of privacy is record or party, not {self.unit!r}")
        query = Query(
            nonce=nonce,
            statistic=self.statistic,
            aggregator=self.aggregator,
            parties=parties,
            servers=servers,
            records=records,
            epsilon=self.epsilon,
            noise=self.noise,
            data=self.data,
            min_parties=parties if self.min_parties is None else self.min_parties,
            records_per_unit=1 if self.unit == "record" else max_records_per_party,
            max_records_per_party=max_records_per_party,
            deadline=self.deadline,
            delta=self.delta,
            later=self.later,
            asking=self.asking,
            honest=self.honest,
            law=self.law,
            rho=self.rho,
            security=self.security,
        )
        return replace(query, aggregator=aggregator_named(self.aggregator).settled(query))

    def as_put(self, query: Query) -> Query:
        """The query that this question would have been, for the federation of `query`."""
        return self.query(
            query.nonce, query.parties, query.servers, query.records, query.max_records_per_party
        )

    def difference(self, query: Query) -> str | None:
        """In which field a query does not ask what this question does; None if it does.

        What is left to post-processing may differ, for how long parties are waited for, and what
        follows in a study: a release that is there already is given again to a question that
        differs in no more.
        """
        expected = self.as_put(query)
        for each in fields(Query):
            if each.name == "statistic":
                # As it comes off the wire: bounds that a caller wrote as 0 and 1 are 0.0 and 1.0.
                asked = expected.statistic.from_parameters(expected.statistic.parameters())
                if asked.plan(query.facts).identity != query.plan.identity:
                    return each.name
            elif each.name == "asking":
                if not self.takes(query):
                    return each.name
            elif each.name == "deadline" or (self._may_reuse(query) and not of_the_release(each)):
                continue
            elif getattr(expected, each.name) != getattr(query, each.name):
                return each.name
        return None

    def encode(self) -> str:
        left_out = {"later", *SAID_IF_CHOSEN}
        plain = {key: v for key, v in self.__dict__.items() if key not in left_out}
        return json.dumps(
            {
                **plain,
                **encode_later(self.later),
                **chosen(self),
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
            fields["later"] = decode_later(fields)
            fields = {**SAID_IF_CHOSEN, **fields}
            for key, kinds in _KINDS.items():
                if type(fields[key]) not in kinds:
                    raise TypeError(f"{key} cannot be {fields[key]!r}")
            return cls(**fields)
        except LocalError:
            raise
        except MALFORMED as error:
            raise LocalError(f"malformed question: {error}") from None


_KINDS: dict[str, tuple[type, ...]] = {
    "aggregator": (str,),
    "data": (str,),
    "unit": (str,),
    "min_parties": (int, type(None)),
    "deadline": (int, float),
    "key": (str,),
    "delta": (int, float),
    "fresh": (bool,),
    "honest": (int,),
    "law": (str,),
    "security": (str,),
    "rho": (str,),
}
