"""The package's own tests of its noise law: its contract."""

from fractions import Fraction

from twofold import Twofold

from tallyroom.extend import DiscreteLaplace, NoiseLawContract


class TestTwofold(NoiseLawContract):
    law = Twofold(DiscreteLaplace(Fraction(3, 2)))
