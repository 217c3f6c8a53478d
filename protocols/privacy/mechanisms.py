"""Who draws noise, and how much of it is in a release; and discrete Laplace noise."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.laplace import Integers, discrete_laplace, representable
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.noise_law import Ids, NoiseLaw, Sensitivity
from tallyroom.protocols.privacy.noise_sums import laplace_quantile, laplace_width
from tallyroom.protocols.privacy.polya import polya_differences
from tallyroom.protocols.randomness import Randomness


class Placement(StrEnum):
    """Who draws the noise, hence whom one has to trust."""

    CURATOR = "curator"  # server 0 draws it once
    EACH_SERVER = "each-server"  # every server draws it in full
    PARTIES = "parties"  # every party draws a share of it
    TOTAL = "total"  # of pairs: server 0 draws it once, on the total over all pairs
    PER_PAIR = "per-pair"  # of pairs: the two parties draw it inside their circuit
    JOINT = "joint"  # two servers draw it once, inside a circuit
    SHARED = "shared"  # three servers or more draw a share each

    def statement(self, servers: int, honest: int = 0) -> str:
        """`honest` is as in `honest_servers`."""
        match self:
            case Placement.CURATOR:
                return "one noise, drawn by server-0, which must not collude with the analyst"
            case Placement.EACH_SERVER:
                return (
                    f"each of {servers} servers adds the full noise, so its variance is {servers} "
                    "times that of one; private even if all but one collude with the analyst"
                )
            case Placement.PARTIES:
                return (
                    f"parties share the noise; private while {HONEST:.0%} of them contribute "
                    "and are honest"
                )
            case Placement.TOTAL:
                return (
                    "one noise on the total over all pairs, drawn by server-0, which must not "
                    "collude with the analyst"
                )
            case Placement.PER_PAIR:
                return (
                    "the two parties of every pair draw its noise together inside their circuit; "
                    "private while one of them keeps its coins to itself and both follow the "
                    "protocol, whoever else colludes"
                )
            case Placement.JOINT:
                return (
                    "both servers draw one noise together inside a circuit and neither knows it; "
                    "private while one of them does not collude with the analyst"
                )
            case Placement.SHARED:
                honest = honest_servers(servers, honest)
                return (
                    f"each of {servers} servers adds a share of the noise, and {honest} of them "
                    f"suffice: its variance is {servers}/{honest} of one noise's; private while "
                    f"at most {servers - honest} of them collude with the analyst"
                )

    @property
    def of_pairs(self) -> bool:
        """Whether it makes sense for pairs of parties alone."""
        return self in (Placement.TOTAL, Placement.PER_PAIR)


HONEST = 0.5
"""The fraction of parties whose noise alone suffices under `Placement.PARTIES`."""


def enough_shares(parties: int) -> int:
    """How many parties' shares of noise add up to the full noise; fewer are not private."""
    return math.ceil(HONEST * parties)


def honest_servers(servers: int, asked: int = 0) -> int:
    """How many servers' shares add up to the full noise under `Placement.SHARED`: as many as were
    asked for, a majority if nobody did. Fewer honest ones are not enough."""
    return asked or servers // 2 + 1


_NOISE = re.compile(r"shared\?honest=([1-9][0-9]?)")


def parse_noise(text: str) -> tuple[Placement, int]:
    """Who draws the noise and, of `shared?honest=H`, H; else 0. Raises `LocalError`."""
    if (shared := _NOISE.fullmatch(text)) is not None:
        return Placement.SHARED, int(shared[1])
    try:
        return Placement(text), 0
    except ValueError:
        raise LocalError(
            f"no noise placement {text[:40]!r}; there are {', '.join(Placement)}, and "
            "shared?honest=H for H honest servers"
        ) from None


