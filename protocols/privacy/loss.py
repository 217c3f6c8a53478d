"""What a release may tell of one unit of privacy: a loss, one value that composes and compares.

It is said in one of two measures. (ε, δ), which with δ = 0 is pure ε (Dwork, McSherry, Nissim and
Smith 2006); or ρ of zero-concentrated differential privacy (Bun and Steinke 2016), with a δ where
it holds but for that probability (their Definition 8.1). Without noise a loss is unbounded.

Rules, each on exact fractions wherever it is rational:

- composition adds ε, ρ and δ, whoever chooses the next release and when;
- ε-DP is ε²/2-zCDP (Bun and Steinke, Proposition 1.4; with δ: Lemma 8.2);
- ρ-zCDP is (ε, δ)-DP for ε = min over α > 1 of αρ + (ln(1/δ) + (α−1)·ln(1−1/α) − ln α)/(α−1)
  (Canonne, Kamath and Steinke 2020, Proposition 12), at most ρ + 2·√(ρ·ln(1/δ)) (Bun and Steinke,
  Proposition 1.3);
- of k units together it is (kε, δ·(1 + e^ε + … + e^((k−1)ε))) (Vadhan 2017, Lemma 2.2), or k²ρ (Bun
  and Steinke, Proposition 1.9).

What is not rational is rounded up: a loss is never less than it says.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from tallyroom.protocols.errors import LocalError

Number = Fraction | int


def as_written(number: float) -> Fraction:
    """The decimal number that a person wrote: ten times 1e-6 is 1e-5, which doubles deny."""
    return Fraction(repr(float(number)))


@dataclass(frozen=True)
class PrivacyLoss:
    """`epsilon` or `rho`, and `delta`. A loss that has neither is unbounded: there is no noise."""

    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None and self.rho is not None:
            raise ValueError("a loss is said in epsilon or in rho, not in both")
        if min(self.epsilon or 0, self.delta, self.rho or 0) < 0:
            raise ValueError(f"a privacy loss is not negative, as {self!r} is")

    # --- how it is made ---

    @classmethod
    def of(cls, epsilon: Number | None, delta: float = 0.0) -> Self:
        """As people and messages write it: None is no noise, δ a decimal number. Raises
        `LocalError` for a δ that is no probability below 1."""
        if not 0 <= delta < 1:
            raise LocalError(f"delta is a probability from 0 to below 1, not {delta}")
        return cls(None if epsilon is None else Fraction(epsilon), as_written(delta))

    @classmethod
    def concentrated(cls, rho: Number, delta: float = 0.0) -> Self:
        return cls(None, as_written(delta), Fraction(rho))

    # --- what it is ---

    @property
    def bounded(self) -> bool:
        """Whether there is noise at all."""
        return self.epsilon is not None or self.rho is not None

    @property
    def pure(self) -> bool:
        return self.epsilon is not None and not self.delta

    @property
    def nothing(self) -> bool:
        """Whether nothing is told."""
        return self.bounded and not (self.epsilon or self.rho or self.delta)

    def __str__(self) -> str:
        if not self.bounded:
            return "no noise"
        letter, size = ("ε", self.epsilon) if self.rho is None else ("ρ", self.rho)
        words = f"{letter} {float(size or 0):g}"
        return f"{words}, δ {float(self.delta):.2g}" if self.delta else words

    def encode(self) -> dict[str, object]:
        """One loss has one encoding: exact text of ε or ρ, and δ as the number that was written."""
        size = {"epsilon": "inf"} if self.rho is None else {"rho": str(self.rho)}
        if self.epsilon is not None:
            size = {"epsilon": str(self.epsilon)}
        return {**size, "delta": float(self.delta)}

    # --- composition ---

    def __add__(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """Of both releases together."""
        delta = self.delta + other.delta
        if not (self.bounded and other.bounded):
            return PrivacyLoss(None, delta)
        if self.epsilon is not None and other.epsilon is not None:
            return PrivacyLoss(self.epsilon + other.epsilon, delta)
        return PrivacyLoss(None, delta, self._concentration + other._concentration)

    def __mul__(self, count: int) -> "PrivacyLoss":
        """Of so many such releases."""
        if count < 0:
            raise ValueError(f"there cannot be {count} releases")
        return self._scaled(Fraction(count), count * self.delta) if count else NO_LOSS

    __rmul__ = __mul__

    def share(self, part: Fraction) -> "PrivacyLoss":
        """A part of it, from 0 to 1. δ is rounded down to what a double holds: parts never come to
        more than the whole."""
        exact = self.delta * part
        delta = float(exact)
        while as_written(delta) > exact:
            delta = math.nextafter(delta, 0.0)
        return self._scaled(part, as_written(delta))

    def _scaled(self, times: Fraction, delta: Fraction) -> "PrivacyLoss":
        return PrivacyLoss(
            None if self.epsilon is None else self.epsilon * times,
            delta,
            None if self.rho is None else self.rho * times,
        )

    # --- groups ---

    def of_group(self, size: int) -> "PrivacyLoss":
        """Of `size` units that change together, where this is the loss of one."""
        if size < 1:
            raise ValueError(f"a group has one unit or more, not {size}")
        if self.rho is not None:
            if self.delta and size > 1:
                raise ValueError("the rule for groups is of ρ without δ")
            return PrivacyLoss(None, self.delta, self.rho * size**2)
        if self.epsilon is None or not self.delta or size == 1:
            return self._scaled(Fraction(size), self.delta)
        if not self.epsilon:
            return PrivacyLoss(self.epsilon, self.delta * size)
        try:
            steps = math.expm1(float(self.epsilon * size)) / math.expm1(float(self.epsilon))
        except OverflowError:
            return UNBOUNDED
        return PrivacyLoss(self.epsilon * size, self.delta * Fraction(steps * _UP))

    def of_each(self, size: int) -> "PrivacyLoss":
        """What one of `size` units may lose so that all together lose this, of ε and δ.

        The sum of `of_group` is e^(ε−ε/k)·(1−e^−ε)/(1−e^−(ε/k)), which overflows nowhere if it is
        divided by in this form.
        """
        if self.epsilon is None:
            raise ValueError("what each of a group may lose is told of an ε")
        each = self.epsilon / size
        shrink = math.expm1(-float(each)) / math.expm1(-float(self.epsilon))
        delta = float(self.delta) * shrink * math.exp(float(each - self.epsilon))
        return PrivacyLoss(each, as_written(delta))

    # --- the two measures ---

    @property
    def _concentration(self) -> Fraction:
        if self.rho is not None:
            return self.rho
        assert self.epsilon is not None
        return self.epsilon**2 / 2

    def as_concentrated(self) -> "PrivacyLoss":
        """In ρ, with the same δ."""
        return self if not self.bounded else PrivacyLoss(None, self.delta, self._concentration)

    def at(self, delta: float | Fraction) -> "PrivacyLoss":
        """In (ε, δ), for a δ that is granted. Unbounded where that is not enough."""
        whole = delta if isinstance(delta, Fraction) else as_written(delta)
        if not self.bounded or self.delta > whole:
            return UNBOUNDED
        if self.rho is None:
            return PrivacyLoss(self.epsilon, whole)
        if self.rho and self.delta == whole:
            return UNBOUNDED
        return PrivacyLoss(_epsilon_of(self.rho, whole - self.delta), whole)

    # --- order ---

    def __le__(self, other: "PrivacyLoss") -> bool:
        """Whether it is known to fit within `other`: whatever has this loss has that one too. Of
        two losses, neither may fit within the other."""
        if not other.bounded:
            return True
        if not self.bounded or self.delta > other.delta:
            return False
        if other.rho is not None:
            return self._concentration <= other.rho
        assert other.epsilon is not None
        if self.epsilon is not None:
            return self.epsilon <= other.epsilon
        found = self.at(other.delta).epsilon
        return found is not None and found <= other.epsilon

    def __lt__(self, other: "PrivacyLoss") -> bool:
        return self <= other and not other <= self


NO_LOSS = PrivacyLoss(Fraction(0))
"""Of an answer that depends on nobody."""
UNBOUNDED = PrivacyLoss()
"""Of an answer without noise."""

_UP = 1 + 2.0**-40
"""What the arithmetic of doubles may have lost, many times over."""


def _epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """The least ε found at which ρ is (ε, δ). Every α gives one that holds: the search decides how
    small it is, not whether it is right."""
    if not rho or delta >= 1:
        return Fraction(0)
    size, needed = float(rho), -math.log(delta)

    def epsilon(log: float) -> float:
        """At α = 1 + e^log."""
        beyond = math.exp(log)
        alpha = 1 + beyond
        return alpha * size + (needed - math.log(alpha)) / beyond - math.log1p(1 / beyond)

    best = 0.5 * (math.log(needed) - math.log(size)) if needed else 0.0
    low, high = best - 8, best + 8
    for _ in range(200):
        third = (high - low) / 3
        if epsilon(low + third) <= epsilon(high - third):
            high -= third
        else:
            low += third
    plain = size + 2 * math.sqrt(size * needed)
    return Fraction(max(0.0, min(plain, epsilon((low + high) / 2))) * _UP)
