"""What a question will cost before it is asked, where its aggregator states that in a formula."""

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.fss.aggregator import CHECKED_BYTES, PLAIN_BYTES, Fss
from tallyroom.protocols.aggregation.fss.submission import FINE, bits_for
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.messages import SINGLE_BYTES
from tallyroom.simulation.formulas import NotAFormula, evaluate


def predicted_links(query: Query) -> dict[str, int]:
    """Bytes by link; nothing where they follow from more than one round."""
    aggregator, parties, servers = aggregator_named(query.aggregator), query.parties, query.servers
    if aggregator.stages > 1 or query.plan.machines() is not None:  # pairs speak among themselves
        return {}
    most = query.max_records_per_party
    values = {"L": query.plan.length, "n": parties, "m": servers, "k": most}
    formula = aggregator.party_bytes
    if isinstance(aggregator, Fss):
        if servers != 2:  # keys of another kind
            return {}
        formula = CHECKED_BYTES if aggregator.checks else PLAIN_BYTES
        values["b"] = bits_for(query, aggregator.domain == FINE)
    try:
        sent = evaluate(formula, values)
    except NotAFormula:
        return {}
    return {"party->server": parties * (sent + SINGLE_BYTES * servers)}