@dataclass(frozen=True)
class DiscreteLaplace(NoiseLaw):
    """Discrete Laplace noise: P(x) ∝ e^(−|x|/scale)."""

    scale: Fraction

    name: ClassVar[str] = "laplace"
    has_shares: ClassVar[bool] = True
    in_circuits: ClassVar[bool] = True

    @classmethod
    def calibrated(
        cls, loss: PrivacyLoss, sensitivity: Sensitivity, shares: int = 1
    ) -> "DiscreteLaplace":
        """δ serves nothing here. What is ε-private has a ρ of ε²/2. Shares sum to this law exactly,
        however many there are."""
        epsilon = loss.epsilon
        if epsilon is None and loss.rho is not None:
            bits = 64 + max(0, loss.rho.denominator.bit_length())
            epsilon = Fraction(math.isqrt(int(2 * loss.rho * 4**bits)), 2**bits)
        if not epsilon:
            raise LocalError(f"no noise costs {loss}")
        return cls.spending(epsilon, sensitivity.l1)

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        return PrivacyLoss(self.privacy_map(sensitivity.l1))

    def concentrated(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """An integer that moves by d is d/scale-private, hence of a ρ of half its square. Noises
        are independent, so these add up."""
        return PrivacyLoss(rho=Fraction(sensitivity.squared_l2) / (2 * self.scale**2))

    @classmethod
    def spending(cls, epsilon: Fraction, sensitivity: int) -> "DiscreteLaplace":
        """The least noise whose privacy map stays within `epsilon`."""
        try:
            return cls(representable(Fraction(sensitivity) / epsilon))
        except ValueError as error:
            raise LocalError(f"epsilon {float(epsilon):g} is too small: {error}") from None

    def privacy_map(self, sensitivity: int) -> Fraction:
        """ε such that vectors within L1 distance `sensitivity` are ε-indistinguishable. δ is 0."""
        return sensitivity / self.scale

    def words(self, step: float = 1.0) -> str:
        return f"discrete Laplace of scale {float(self.scale) * step:.6g}"

    @property
    def variance(self) -> float:
        """2p/(1-p)^2 with p = exp(-1/scale)."""
        rate = 1 / float(self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    @classmethod
    def of_variance(cls, variance: float) -> "DiscreteLaplace":
        """The law of that variance, which is above 0."""
        return cls(Fraction(1 / (2 * math.asinh(math.sqrt(1 / (2 * variance))))))

    def draw(self, count: int, randomness: Randomness) -> Integers:
        return discrete_laplace(count, self.scale, randomness)

    def draw_shares(self, ids: Ids, enough: int, count: int, randomness: Randomness) -> Integers:
        """Differences of Pólya variables of shape 1/`enough`."""
        return polya_differences(ids, count, self.scale, enough, randomness)

    def log_chance(self, value: int) -> float:
        return -abs(value) / float(self.scale)

    def quantile(self, level: float, noises: Fraction | int = 1) -> int:
        return laplace_quantile(level, self.scale, noises)

    def width(self, level: float, noises: float) -> float:
        return laplace_width(level, noises)


LAPLACE = DiscreteLaplace.name
"""The law that is drawn where nobody asks for another."""


def laplace_scale(law: NoiseLaw) -> Fraction:
    """The scale of the one law that pairs and choices draw. Raises `LocalError` for another."""
    if not isinstance(law, DiscreteLaplace):
        raise LocalError(f"noise inside a circuit is discrete Laplace, not {law.name}")
    return law.scale


def noises_in(
    placement: Placement,
    parties: int,
    servers: int,
    contributors: int | None = None,
    honest: int = 0,
) -> Fraction:
    """How many times the noise of one mechanism is in each released integer, of which shares make
    up parts. `honest` is as in `honest_servers`.

    Under `Placement.PARTIES` each of `parties` drew a share, and those of `contributors` are in the
    sum; all of them, if nobody says.
    """
    match placement:
        case Placement.CURATOR | Placement.TOTAL | Placement.PER_PAIR | Placement.JOINT:
            return Fraction(1)
        case Placement.EACH_SERVER:
            return Fraction(servers)
        case Placement.SHARED:
            return Fraction(servers, honest_servers(servers, honest))
        case Placement.PARTIES:
            shares = parties if contributors is None else contributors
            return Fraction(shares, enough_shares(parties))
