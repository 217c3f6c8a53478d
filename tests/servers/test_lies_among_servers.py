"""A server that lies to another one, whatever it says instead and in whatever message: the honest
one names it or computes on, and nothing comes out but an answer or a run that failed."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.plans.contract import NoisyChoice
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.wire.messages import Message, Role
from tallyroom.simulation.runtimes import Layout
from tallyroom.simulation.runtimes.inprocess import InProcess
from tests.every_statistic import EVERY, put, records
from tests.servers.other_values import COUNTS

PARTIES = 3
CHOSEN = [each for each in EVERY if isinstance(planned(each).plan, NoisyChoice)]
PROGRAMS = ("top-k", "quantile", "first-above", "next-attribute-by-max")
"""One of every kind of choice."""
TOGETHER = {each.name: replace(put(each)[1], delta=0.1) for each in CHOSEN if each.name in PROGRAMS}
TOGETHER |= {
    "joint noise": Question(COUNTS, "additive", Fraction(1), Placement.JOINT),
    "pairs": Question(
        Gini(lower=0.0, upper=1.0, bits=4, pairs_per_party="1", meet="servers"),
        "additive",
        Fraction(1),
        Placement.EACH_SERVER,
    ),
    "checked keys": Question(
        Ecdf(lower=0.0, upper=1.0, thresholds=4),
        "fss?verified=yes",
        Fraction(1),
        Placement.EACH_SERVER,
    ),
    "proofs": Question(COUNTS, "prio3", Fraction(1), Placement.EACH_SERVER),
    "proofs and joint noise": Question(COUNTS, "prio3", Fraction(1), Placement.JOINT),
}

Lie = Callable[[Bytes], Bytes]


def with_end(word: int) -> Lie:
    """The last eight bytes are another word: what is revealed is such."""

    def lie(body: Bytes) -> Bytes:
        end = np.frombuffer(word.to_bytes(8, "little"), dtype=np.uint8)
        return np.concatenate([body[:, :-8], end[None]], axis=1)

    return lie


def one_more(body: Bytes) -> Bytes:
    word = int.from_bytes(body[0, -8:].tobytes(), "little")
    return with_end((word + 1) % 2**64)(body)


def flipped(body: Bytes) -> Bytes:
    body[:, body.shape[1] // 2] ^= 1
    return body


LIES: dict[str, Lie] = {
    "a large word": with_end(2**63),
    "one more": one_more,
    "a flipped bit": flipped,
    "ones": lambda body: np.concatenate([body[:, :4], np.full_like(body[:, 4:], 255)], axis=1),
    "noughts": lambda body: np.concatenate([body[:, :4], np.zeros_like(body[:, 4:])], axis=1),
    "nothing": lambda body: body[:, :0],
    "a step alone": lambda body: body[:, :4],
    "too little": lambda body: body[:, :-1],
    "too much": lambda body: np.concatenate([body, body[:, :1]], axis=1),
    "another step": lambda body: np.concatenate([body[:, :1] + 1, body[:, 1:]], axis=1),
}


class Lying(InProcess):
    """What `liar` says as its message number `at` is another by `lie`. `said` is to whom it said
    something."""

    def __init__(self, plan: Layout, liar: int, at: int, lie: Lie) -> None:
        super().__init__(plan)
        self._lie = liar, at, lie
        self.said: list[Role] = []

    def on_way(self, message: Message) -> Iterable[Message]:
        liar, at, lie = self._lie
        if message.sender_role is Role.SERVER and message.senders[0] == liar:
            if len(self.said) == at:
                message = replace(message, body=np.ascontiguousarray(lie(message.body.copy())))
            self.said.append(message.receiver_role)
        return (message,)


def told(question: Question, liar: int, at: int, lie: Lie) -> tuple[list[Role], str]:
    """To whom the liar spoke, and why there was no answer, if there was none."""
    layout = Layout(records(PARTIES), 2, hosts=1, seed=3)
    with Lying(layout, liar, at, lie) as runtime:
        try:
            opened = runtime.ask(question, lambda _: None)
            query, _ = opened.prove(question)
            planned(query.statistic).decode(opened.total, opened.records)
        except RunFailed as failed:
            return runtime.said, str(failed)
    return runtime.said, ""


@pytest.mark.parametrize("liar", [0, 1])
@pytest.mark.parametrize("name", TOGETHER)
def test_a_lie_ends_in_an_answer_or_names_who_told_it(name: str, liar: int) -> None:
    """All lies in every message of top-k, and some in each of the others. One that is not noticed
    is as good a share as any, or leaves the two waiting for each other."""
    question, lies = TOGETHER[name], list(LIES.values())
    said, reason = told(question, liar, -1, lambda body: body)
    assert not reason
    named = 0
    for at, receiver in enumerate(said):
        some = lies if name == "top-k" else [lies[(3 * at + more) % len(lies)] for more in range(3)]
        for lie in some:
            _, reason = told(question, liar, at, lie)
            if receiver is Role.SERVER and "within the deadline" not in reason:
                assert not reason or f"server-{liar}" in reason
                named += f"server-{liar}:" in reason
    assert named >= said.count(Role.SERVER)


@pytest.mark.parametrize("statistic", CHOSEN, ids=lambda each: each.name)
@pytest.mark.parametrize("word", [2**64 - 1, 2**63, 2**32, 10**6])
def test_what_nobody_can_have_chosen_is_no_answer(statistic: Statistic, word: int) -> None:
    released = np.full(planned(statistic).plan.released, word, dtype=np.uint64)
    with pytest.raises(RunFailed, match="can be chosen"):
        planned(statistic).decode(released, 6)
