"""Runs are numbered: the nonce of a run is its number, in big-endian order.

The first 44 bits are a time and grow from run to run, the other 20 tell runs of one time apart. A
coordinator goes by its clock, in milliseconds, so that one that lost its store goes on. Under a
seed, runs are named for their keys instead: an answer does not depend on what was asked before.
"""

from tallyroom.protocols.wire.messages import NONCE_BYTES

TELLING_BITS = 20


def number(time: int, telling: int) -> bytes:
    """The nonce of a run of this time, and what tells it from others of the same."""
    low = telling % (1 << TELLING_BITS)
    return (time << TELLING_BITS | low).to_bytes(NONCE_BYTES, "big")


def time_of(nonce: bytes) -> int:
    return int.from_bytes(nonce, "big") >> TELLING_BITS


def milliseconds(seconds: float) -> int:
    """The time of a run that begins then."""
    return int(seconds * 1000)


def last_number(seconds: float) -> bytes:
    """The largest number of that time."""
    return number(milliseconds(seconds), -1)
