"""The odds that a mechanism may have, exactly enough."""

from decimal import Decimal, localcontext
from fractions import Fraction


def exponential(epsilon: Fraction) -> Fraction:
    """e^ε to 100 digits, by another precision than the code's."""
    with localcontext() as context:
        context.prec = 100
        return Fraction((Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp())
