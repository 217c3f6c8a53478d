"""The promise that comes with an answer, made of the query that servers sign and of nothing else.

So whoever holds a result can make the promise again and compare (`simulation.proof`). It includes
`concessions`: an automatic choice that weakens the promise is told with the answer, on the screen
and in result.json, and only here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query

NO_NOISE = "NOT PRIVATE: epsilon is inf, so no noise was added"


@dataclass(frozen=True)
class Promise:
    """`loss` is unbounded where no noise was added: the answer is not private. `protects` is what
    the loss is for (`Adjacency`). `concessions` are what weakens the promise, a sentence each."""

    loss: PrivacyLoss
    mechanism: str
    noise: str
    protects: str
    threat_model: str
    concessions: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float | None:
        """None without noise; infinite where the loss is concentrated and has no ε."""
        found = self.loss.at(self.loss.delta)
        return found.size if self.loss.bounded else None

    @property
    def delta(self) -> float:
        return self.loss.written_delta

    @property
    def cost(self) -> str:
        """The loss as reports state it, without its δ."""
        return f"{self.loss.letter} = {self.loss.size:g}" if self.loss.bounded else "no noise"

    def charged(self, reused: bool) -> dict[str, float | str]:
        """What one question of a study cost. An earlier release that is given again costs no ε."""
        return self.loss.as_json() | ({self.loss.measure: 0.0} if reused else {})

    def as_json(self) -> dict[str, object]:
        """Without concessions there is no entry of that name."""
        told = {**self.loss.as_json(), **self.__dict__}
        del told["loss"], told["concessions"]
        return told | ({"concessions": list(self.concessions)} if self.concessions else {})


def together(answers: Sequence[tuple[str, Promise]]) -> Promise:
    """The promise of a study's answers, each with the name of its statistic. Questions follow from
    answers, so their losses add up. Earlier releases that were given again count as well: this is
    about the finding."""
    parts = [promise for _, promise in answers]
    return Promise(
        sum((part.loss for part in parts), NO_LOSS),
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
    said = (str(aggregator.threat_model(query.servers)), _trust(query), noise, _garbled(query))
    return Promise(
        mechanism.loss,
        words,
        mechanism.placement,
        protects,
        "; ".join(filter(None, said)),
        concessions(query),
    )


def _trust(query: Query) -> str:
    """What the plan says, unless what it warns of is checked."""
    return "" if query.plan.computed_by_servers and query.checks_tasks else query.plan.trust


def _garbled(query: Query) -> str:
    """How sure the servers are of what they compute together on data, and of noise that is not
    drawn as usual."""
    found = []
    if query.joint_noise is not None:
        found.append(query.secured_noise.statement)
    if query.checks_tasks and (query.choice is not None or query.plan.computed_by_servers):
        found.append(
            "what servers compute on shares of data is garbled by either once and compared: one "
            "that deviates ends the run, and learns little more than a bit from that"
        )
    elif query.choice is not None:
        found.append("server-0 chooses what is opened, if it does not follow the protocol")
    return "; ".join(filter(None, found))


def concessions(query: Query) -> tuple[str, ...]:
    """Lists what weakens the promise of this query, whether somebody chose it or nobody did."""
    found = []
    if query.epsilon is None:
        found.append(NO_NOISE)
    found += aggregator_named(query.aggregator).concessions(query)
    drawn = query.noise_law is not None and query.choice is None
    if drawn and query.noise in (Placement.CURATOR, Placement.TOTAL) and query.servers > 1:
        found.append("server-0 knows the noise: --noise each-server does without that trust")
    return tuple(found)
