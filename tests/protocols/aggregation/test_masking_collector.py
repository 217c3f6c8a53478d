"""The coordinator of a masked sum: what rosters it takes."""

import numpy as np
import pytest

from protocols.aggregation.collector import Collector
from protocols.aggregation.masking_collector import MaskingCollector
from protocols.aggregation.masking_server import (
    ENDING,
    Ending,
)
from protocols.machine import Continue, Failed, Rejected
from protocols.messages import Message, Phase, Role
from tests.protocols.aggregation.halted import COUNT, EVERYONE
from tests.protocols.aggregation.test_masking import FULL, a_masked_query
from tests.samples import a_message, bitmap


def roster(body: bytes) -> Message:
    return a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR, body=body)


def a_collector() -> Collector:
    query = a_masked_query(COUNT)
    collector = MaskingCollector(FULL.plan(query), query, np.ones(COUNT, dtype=np.int64))
    collector.start()
    return collector


@pytest.mark.parametrize(
    "body",
    [
        b"",
        EVERYONE,
        EVERYONE + ENDING.pack(3, Phase.UNMASK, 4),
        EVERYONE + ENDING.pack(Ending.OPENED, Phase.QUERY, 4),
        b"\x01" + ENDING.pack(Ending.OPENED, Phase.UNMASK, 4),
        b"\x01" + ENDING.pack(Ending.TOO_FEW, Phase.UNMASK, 4),
        EVERYONE + b"\0" + ENDING.pack(Ending.OPENED, Phase.UNMASK, 4),
    ],
)
def test_bad_rosters_are_refused_and_a_good_one_is_still_taken(body: bytes) -> None:
    collector = a_collector()
    assert isinstance(collector.receive(roster(body)), Rejected)
    good = roster(EVERYONE + ENDING.pack(Ending.OPENED, Phase.UNMASK, 4))
    step = collector.receive(good)
    assert isinstance(step, Continue)
    assert [message.phase for message in step.messages] == [Phase.RELEASE]


def test_a_run_that_failed_is_over_for_the_collector() -> None:
    collector = a_collector()
    ending = ENDING.pack(Ending.TOO_FEW, Phase.CHECK, 2)
    step = collector.receive(roster(bitmap(COUNT, [0, 2]) + ending))
    assert step == Failed(
        "only 2 of 4 parties confirmed who submitted, which leaves 2 of 4 holders of a secret "
        "where 3 are needed; missing: party-1, party-3"
    )
    assert isinstance(collector.receive(roster(EVERYONE + ending)), Rejected)
