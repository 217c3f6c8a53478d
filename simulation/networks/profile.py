"""Conditions of a link, by name or spelt out: `lan`, or `delay=40ms,rate=50mbit,loss=0.1%`."""

import math
import re
from dataclasses import dataclass

from tallyroom.protocols.errors import LocalError

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
MOST_DELAY = 10.0
LEAST_RATE = 1e4


@dataclass(frozen=True)
class Profile:
    """`delay` is one way, in seconds; `rate` is in bytes per second, each way; `loss` is the share
    of packets that are sent again."""

    delay: float = 0.0
    rate: float = math.inf
    loss: float = 0.0

    def seconds(self, size: float) -> float:
        """Time until the last of `size` bytes arrives. A lost packet costs another round trip."""
        return self.delay * (1 + 2 * self.loss) + size / (self.rate * (1 - self.loss))

    def with_other(self, other: "Profile") -> "Profile":
        """A link between two lines: the longer delay, the lower rate, the larger loss."""
        return Profile(
            max(self.delay, other.delay), min(self.rate, other.rate), max(self.loss, other.loss)
        )


PROFILES = {
    "lan": Profile(0.0002, 1e9 / 8),
    "wan": Profile(0.040, 50e6 / 8),
    "mobile": Profile(0.080, 10e6 / 8, 0.005),
}
SUMMARIES = {
    "lan": "0.2 ms each way, 1 Gbit/s",
    "wan": "40 ms each way, 50 Mbit/s",
    "mobile": "80 ms each way, 10 Mbit/s, 0.5 % of packets lost",
}


def profile_of(text: str) -> Profile:
    """Raises `LocalError` if `text` is neither a name nor conditions."""
    if text in PROFILES:
        return PROFILES[text]
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in ("delay", "rate", "loss") or name in found:
            known = ", ".join(PROFILES)
            raise LocalError(
                f"no network {text[:60]!r}; there are {known}, and delay=40ms,rate=50mbit,loss=0.1%"
            )
        found[name] = _quantity(name, value)
    rate = found.get("rate", math.inf)
    return Profile(found.get("delay", 0.0), rate / 8, found.get("loss", 0.0))


def _quantity(name: str, text: str) -> float:
    units = {"delay": _SECONDS, "rate": _BITS, "loss": {"%": 0.01, "": 1.0}}[name]
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([a-z%]*)", text)
    if match is None or match[2] not in units:
        raise LocalError(
            f"{name}={text[:30]}: give a number and {' or '.join(filter(None, units))}"
        )
    value = float(match[1]) * units[match[2]]
    if name == "delay" and value > MOST_DELAY:
        raise LocalError(f"delay={text}: at most {MOST_DELAY:g}s")
    if name == "rate" and value < LEAST_RATE:
        raise LocalError(f"rate={text}: at least {LEAST_RATE / 1e3:g}kbit")
    if name == "loss" and value > 0.5:
        raise LocalError(f"loss={text}: at most 50%")
    return value
