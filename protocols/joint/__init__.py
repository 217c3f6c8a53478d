"""What two servers compute together, in garbled circuits on what they share.

How sure either server is that the other did what it must is a level that the query says (`levels`).

Most questions need none of it, so its modules are loaded when a name is first used.
"""

from typing import TYPE_CHECKING

from tallyroom.protocols.registry import lazily

if TYPE_CHECKING:
    from tallyroom.protocols.joint.above_threshold import FirstAbove
    from tallyroom.protocols.joint.base_transfers import BaseTransfers
    from tallyroom.protocols.joint.choice import Choice
    from tallyroom.protocols.joint.noise_circuit import (
        DEFAULT_DELTA,
        JointGeometric,
        JointLaplace,
        JointNoise,
        in_circuit,
    )

__all__ = [
    "DEFAULT_DELTA",
    "BaseTransfers",
    "Choice",
    "FirstAbove",
    "JointGeometric",
    "JointLaplace",
    "JointNoise",
    "in_circuit",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "DEFAULT_DELTA": "noise_circuit",
            "BaseTransfers": "base_transfers",
            "Choice": "choice",
            "FirstAbove": "above_threshold",
            "JointGeometric": "noise_circuit",
            "JointLaplace": "noise_circuit",
            "JointNoise": "noise_circuit",
            "in_circuit": "noise_circuit",
        },
    )
