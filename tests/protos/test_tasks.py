"""Work beside what is waited for: it is kept, it ends, and no failure is lost."""

import asyncio
import logging

import pytest

from tallyroom.protos.tasks import Tasks


async def fails() -> None:
    await asyncio.sleep(0)
    raise ValueError("a failure")


def test_a_failure_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        task = Tasks().spawn(fails())
        await asyncio.wait([task])

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    (record,) = caplog.records
    assert "a failure" in record.getMessage()


def test_work_goes_on_when_its_caller_hangs_up(caplog: pytest.LogCaptureFixture) -> None:
    """And its failure, which the caller would have seen, is logged then."""

    async def scenario() -> None:
        tasks, begun, go_on, done = Tasks(), asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            await go_on.wait()
            done.set()
            raise ValueError("a failure")

        caller = asyncio.create_task(tasks.finish(work()))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        go_on.set()
        await done.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert ["a failure" in record.getMessage() for record in caplog.records] == [True]


def test_a_caller_that_waits_sees_the_result_or_the_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        assert await Tasks().finish(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(ValueError, match="a failure"):
            await Tasks().finish(fails())

    asyncio.run(scenario())
    assert caplog.records == []


def test_closing_cancels_what_is_not_done() -> None:
    async def scenario() -> None:
        tasks = Tasks()
        task = tasks.spawn(asyncio.sleep(3600))
        await tasks.close()
        assert task.cancelled()

    asyncio.run(scenario())
