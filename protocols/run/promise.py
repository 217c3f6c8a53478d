"""What is promised with an answer, made of the query that servers sign and of nothing else.

So whoever holds a result can make the promise again and compare (`simulation.proof`). What a query
does without is among it (`concessions`): an automatic choice that weakens the promise is told with
the answer, on the screen and in result.json, and nowhere but here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.privacy.loss import as_written
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query

NO_NOISE = "NOT PRIVATE: epsilon is inf, so no noise was added"


@dataclass(frozen=True)
class Promise:
    """`epsilon` None means that no noise was added: the answer is not private. `protects` is what ε
    is for (`Adjacency`). `concessions` are what weakens the promise, a sentence each."""

    epsilon: float | None
    delta: float
    mechanism: str
    noise: str
    protects: str
    threat_model: str
    concessions: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Without concessions there is no entry of that name."""
        told = {**self.__dict__, "epsilon": "inf" if self.epsilon is None else self.epsilon}
        del told["concessions"]
        return told | ({"concessions": list(self.concessions)} if self.concessions else {})


def together(answers: Sequence[tuple[str, Promise]]) -> Promise:
    """Of a study's answers, each with the name of its statistic, by plain composition: questions
    follow from answers, so their ε and δ add up. Those that an earlier release answered count as
    well: it is of the finding that this is said."""
    parts = [promise for _, promise in answers]
    costs = [part.epsilon for part in parts]
    spent = [as_written(cost) for cost in costs if cost is not None]
    return Promise(
        float(sum(spent)) if len(spent) == len(parts) else None,
        float(sum(as_written(part.delta) for part in parts)),
        "; ".join(dict.fromkeys(f"{name}: {part.mechanism}" for name, part in answers)),
        ", ".join(dict.fromkeys(part.noise for part in parts)),
        "; and ".join(dict.fromkeys(part.protects for part in parts)),
        "; and ".join(dict.fromkeys(part.threat_model for part in parts)),
        tuple(dict.fromkeys(each for part in parts for each in part.concessions)),
    )


def promise_of(query: Query) -> Promise:
    """Raises `LocalError` where the aggregator has no release for it."""
    aggregator = aggregator_named(query.aggregator)
    mechanism = aggregator.mechanism(query)
    if query.epsilon is None:
        words, protects, noise = "none", "nothing: no noise was added", "NOT PRIVATE: no noise"
    elif mechanism.exact:
        words, noise = "none needed", "no noise is needed"
        protects = "every record: the answer does not depend on any"
    else:
        words, noise = mechanism.words, mechanism.statement
        protects = str(query.adjacency)
    said = (str(aggregator.threat_model(query.servers)), query.plan.trust, noise)
    return Promise(
        None if query.epsilon is None else float(query.epsilon),
        mechanism.delta,
        words,
        mechanism.placement,
        protects,
        "; ".join(filter(None, said)),
        concessions(query),
    )


def concessions(query: Query) -> tuple[str, ...]:
    """What weakens the promise of this query, whether somebody chose it or nobody did."""
    found = []
    if query.epsilon is None:
        found.append(NO_NOISE)
    found += aggregator_named(query.aggregator).concessions(query)
    drawn = query.mechanism is not None and query.choice is None
    if drawn and query.noise is Placement.JOINT:
        found.append(
            "server-0 could leave out the noise unseen, as it garbles the circuit that draws it; "
            "--noise each-server does without that trust"
        )
    if drawn and query.noise in (Placement.CURATOR, Placement.TOTAL) and query.servers > 1:
        found.append("server-0 knows the noise: --noise each-server does without that trust")
    return tuple(found)
