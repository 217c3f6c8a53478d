"""The package's own tests of its noise law: its contract."""

from fractions import Fraction

from twofold import Twofold

from tallyroom.protocols.privacy.conformance import NoiseLawContract
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace


class TestTwofold(NoiseLawContract):
    law = Twofold(DiscreteLaplace(Fraction(3, 2)))
