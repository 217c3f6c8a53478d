"""The meter against what a relay saw on the sockets.

Every station sits behind a relay that counts bytes and reads the lengths of TLS records, which are
in the clear. One federation is asked twice, with vectors of d and of 2d elements, over connections
that stay open: handshakes, enrolment and all that does not grow with the vectors is in the first
figure, and cancels in the difference. TLS overhead is known to the byte from the record headers;
what is left of the difference is payload, and HTTP/2's 9 bytes for every 16,384. Upload connections
of parties carry nothing else, so there payload must agree with the meter within 0.1 %.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Role
from tallyroom.protocols.wire.meter import Bill
from tallyroom.simulation.runtimes import Layout, Progress
from tallyroom.simulation.runtimes.processes import Processes
from tests.e2e.relay import Relay
from tests.samples import holdings_of

PARTIES, SERVERS = 8, 2
BINS = 131_072
FRAME, FRAME_HEADER = 16_384, 9


def quiet(_: Progress) -> None:
    pass


class Relayed(Processes):
    """Processes that reach each other only through relays."""

    def __init__(self, plan: Layout) -> None:
        super().__init__(plan)
        self.relays: dict[str, Relay] = {}

    def address_of(self, name: str, port: int) -> str:
        self.relays[name] = Relay(port)
        return f"127.0.0.1:{self.relays[name].port}"

    def stop(self) -> None:
        super().stop()
        for relay in self.relays.values():
            relay.close()

    def uploads(self) -> np.typing.NDArray[np.int64]:
        """Bytes, and those within TLS, that parties sent to servers."""
        seen = np.zeros(2, dtype=np.int64)
        for name, relay in self.relays.items():
            if name.startswith("server"):
                # The coordinator listens to its servers before there are parties: it is the first.
                for upward, _ in relay.connections[1:]:
                    seen += (upward.size, upward.plaintext)
        return seen

    def everything(self) -> int:
        return sum(
            flow.size
            for relay in self.relays.values()
            for both in relay.connections
            for flow in both
        )


def ask(runtime: Relayed, bins: int) -> Bill:
    statistic = Histogram(lower=0.0, upper=1.0, bins=bins)
    question = Question(statistic, "additive", None, Placement.EACH_SERVER)
    opened = runtime.ask(question, quiet)
    assert int(opened.total.sum()) == PARTIES
    return opened.bill


def uploaded(bill: Bill) -> int:
    return sum(a.wire_bytes for link, a in bill.accounts.items() if link.sender is Role.PARTY)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Relayed]:
    plan = Layout(holdings_of(np.linspace(0, 1, PARTIES), PARTIES), SERVERS, PARTIES, seed=1)
    with Relayed(plan) as started:
        yield started


def test_the_meter_agrees_with_the_sockets(runtime: Relayed) -> None:
    assert runtime.everything() > 0
    small = ask(runtime, BINS)
    between = runtime.uploads()
    large = ask(runtime, 2 * BINS)
    raw, plaintext = runtime.uploads() - between
    metered = uploaded(large)
    first = uploaded(small)
    assert metered - first == PARTIES * 8 * BINS
    assert metered == large.by_link()["party->server"].bytes  # one party a host: charged as sent

    # The second run alone: connections are open, so its uploads are payload and framing.
    framing = FRAME_HEADER * plaintext / (FRAME + FRAME_HEADER)
    assert (plaintext - framing) / metered == pytest.approx(1, abs=1e-3)
    sealing = raw - plaintext
    assert 0 < sealing < 0.02 * metered

    # All links and directions, with handshakes: more than was metered, and not by much.
    overhead = runtime.everything() - small.wire_bytes - large.wire_bytes
    # What the coordinator tells the analyst is not on the bill, nor does it pass the relay.
    assert 0 < overhead < 0.03 * (small.wire_bytes + large.wire_bytes)


def test_a_vector_that_no_message_can_carry_is_refused_as_such(runtime: Relayed) -> None:
    """Bodies are bounded: a row wider than a message must be said to be too long at once."""
    statistic = Histogram(lower=0.0, upper=1.0, bins=1 << 20)
    question = Question(statistic, "additive", None, Placement.EACH_SERVER, deadline=5.0)
    with pytest.raises(LocalError, match="too long"):
        runtime.ask(question, quiet)
