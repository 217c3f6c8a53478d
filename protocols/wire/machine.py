"""The contract of every role in every protocol: a state machine without input or output.

A machine is a function of its messages and its randomness. Shells deliver messages to it and send
its answers. The same machines run over in-memory links and over gRPC, so both agree bit for bit
under one seed, and a shell that logs what it accepted can replay any protocol after a crash.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.wire.messages import Message


@dataclass(frozen=True)
class Spend:
    """The privacy loss of a step. `receipt` names what is paid for: paying twice for the same
    receipt costs once. `in_rho` is the same loss in ρ, where its mechanism knows that from its law;
    None where it follows from `loss`."""

    data: str
    receipt: str
    loss: PrivacyLoss
    in_rho: PrivacyLoss | None = None

    @property
    def concentrated(self) -> PrivacyLoss:
        """The loss in ρ."""
        return self.loss.as_concentrated() if self.in_rho is None else self.in_rho


@dataclass(frozen=True)
class Continue:
    """The machine waits for more. The shell records `spends` durably, then sends `messages`.

    The machine waits for `deadline` seconds from now; None leaves the deadline as it is. With
    `more`, it continues by itself once these messages are sent (`SpeaksInParts`).
    `repeated` means that the message only repeated an earlier one, so it need not be logged again.
    """

    messages: tuple[Message, ...] = ()
    spends: tuple[Spend, ...] = ()
    deadline: float | None = None
    more: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class Done:
    """The role is finished. `output` is what it learnt, or None for roles that learn nothing."""

    output: object = None
    messages: tuple[Message, ...] = ()
    spends: tuple[Spend, ...] = ()


@dataclass(frozen=True)
class Rejected:
    """The message was refused and the run goes on. The machine's state is unchanged, except that it
    may note who sent the message.

    Refused messages are not logged, so after a crash such notes are forgotten.
    """

    sender: str
    reason: str


@dataclass(frozen=True)
class Failed:
    """The run cannot finish."""

    reason: str


Step = Continue | Done | Rejected | Failed


class Machine(Protocol):
    """One role in one run.

    If parties talk to each other before they talk to this machine, it states for how many rounds in
    an attribute `unseen_rounds`.

    If what it says to a question follows from no question before it, it states so in an attribute
    `forgets_questions`: then a journal keeps the last question alone.
    """

    def start(self) -> Step:
        """Called once, first."""

    def receive(self, message: Message) -> Step:
        """Takes one message. After `Rejected`, whatever is released later is unchanged."""

    def expire(self) -> Step:
        """The deadline has passed for what the machine is waiting for."""


@runtime_checkable
class SpeaksInParts(Protocol):
    """A machine that says `more`: it goes on once what it said is sent."""

    def proceed(self) -> Step: ...


def proceed(machine: Machine) -> Step:
    """The next part of what a machine says."""
    return machine.proceed() if isinstance(machine, SpeaksInParts) else Continue()


class SpeaksOnce:
    """Base of a party machine that is done once it has started: it waits for no answer."""

    def receive(self, message: Message) -> Step:
        return Rejected(message.sender, f"a party expects no {message.phase.label}")

    def expire(self) -> Step:
        return Done()
