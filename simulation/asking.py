"""How a question is asked: who adds its noise, of which law, and the key that names it.

Who comes back with a key alone would have to take the coordinator's word for what was asked under
it. A key that this side made ends in a digest of the question, so that it need not.
"""

import hashlib
import os
import re
from dataclasses import dataclass, replace
from fractions import Fraction

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Aggregator
from tallyroom.protocols.errors import AnswerRefused, LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.contract import NoisyChoice, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import LAPLACE, Placement, parse_noise
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.law_choice import AUTO, LawChoice, with_law
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.studies.budget import Grant
from tallyroom.protocols.studies.settling import PublicSetting
from tallyroom.protocols.wire.messages import NONCE_BYTES
from tallyroom.simulation.runtimes.contract import Report
from tallyroom.simulation.study import StudyQuestion

_BYTES = 16
_BOUND = re.compile(f"([0-9a-f]{{{2 * _BYTES}}})-([0-9a-f]{{{2 * _BYTES}}})")


@dataclass(frozen=True)
class AskingOptions:
    """How questions are put: what the user chose, the same for all of a study."""

    noise: str | None
    unit: str
    min_parties: int | None
    deadline: float
    fresh: bool
    report: Report
    law: str
    security: str = ""
    questions: int = 1
    """Where the law is `auto`: how many questions like this are to be asked."""
    for_study: bool = False
    """Whether `noise` was chosen for all questions of a study, some of which may not have it."""

    def of(self, question: StudyQuestion) -> "AskingOptions":
        """Of one question: who adds the noise is left to it where the choice is not one it has.
        Raises `LocalError` for another law than the one that studies reckon with, and for a loss
        in ρ, which that has not."""
        if self.law not in (LAPLACE, AUTO):
            raise LocalError(
                f"a study reckons with {LAPLACE} noise, not with {self.law}: leave --noise-law out"
            )
        if question.grant.loss.rho is not None:
            raise LocalError(f"a study is asked for an epsilon, not for {question.grant.loss}")
        return replace(self, law=LAPLACE, for_study=True, report=question.report)


@dataclass(frozen=True)
class Setting:
    """What is public of a federation that is asked through an aggregator, whose name and options
    are `spec`: who takes part, with how many records in all and how many of one party at most."""

    spec: str
    parties: int
    servers: int
    max_records_per_party: int
    records: int

    @property
    def aggregator(self) -> Aggregator:
        return aggregator_named(self.spec)

    def public(self, options: AskingOptions, loss: PrivacyLoss) -> PublicSetting:
        """What decides how a question is put that is asked like this."""
        noise = None if options.noise is None else parse_noise(options.noise)[0]
        two = self.servers == 2 and options.law == LAPLACE and loss.rho is None
        two = two and not options.security
        return PublicSetting(
            choose=two and noise in (None, Placement.JOINT) and self.aggregator.chooses,
            meet=two and noise is not Placement.PER_PAIR and self.aggregator.name == "additive",
            randomized=Offer.RANDOMIZE in self.aggregator.offers,
            noises=1 if noise is Placement.JOINT else self.servers,
            records=self.records,
            records_per_unit=self.max_records_per_party if options.unit == "party" else 1,
            epsilon=loss.as_epsilon,
        )

    def placement(
        self, noise: str | None, statistic: Statistic, for_study: bool = False
    ) -> Placement:
        """Who adds the noise; `for_study` is as in `AskingOptions`. Raises `LocalError`."""
        plan = self.plan(statistic)
        if for_study and noise is not None:
            of_pairs = parse_noise(noise)[0].of_pairs
            if isinstance(plan, NoisyChoice) or (of_pairs and plan.pairs is None):
                noise = None
        if noise is not None:
            return parse_noise(noise)[0]
        if (own := plan.placement(self.servers)) is not None:
            possible = own is not Placement.JOINT or self.aggregator.joint
            return own if possible else Placement.EACH_SERVER
        if self.aggregator.noise is not None:
            return self.aggregator.noise
        return Placement.CURATOR if self.servers == 1 else Placement.EACH_SERVER

    def plan(self, statistic: Statistic) -> Plan:
        """The plan of a statistic before it is known who adds the noise, and how much."""
        facts = Facts(
            records=self.records,
            parties=self.parties,
            servers=self.servers,
            max_records_per_party=self.max_records_per_party,
            records_per_unit=1,
            epsilon=None,
            delta=0.0,
            noise=Placement.CURATOR,
            honest=0,
            seed=bytes(32),
            offers=self.aggregator.offers,
        )
        return statistic.plan(facts)

    def question(self, statistic: Statistic, grant: Grant, options: AskingOptions) -> LawChoice:
        """About a statistic, for what is granted, without a key; and why its noise is of this law,
        if that was left open. Raises `LocalError`."""
        placement = self.placement(options.noise, statistic, options.for_study)
        shared, rho = placement is Placement.SHARED, grant.loss.rho
        unsecured = options.for_study and placement is not Placement.JOINT
        question = Question(
            statistic,
            self.spec,
            grant.loss.as_epsilon,
            placement,
            unit=options.unit,
            min_parties=options.min_parties,
            deadline=options.deadline,
            delta=grant.loss.written_delta,
            fresh=options.fresh,
            later=grant.later,
            honest=parse_noise(options.noise)[1] if options.noise and shared else 0,
            law=options.law,
            security="" if unsecured else options.security,
            rho="" if rho is None else str(rho),
        )
        if options.law == AUTO:
            most = self.max_records_per_party
            counts = self.parties, self.servers, self.records, most
            return with_law(question, options.questions, *counts)
        if options.questions != 1:
            raise LocalError("--questions is for --noise-law auto, which goes by their number")
        return LawChoice(question, "")

    def query(self, question: Question) -> Query:
        """The query that a question would be. Raises `LocalError` where it cannot be asked."""
        most, nonce = self.max_records_per_party, bytes(NONCE_BYTES)
        query = question.query(nonce, self.parties, self.servers, self.records, most)
        check(query)
        return query

    def usual_query(self, statistic: Statistic) -> Query | None:
        """A query such as would be put; None where none can be, and the run will say why."""
        try:
            usual = Question(statistic, self.spec, Fraction(1), self.placement(None, statistic))
            most, nonce = self.max_records_per_party, bytes(NONCE_BYTES)
            return usual.query(nonce, self.parties, self.servers, self.records, most)
        except LocalError:
            return None


def keyed(question: Question, salt: str | None = None) -> Question:
    """The question under a key that it alone can have; a new one, unless `salt` makes it again."""
    salt = salt or os.urandom(_BYTES).hex()
    return replace(question, key=f"{salt}-{_digest(salt, question)}")


def check_resumed(key: str, question: Question) -> None:
    """Raises `AnswerRefused` if this is not what was asked under `key`. Of a key that a person
    chose it cannot be told."""
    bound = _BOUND.fullmatch(key)
    if question.key != key or (bound and _digest(bound[1], question) != bound[2]):
        raise AnswerRefused("the answer is refused: coordinator: it is not to what was asked")


def _digest(salt: str, question: Question) -> str:
    """Of the question as it is read: numbers may be written in several ways."""
    read = Question.decode(replace(question, key=salt).encode())
    text = read.encode().encode()
    return hashlib.blake2s(text, digest_size=_BYTES, person=b"question").hexdigest()
