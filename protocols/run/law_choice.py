"""Which law of noise serves a question best, where the analyst leaves it open (`--noise-law auto`).

A law is judged by the mean variance of what is told, under the strategy that it is released by. Of
one question both laws have what was granted. Of several, what they cost together at the granted δ
decides: K questions under Gaussian noise cost Kρ, which is (ε_K, δ). Laplace noise that costs as
much has ε_K/K for each by the plain sum, or such an ε that it has the same ρ, whichever is more.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import LAPLACE
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.messages import NONCE_BYTES

AUTO = "auto"
GAUSSIAN = DiscreteGaussian.name


class LawChoice(NamedTuple):
    """A question with a law, and in one sentence why it is that one."""

    question: Question
    why: str


def with_law(
    question: Question, questions: int, parties: int, servers: int, records: int, most: int
) -> LawChoice:
    """The question under the law of less variance, where `questions` like it are to be asked of
    such a federation. Raises `LocalError` where it cannot be asked under any."""
    if questions < 1:
        raise LocalError(f"--questions is 1 or more, not {questions}")

    def under(law: str) -> Query:
        asked = replace(question, law=law)
        query = asked.query(bytes(NONCE_BYTES), parties, servers, records, most)
        check(query)
        return query

    def taken(law: str, why: str) -> LawChoice:
        return LawChoice(replace(question, law=law), f"--noise-law auto took {law} noise: {why}")

    if question.rho:
        return taken(GAUSSIAN, "the budget is in rho")
    laplace = under(LAPLACE)
    if laplace.noise_law is None:
        return taken(LAPLACE, "no noise is added")
    if not question.delta:
        return taken(LAPLACE, "gaussian noise needs a --delta")
    try:
        gaussian = under(GAUSSIAN)
        deviations = _deviations(laplace, gaussian, questions)
    except LocalError as error:
        return taken(LAPLACE, f"gaussian noise is not possible here ({error})")
    which = GAUSSIAN if deviations[1] < deviations[0] else LAPLACE
    asked = "one question" if questions == 1 else f"{questions} questions like this"
    return taken(
        which,
        f"of {asked} at delta {question.delta:g}, values told from {gaussian.plan.released} "
        f"released ones have noise of standard deviation {deviations[1]:.4g} if it is gaussian, "
        f"and {deviations[0]:.4g} if it is laplace and costs as much",
    )


def _deviations(laplace: Query, gaussian: Query, questions: int) -> tuple[float, float]:
    """The root of the mean variance under either law, at equal cost of so many questions."""
    assert laplace.noise_law is not None
    assert gaussian.noise_law is not None
    assert laplace.epsilon is not None
    rho, of_laplace = gaussian.concentrated.rho, laplace.concentrated.rho
    assert rho is not None
    assert of_laplace is not None
    epsilon = float(laplace.epsilon)
    if questions > 1:
        together = PrivacyLoss(rho=rho * questions).at(gaussian.delta).size
        by_rho = epsilon * math.sqrt(rho / of_laplace)
        epsilon = max(together / questions, by_rho)
    as_asked = laplace.plan.mean_variance(laplace.noise_law.variance)
    grown = float(laplace.epsilon) / epsilon
    found = gaussian.plan.mean_variance(gaussian.noise_law.variance)
    return grown * math.sqrt(as_asked), math.sqrt(found)
