"""Progress on the wire: what a lying server or coordinator says of it is bounded, and dropped."""

import numpy as np
import pytest

from tallyroom.protocols.run.party_states import MOST_SHOWN, PartyProgress, party_states
from tallyroom.protocols.wire.meter import Tally
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.progress import (
    links_from_wire,
    links_to_wire,
    states_from_wire,
    submitted_from_wire,
)
from tallyroom.simulation import Federation
from tallyroom.simulation.runtimes import Progress
from tallyroom.simulation.watch import runs_of


def test_links_come_back_and_others_do_not() -> None:
    links = {"party->server": Tally(7, 2), "server->coordinator": Tally(2**62, 1)}
    assert links_from_wire(links_to_wire(links)) == links
    lies = [
        pb.LinkTally(link="<script>", bytes=1),
        pb.LinkTally(link="party->server", bytes=1),
        pb.LinkTally(link="party->server", bytes=2),
        pb.LinkTally(link="server->party", bytes=2**64 - 1),
    ]
    assert links_from_wire(lies * 100) == {"party->server": Tally(1, 0)}


@pytest.mark.parametrize("states", [b"\0\1", b"\0\1\2\4", b"\0" * 5, b"\xff" * 4])
def test_states_that_cannot_be_are_none(states: bytes) -> None:
    assert len(states_from_wire(states, 4)) == 0
    assert states_from_wire(b"\0\1\2\3", 4).tolist() == [0, 1, 2, 3]
    assert len(states_from_wire(bytes(MOST_SHOWN + 1), MOST_SHOWN + 1)) == 0


def test_a_party_has_submitted_when_every_server_says_so() -> None:
    both = [pb.RunStatus(submitted=b"\xf0" + b"\xff" * 10**6), pb.RunStatus(submitted=b"\xc0")]
    assert submitted_from_wire(both, 6).tolist() == [True, True] + 4 * [False]
    assert submitted_from_wire([*both, pb.RunStatus()], 6).sum() == 2
    assert not submitted_from_wire([pb.RunStatus()], 6).any()


def test_standing_by_enumeration() -> None:
    for here in (False, True):
        for sent in (False, True):
            for refuses in (False, True):
                for closed in (False, True):
                    flags = [np.array([flag]) for flag in (here, sent, refuses)]
                    waits = PartyProgress.WAITING if here and not closed else PartyProgress.GONE
                    wanted = PartyProgress.SUBMITTED if sent else waits
                    wanted = PartyProgress.REFUSED if refuses else wanted
                    assert party_states(flags[0], flags[1], flags[2], closed).tolist() == [wanted]
    many = np.zeros(MOST_SHOWN + 1, dtype=bool)
    assert len(party_states(many, many, many, False)) == 0


def test_a_run_reports_its_links_and_parties() -> None:
    seen: list[Progress] = []
    with Federation(10, dropout=0.2, seed=5) as federation:
        bill = federation.run("histogram", report=seen.append).bill
    last = seen[-1]
    assert (last.phase, last.submissions) == ("release", 8)
    assert np.bincount(last.states, minlength=4).tolist() == [0, 8, 0, 2]
    assert last.links["party->server"] == bill.by_link()["party->server"]
    assert sum(size for _, size in runs_of(last.states)) == 10
