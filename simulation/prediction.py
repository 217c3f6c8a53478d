"""What a question will cost before it is asked, where its aggregator states that in a formula."""

from tallyroom.protocols.aggregation.contract import Aggregator
from tallyroom.protocols.aggregation.fss.aggregator import CHECKED_BYTES, PLAIN_BYTES, Fss
from tallyroom.protocols.aggregation.fss.submission import FINE, bits_for
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.studies.contract import Study
from tallyroom.protocols.wire.messages import SINGLE_BYTES
from tallyroom.simulation.formulas import NotAFormula, evaluate


def predicted_links(
    aggregator: Aggregator,
    question: Statistic | Study,
    parties: int,
    servers: int,
    records_each: int,
) -> dict[str, int]:
    """Bytes by link; nothing where they follow from more than one round, or from answers."""
    if not isinstance(question, Statistic) or aggregator.stages > 1:
        return {}
    asked = question.asked_of(aggregator.offers)
    if asked.machines() is not None:  # pairs speak among themselves
        return {}
    values = {"L": asked.length, "n": parties, "m": servers, "k": records_each}
    formula = aggregator.party_bytes
    if isinstance(aggregator, Fss):
        if servers != 2:  # keys of another kind
            return {}
        formula = CHECKED_BYTES if aggregator.checks else PLAIN_BYTES
        values["b"] = bits_for(asked, aggregator.domain == FINE)
    try:
        sent = evaluate(formula, values)
    except NotAFormula:
        return {}
    return {"party->server": parties * (sent + SINGLE_BYTES * servers)}
