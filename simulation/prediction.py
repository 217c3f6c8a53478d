"""What a question will cost before it is asked, where its aggregator states that in a formula."""

from protocols.aggregation.contract import Aggregator
from protocols.aggregation.fss.aggregator import Fss
from protocols.aggregation.fss.submission import FINE, bits_for
from protocols.run.messages import SINGLE_BYTES
from protocols.statistics import Statistic
from protocols.studies.contract import Study
from simulation.formulas import NotAFormula, evaluate


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
    if isinstance(aggregator, Fss):
        if aggregator.checks or servers != 2:  # the formula is that of other keys
            return {}
        values["b"] = bits_for(asked, aggregator.domain == FINE)
    try:
        sent = evaluate(aggregator.party_bytes, values)
    except NotAFormula:
        return {}
    return {"party->server": parties * (sent + SINGLE_BYTES * servers)}
