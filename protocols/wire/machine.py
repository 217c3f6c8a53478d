"""The contract of every role in every protocol: a state machine without input or output.

A machine is a function of its messages and its randomness. Shells deliver messages to it and carry
away what it answers; the same machines run over in-memory links and over gRPC, which is why both
agree bit for bit under one seed, and why a shell that logs what it accepted can replay any protocol
after a crash.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from tallyroom.protocols.wire.messages import Message


@dataclass(frozen=True)
class Spend:
    """Privacy budget that a step uses up. `epsilon` is None when the release is not private.

    `receipt` names what is paid for: paying twice for the same receipt costs once.
    """

    data: str
    receipt: str
    epsilon: Fraction | None
    delta: float = 0.0


@dataclass(frozen=True)
class Continue:
    """The machine waits for more. The shell records `spends` durably, then sends `messages`.

    `deadline` is for how many seconds from now it waits; None leaves the deadline as it is.
    With `more`, it goes on of its own accord once these are sent (`protocols.run.in_parts`).
    `repeated` says that it was told nothing but what it had heard before: not worth keeping again.
    """

    messages: tuple[Message, ...] = ()
    spends: tuple[Spend, ...] = ()
    deadline: float | None = None
    more: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class Done:
    """The role is finished. `output` is what it learnt; None for roles that learn nothing."""

    output: object = None
    messages: tuple[Message, ...] = ()
    spends: tuple[Spend, ...] = ()


@dataclass(frozen=True)
class Rejected:
    """The message was refused; the machine is as it was, but may note who sent it. The run goes on.

    A refused message is not kept: after a crash, what was noted of it is forgotten.
    """

    sender: str
    reason: str


@dataclass(frozen=True)
class Failed:
    """The run cannot finish."""

    reason: str


Step = Continue | Done | Rejected | Failed


class Machine(Protocol):
    """One whose parties speak among themselves before they speak to it says for how many rounds,
    in an attribute `unseen_rounds`."""

    def start(self) -> Step:
        """Called once, first."""

    def receive(self, message: Message) -> Step:
        """Takes one message. `Rejected` changes nothing that is released."""

    def expire(self) -> Step:
        """The deadline of what the machine is waiting for has passed."""


class SpeaksOnce:
    """A party that is done when it has started: nobody answers it, and it waits for nothing."""

    def receive(self, message: Message) -> Step:
        return Rejected(message.sender, f"a party expects no {message.phase.label}")

    def expire(self) -> Step:
        return Done()
