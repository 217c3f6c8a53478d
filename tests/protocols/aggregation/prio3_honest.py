"""One honest run of prio3, message by message: what server 0 and the collector hear and say."""

from dataclasses import replace

import numpy as np

from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.machine import Continue, Machine, Step
from tallyroom.protocols.wire.messages import Message
from tests.protocols.aggregation.prio3_runs import PARTIES, one_each, one_hots
from tests.samples import bitmap

BINS = 4
VECTORS = one_hots(BINS)
EVERYONE = bitmap(PARTIES, list(range(PARTIES)))


class Recorder:
    """A machine that remembers what it was told."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.heard: list[Message] = []
        self.answers: list[Step] = []

    def start(self) -> Step:
        return self.machine.start()

    def receive(self, message: Message) -> Step:
        self.heard.append(message)
        self.answers.append(self.machine.receive(message))
        return self.answers[-1]

    def expire(self) -> Step:
        return self.machine.expire()


def recorded(query: Query) -> tuple[Recorder, Recorder]:
    """What server 0 and the collector hear in an honest run."""
    exchange = Exchange(Prio3(), query)
    server = exchange.servers[0] = Recorder(exchange.servers[0])
    collector = Recorder(exchange.coordinator)
    exchange.coordinator = collector
    exchange.join(np.arange(query.parties, dtype=np.uint32), VECTORS)
    exchange.run()
    assert exchange.total is not None
    return server, collector


QUERY = one_each(BINS)
SERVER, COLLECTOR = recorded(QUERY)
SUBMIT, KEY, VERDICT, RELEASE = SERVER.heard
ROSTERS, VERIFIERS, ACCEPTED, SHARES = (COLLECTOR.heard[i : i + 2] for i in range(0, 8, 2))


def changed(message: Message, body: bytes) -> Message:
    return replace(message, body=np.frombuffer(body, dtype=np.uint8).reshape(1, -1))


def bytes_of(message: Message) -> bytes:
    return bytes(message.body[0])


def flipped(message: Message, place: int, bit: int = 1) -> Message:
    body = bytearray(bytes_of(message))
    body[place] ^= bit
    return changed(message, bytes(body))


def sent(step: Step) -> list[bytes]:
    assert isinstance(step, Continue)
    return [message.encode() for message in step.messages]
