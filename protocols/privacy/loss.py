"""A privacy loss bounds what a release may tell of one unit of privacy. It composes and compares.

There are two measures: (ε, δ), which with δ = 0 is pure ε (Dwork, McSherry, Nissim and Smith 2006),
and ρ of zero-concentrated differential privacy (Bun and Steinke 2016), with a δ where it holds
except with that probability (their Definition 8.1). Without noise a loss is unbounded.

Rules, each on exact fractions wherever it is rational:

- composition adds ε, ρ and δ, whoever chooses the next release and when;
- ε-DP is ε²/2-zCDP (Bun and Steinke, Proposition 1.4; with δ: Lemma 8.2);
- ρ-zCDP is (ε, δ)-DP for ε = min over α > 1 of αρ + (ln(1/δ) + (α−1)·ln(1−1/α) − ln α)/(α−1)
  (Canonne, Kamath and Steinke 2020, Proposition 12), at most ρ + 2·√(ρ·ln(1/δ)) (Bun and Steinke,
  Proposition 1.3);
- k units together lose (kε, δ·(1 + e^ε + … + e^((k−1)ε))) (Vadhan 2017, Lemma 2.2), or k²ρ (Bun
  and Steinke, Proposition 1.9).

Numbers that are not rational are rounded up, so the true loss is never more than the stated one.

This file is also the only reader and writer of losses. `parse_epsilon` reads what a person wrote;
`PrivacyLoss.read` and `decode` read what comes from a peer or a file, and take exactly what `text`
and `encode` write.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from tallyroom.protocols.errors import LocalError

Number = Fraction | int

MAX_TEXT = 64
"""Characters of ε or ρ in exact text: receipts have room for as many."""
_TEXT = re.compile(r"inf|(rho )?[0-9]+(/[1-9][0-9]*)?")
EPSILON_RANGE = (1e-9, 1e9)
RHO_RANGE = (1e-15, 1e15)


def parse_epsilon(text: str) -> Fraction | None:
    """Exactly the ε that a person wrote; None for `inf`, which means no noise."""
    if text == "inf":
        return None
    try:
        if len(text) <= MAX_TEXT and EPSILON_RANGE[0] <= _approximate(text) <= EPSILON_RANGE[1]:
            return Fraction(text)
    except (ValueError, ZeroDivisionError):
        pass
    least, most = EPSILON_RANGE
    raise LocalError(
        f"epsilon must be a positive number from {least:g} to {most:g}, or inf, not {text[:64]}"
    )


def parse_rho(text: str) -> Fraction:
    """Exactly the ρ that a person wrote. Raises `LocalError`."""
    try:
        if len(text) <= MAX_TEXT and RHO_RANGE[0] <= _approximate(text) <= RHO_RANGE[1]:
            return Fraction(text)
    except (ValueError, ZeroDivisionError):
        pass
    least, most = RHO_RANGE
    raise LocalError(f"rho must be a positive number from {least:g} to {most:g}, not {text[:64]}")


def _approximate(text: str) -> float:
    """Bounded work on hostile input: an exponent of a million must not become a Fraction."""
    numerator, _, denominator = text.partition("/")
    return float(numerator) / float(denominator or 1)


def as_written(number: float) -> Fraction:
    """The decimal number that a person wrote. Ten times 1e-6 is 1e-5, which is false of doubles."""
    return Fraction(repr(float(number)))


@dataclass(frozen=True)
class PrivacyLoss:
    """`epsilon` or `rho`, and `delta`. With neither it is unbounded: there is no noise."""

    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None and self.rho is not None:
            raise ValueError("a loss is said in epsilon or in rho, not in both")
        if min(self.epsilon or 0, self.delta, self.rho or 0) < 0:
            raise ValueError(f"a privacy loss is not negative, as {self!r} is")
        if self.rho == 0:  # the same as ε = 0, whatever δ is
            object.__setattr__(self, "rho", None)
            object.__setattr__(self, "epsilon", Fraction(0))

    # --- how it is made ---

    @classmethod
    def of(cls, epsilon: Number | None, delta: float = 0.0) -> Self:
        """From ε, where None is no noise, and δ as a decimal number. Raises `LocalError` unless
        δ is a probability below 1."""
        if not 0 <= delta < 1:
            raise LocalError(f"delta is a probability from 0 to below 1, not {delta}")
        return cls(None if epsilon is None else Fraction(epsilon), as_written(delta))

    @classmethod
    def granted(cls, text: str, delta: float = 0.0) -> Self:
        """What a person grants: ε as `parse_epsilon` reads it, or `rho R`. Raises `LocalError`."""
        if not text.startswith("rho "):
            return cls.of(parse_epsilon(text), delta)
        if delta:
            raise LocalError("a loss in rho is granted without delta: leave one of them out")
        return cls.concentrated(parse_rho(text.removeprefix("rho ").strip()))

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

    @property
    def measure(self) -> str:
        return "epsilon" if self.rho is None else "rho"

    @property
    def letter(self) -> str:
        return "ε" if self.rho is None else "ρ"

    @property
    def size(self) -> float:
        """ε or ρ, infinite without noise."""
        size = self.epsilon if self.rho is None else self.rho
        return math.inf if size is None else float(size)

    def __str__(self) -> str:
        if not self.bounded:
            return "no noise"
        words = f"{self.letter} {self.size:g}"
        return f"{words}, δ {float(self.delta):.2g}" if self.delta else words

    # --- how it is written and read ---

    @property
    def text(self) -> str:
        """ε exactly, as `1/2` or `inf`; or ρ, as `rho 1/2`. Raises `LocalError` for a number that
        `read` would not take back."""
        text = "inf" if self.epsilon is None else str(self.epsilon)
        text = text if self.rho is None else f"rho {self.rho}"
        if len(text) > MAX_TEXT:
            raise LocalError("epsilon or rho has too many digits: write it shorter")
        return text

    @property
    def written_delta(self) -> float:
        """The least double that, as people write it, is not below δ."""
        nearest = float(self.delta)
        return nearest if as_written(nearest) >= self.delta else math.nextafter(nearest, 1.0)

    @classmethod
    def read(cls, text: object, delta: object) -> Self:
        """Reads a `text` and a `written_delta`, and no other spelling of them. Raises
        `LocalError`."""
        known = isinstance(text, str) and len(text) <= MAX_TEXT and _TEXT.fullmatch(text)
        if not known or type(delta) is not float or not 0 <= delta < 1:
            raise LocalError(f"not a privacy loss: {text!r:.40} with delta {delta!r:.40}")
        measure, _, size = str(text).rpartition(" ")
        number = None if size == "inf" else Fraction(size)
        found = cls(None if measure else number, as_written(delta), number if measure else None)
        if found.text != text or repr(found.written_delta) != repr(delta):
            raise LocalError(f"a privacy loss is written {found.text}, not {text!r:.40}")
        return found

    def encode(self, prefix: str = "") -> dict[str, object]:
        """The fields of a JSON document: exact text of `epsilon` or `rho`, and `delta`."""
        size = self.text.removeprefix("rho ")
        return {f"{prefix}{self.measure}": size, f"{prefix}delta": self.written_delta}

    @classmethod
    def decode(cls, fields: dict[str, Any], prefix: str = "") -> Self:
        """Takes what `encode` wrote out of a document's fields. Raises `LocalError` on anything
        else, such as both measures at once."""
        names = [prefix + name for name in ("epsilon", "rho", "delta") if prefix + name in fields]
        given = {name: fields.pop(name) for name in names}
        text = given.get(f"{prefix}epsilon", f"rho {given.get(f'{prefix}rho')}")
        found = cls.read(text, given.get(f"{prefix}delta"))
        if found.encode(prefix) != given:
            raise LocalError("a privacy loss has either epsilon or rho, and delta")
        return found

    def as_json(self) -> dict[str, float | str]:
        """The fields of a result, as numbers to read and to plot; without noise ε is `inf`."""
        return {self.measure: self.size if self.bounded else "inf", "delta": self.written_delta}

    # --- composition ---

    def __add__(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """The loss of both releases together."""
        delta = self.delta + other.delta
        if not (self.bounded and other.bounded):
            return PrivacyLoss(None, delta)
        if self.epsilon is not None and other.epsilon is not None:
            return PrivacyLoss(self.epsilon + other.epsilon, delta)
        return PrivacyLoss(None, delta, self._concentration + other._concentration)

    def __mul__(self, count: int) -> "PrivacyLoss":
        """The loss of so many such releases."""
        if count < 0:
            raise ValueError(f"there cannot be {count} releases")
        return self._scaled(Fraction(count), count * self.delta) if count else NO_LOSS

    __rmul__ = __mul__

    def share(self, part: Fraction) -> "PrivacyLoss":
        """A part of it, from 0 to 1. δ is rounded down to what a double holds, so that parts never
        add up to more than the whole."""
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
        """The loss of `size` units that change together, where this is the loss of one."""
        if size < 1:
            raise ValueError(f"a group has one unit or more, not {size}")
        if self.rho is not None:
            if self.delta and size > 1:
                raise ValueError("the rule for groups holds for ρ without δ")
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
        """The loss of one unit at which `size` units together have this loss, in ε and δ.

        The sum of `of_group` is e^(ε−ε/k)·(1−e^−ε)/(1−e^−(ε/k)), which overflows nowhere if it is
        divided by in this form.
        """
        if self.epsilon is None:
            raise ValueError("the loss of each unit of a group is known for ε only")
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
        """The same loss in ρ, with the same δ."""
        return self if not self.bounded else PrivacyLoss(None, self.delta, self._concentration)

    def at(self, delta: float | Fraction) -> "PrivacyLoss":
        """The loss in (ε, δ) for a given δ. Unbounded where that δ is not enough."""
        whole = delta if isinstance(delta, Fraction) else as_written(delta)
        if not self.bounded or self.delta > whole:
            return UNBOUNDED
        if self.rho is None:
            return PrivacyLoss(self.epsilon, whole)
        if self.rho and self.delta == whole:
            return UNBOUNDED
        epsilon = _epsilon_of(self.rho, whole - self.delta)
        return UNBOUNDED if self.delta and epsilon > READ_UP_TO else PrivacyLoss(epsilon, whole)

    def rounded_up(self) -> "PrivacyLoss":
        """The same, or the next double above it where ρ takes too many digits to be written."""
        if self.rho is None or len(str(self.rho)) <= MAX_TEXT // 2:
            return self
        return PrivacyLoss(None, self.delta, Fraction(math.nextafter(float(self.rho), math.inf)))

    @property
    def as_epsilon(self) -> Fraction | None:
        """Its ε; of ρ, the ε that would have this ρ (ε²/2), to six digits: by it is planned what
        depends on how much is granted. None without noise."""
        if self.rho is None:
            return self.epsilon
        return as_written(float(f"{math.sqrt(2 * self.rho):.6g}"))

    # --- order ---

    def __le__(self, other: "PrivacyLoss") -> bool:
        """Whether every release with this loss is known to have the loss `other` as well. Two
        losses may be incomparable."""
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
"""The loss of an answer that depends on nobody."""
UNBOUNDED = PrivacyLoss()
"""The loss of an answer without noise."""

READ_UP_TO = 32
"""The largest ε that a ρ with a δ is read at. The δ of noise that is near to a law of that ρ, and
is charged once, before anybody knows at which ε, covers every ε up to here."""

_UP = 1 + 2.0**-40
"""Covers rounding errors of doubles, many times over."""


def _epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """The least ε found at which ρ is (ε, δ). Every α gives one that holds: the search decides how
    small it is, not whether it is right."""
    if not rho or delta >= 1:
        return Fraction(0)
    size, needed = float(rho), math.log(delta.denominator) - math.log(delta.numerator)
    if float(delta):  # else it is below all doubles; nearer to 1, logarithms of both ends cancel
        needed = -math.log(delta)

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
