"""Opened sessions without curve points, for tests that need thousands of links."""

import numpy as np

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.garbling.links import Links
from tallyroom.protocols.garbling.ot_extension import Receiver, Sender, bits_of
from tallyroom.protocols.garbling.session import Evaluator, Garbler
from tallyroom.protocols.randomness import Randomness


def random_bytes(seed: int, *shape: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def random_bits(seed: int, *shape: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 2, shape, dtype=np.uint8)


def random_deltas(seed: int, links: int) -> Bytes:
    deltas = random_bytes(seed, links, 16)
    deltas[:, 0] |= 1
    return deltas


def chosen_keys(pairs: Bytes, deltas: Bytes) -> Bytes:
    """What an ideal base OT gives the garbler."""
    choices = bits_of(deltas)[:, :, None]
    chosen: Bytes = np.where(choices == 1, pairs[:, :, 1], pairs[:, :, 0])
    return chosen


def dealt(links: Links, seed: int) -> tuple[Evaluator, Garbler]:
    """Both sides as after `accept`, with base OTs from a dealer instead of from points."""
    evaluator = Evaluator(links, Randomness.from_seed(seed, "evaluator"))
    garbler = Garbler(links, Randomness.from_seed(seed, "garbler"))
    pairs = random_bytes(seed, len(links), 128, 2, 16)
    deltas = random_deltas(seed + 1, len(links))
    evaluator._opened = True
    evaluator._receiver = Receiver(pairs)
    garbler._sender = Sender(chosen_keys(pairs, deltas), deltas)
    return evaluator, garbler


def opened(links: Links, seed: int) -> tuple[Evaluator, Garbler]:
    """Both sides, by the protocol."""
    evaluator = Evaluator(links, Randomness.from_seed(seed, "evaluator"))
    garbler = Garbler(links, Randomness.from_seed(seed, "garbler"))
    evaluator.accept(garbler.reply(evaluator.open()))
    return evaluator, garbler
