"""How sure two servers are that what they compute together is what was asked.

    semi-honest   each garbles once; server 0 is trusted to garble what it should
    covert        what takes coins alone is garbled in λ copies, of which all but one are opened,
                  and a lie is proved to others (`covert`); what takes data is as under `malicious`
    malicious     all is computed both ways, each server garbling once, and compared before
                  anything is opened or released (`computation.BothWays`)

Which is the default was measured (`tally bench hostile`): for 1,024 noises `covert` costs 2.2 times
the CPU and 1.3 times the bytes of `semi-honest`, and `malicious` 2.1 and 2.0 times. At about the
same CPU the latter prevents what the former punishes: under `covert` at λ = 2 a server that leaves
out noise reads the exact answer every other time, before anybody accuses it, where dual execution
(Mohassel and Franklin, PKC 2006; Huang, Katz and Evans, IEEE S&P 2012) releases nothing, and tells
one predicate. So `malicious` is the default, and `covert` is for those whom a certificate serves
better: where servers have a name to lose. Authenticated garbling (Wang, Ranellucci and Katz, CCS
2017), which leaks nothing, would take 2κ + 8ρ bits an AND (Dittmer, Ishai, Lu and Ostrovsky, CRYPTO
2022), more than twice what a half gate does, and a preprocessing of its own: it is not here.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tallyroom.protocols.errors import LocalError

MOST_COPIES: Final = 8
_TEXT = re.compile(r"covert\?circuits=([1-9][0-9]?)")


class Level(StrEnum):
    SEMI_HONEST = "semi-honest"
    COVERT = "covert"
    MALICIOUS = "malicious"


@dataclass(frozen=True)
class Security:
    """`copies` is λ, of `covert`."""

    level: Level
    copies: int = 2

    @property
    def statement(self) -> str:
        """Whom one has to trust with joint noise."""
        match self.level:
            case Level.COVERT:
                return (
                    f"a server that garbles other noise, or none, is not noticed in one of "
                    f"{self.copies} cases, and else proved to have lied"
                )
            case Level.SEMI_HONEST:
                return "server-0 can leave the noise out, and nobody would notice"
            case Level.MALICIOUS:
                return (
                    "a server that garbles other noise ends the run, unless it guesses the noise "
                    "that was drawn, which it then knows"
                )

    def __str__(self) -> str:
        return str(self.level) if self.copies == 2 else f"{self.level}?circuits={self.copies}"


MALICIOUS: Final = Security(Level.MALICIOUS)


def parse_security(text: str) -> Security:
    """Raises `LocalError` on anything but one of the levels, in its only form."""
    if text in set(Level):
        return Security(Level(text))
    found = _TEXT.fullmatch(text)
    if found is None or found[1] == "2":
        raise LocalError(
            f"security is {', '.join(Level)}, or covert?circuits=N for N circuits instead of 2, "
            f"not {text!r}"
        )
    if not 2 <= (copies := int(found[1])) <= MOST_COPIES:
        raise LocalError(
            f"covert security opens all but one of 2 to {MOST_COPIES} circuits, not of {copies}"
        )
    return Security(Level.COVERT, copies)
