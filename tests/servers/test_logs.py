"""What a party submits shows in no log line, not even at debug."""

import asyncio
import base64
import json
import logging
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.enrolment import enrol
from tallyroom.parties.process import PartyConfig, PartyHost
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import statistic_named
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.logs import JsonLines
from tallyroom.simulation.analyst import Analyst
from tallyroom.simulation.runtimes.contract import Opened
from tests.servers.stations import create, running

SCORES = np.array([0.8271828459, 0.1415926535])


def test_a_submission_in_the_clear_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The curator's parties send their very vectors, so that the bytes to look for are known."""
    mean = statistic_named("sum").from_parameters({"value": "score", "lower": 0.0, "upper": 1.0})
    question = Question(mean, "curator", Fraction(1), Placement.CURATOR, deadline=10.0)
    ids = np.zeros(1, dtype=np.uint32)
    holdings = Holdings(ids, np.zeros(1, dtype=np.intp), {"score": SCORES})

    async def scenario() -> Opened:
        async with running(create(tmp_path / "room", parties=1)) as room:
            credentials = await enrol(room.tokens[0], room.enrolment)
            host = PartyHost(PartyConfig(credentials, room.coordinator, holdings))
            work = asyncio.create_task(host.run())
            analyst = Analyst(
                room.coordinator, read_identity(room.folder / "analyst", Role.ANALYST)
            )
            try:
                return await asyncio.to_thread(analyst.ask, question, lambda _: None)
            finally:
                analyst.close()
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    with caplog.at_level(logging.DEBUG):
        opened = asyncio.run(scenario())
    assert opened.records == 2
    vector = planned(mean).plan.encode(holdings)
    raw = vector.astype("<u8").tobytes()
    forms = [
        *(repr(score) for score in SCORES.tolist()),
        *(str(value) for value in vector.ravel().tolist()),
        *(str(value) for value in opened.total.tolist()),
        raw.hex(),
        base64.b64encode(raw).decode(),
        repr(raw)[2:-1],
    ]
    formatter = JsonLines("here")
    lines = [formatter.format(record) for record in caplog.records]
    assert lines
    for line in lines:
        assert json.loads(line)["station"] == "here"
        for form in forms:
            assert form not in line
