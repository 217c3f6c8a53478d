"""What is said of an answer: what it was asked of, who took part, what its proof is."""

from collections.abc import Mapping

from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.promise import promise_of
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.run.refusal import refusal_words
from tallyroom.protocols.statistics import Estimate, Statistic
from tallyroom.protocols.statistics.bounded import known_bounds
from tallyroom.protocols.statistics.contract import asked_as, style_of
from tallyroom.protocols.statistics.estimates import Shape
from tallyroom.protocols.statistics.grouped import Grouped
from tallyroom.protocols.statistics.release import Release
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.proof import Proof
from tallyroom.simulation.result import Result
from tallyroom.simulation.runtimes.contract import Opened


def notes_of(opened: Opened, parties: int) -> list[str]:
    """What became of these parties, in so many sentences."""
    contributors = len(opened.contributors)
    notes = []
    if contributors < parties:
        notes.append(f"{contributors} of {parties} parties contributed")
    for party, reason in opened.caught:
        notes.append(f"{Role.PARTY.named(party)} was caught: {reason}")
    if opened.refusing:
        notes.append(refusal_words(opened.refusals, opened.refusing))
    if opened.refused:
        notes.append(f"{opened.refused} reports could not be used; their senders are unknown")
    if opened.lost_pairs:
        pairs = opened.records + opened.lost_pairs
        notes.append(f"{opened.lost_pairs} of {pairs} pairs are left out: a party of each was lost")
    if opened.reused:
        notes.append("reused, ε 0: an earlier release of the same data; --fresh asks for a new one")
    return notes


def answered(
    question: Question, opened: Opened, about: Mapping[str, object], trust: str = ""
) -> Result:
    """The result that the servers signed for. Raises `AnswerRefused`.

    It tells of the federation as it was when it was asked, and `about` it where it runs; `trust` is
    what the runtime has to say about whom one has to trust. What only
    a simulation knows, above all the truth, is not in it.
    """
    query, proof = opened.prove(question)
    promise, contributors = promise_of(query), len(opened.contributors)
    answer = proof.answer(query, opened.total, contributors)
    return Result(
        asked_as(question.statistic),
        answer.estimate,
        None,
        promise,
        {
            "parties": query.parties,
            "servers": query.servers,
            "aggregator": query.aggregator,
            **({"trust": trust} if trust else {}),
            **about,
        },
        opened.bill,
        opened.seconds,
        answer.deviations,
        (*promise.concessions, *notes_of(opened, query.parties), *answer.remarks),
        caught=opened.caught,
        server_cpu_seconds=opened.server_cpu_seconds,
        refusals=opened.refusals,
        data=describe_data(query, proof),
        reused=opened.reused,
        lost_pairs=opened.lost_pairs,
        proof=proof,
        style=style_of(question.statistic),
        interval=answer.interval,
        intervals=answer.intervals,
        unsmoothed=answer.unsmoothed,
        prepare_cpu_seconds=opened.prepare_cpu_seconds,
        waiting_seconds=opened.waiting_seconds,
        foretold=answer.foretold,
    )


def describe_data(query: Query, proof: Proof) -> dict[str, object]:
    """What is asked about, and what the grid of the statistic that was read off does to it."""
    statistic, plan = proof.statistic, proof.plan(query)
    description: dict[str, object] = {
        "name": query.data,
        "columns": list(statistic.columns),
        "records": query.records,
    }
    if isinstance(statistic, Grouped):
        description |= {"where": statistic.where} if statistic.where else {}
        description |= {"by": [each.column for each in statistic.groups.by]} if statistic.by else {}
    if bounds := stated_bounds(statistic):
        description["bounds"] = bounds
    return description | {"grid": plan.grid_words, "grid_step": plan.grid_step}


def stated_bounds(statistic: Statistic) -> list[float] | dict[str, list[float]]:
    """One range where all columns have the same, else each column's; empty if there are none."""
    bounds = known_bounds(statistic)
    if len(set(bounds.values())) == 1:
        return list(next(iter(bounds.values())))
    return {name: list(each) for name, each in bounds.items()}


# --- what can be said where the data is at hand, as in a simulation ---


def noiseless(proof: Proof, opened: Opened, present: Holdings) -> Estimate | None:
    """The same computation without noise; None where nobody knows what was lost."""
    plan = proof.plan(proof.evidence.asked_query)
    if plan.pairs is not None and not plan.pairs.is_whole(present.rows, opened.records):
        return None
    release = Release(plan, plan.without_noise(present), opened.records, None)
    return proof.statistic.read(release).estimate


def beside(truth: Estimate, estimate: Estimate) -> Estimate:
    """The truth as it is told beside an estimate: curves of classifiers at the same thresholds."""
    return truth.beside(estimate) if isinstance(truth, Shape) else truth


def with_categories(statistic: Statistic, known: str) -> Statistic:
    """The same, counting the names that the data set publishes, if it counts names."""
    if getattr(statistic, "categories", None) != "":
        return statistic
    return type(statistic).from_parameters(statistic.parameters() | {"categories": known})
