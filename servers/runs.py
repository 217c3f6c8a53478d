"""The life of a run at the coordinator: it begins, is carried to its end, stored and forgotten.

An unfinished run is in the journal. When it is over, its answer or the reason why there is none is
in `answers` before anybody is told, and its journal is removed. Servers are told to forget it; a
server that is away is told when it comes back, before anything else.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from google.protobuf.message import DecodeError

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Records, Total
from tallyroom.protocols.errors import NotWritten, RunFailed, TallyError
from tallyroom.protocols.query import Query, decode_query
from tallyroom.protocols.run.machines import stages
from tallyroom.protocols.run.participant import Clock, next_time
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Done, Failed, Spend
from tallyroom.protocols.wire.messages import Role
from tallyroom.protocols.wire.meter import Meter
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import accounts_to_wire, longest_wait
from tallyroom.protos.evidence import asked_to_wire, shares_to_wire
from tallyroom.protos.tasks import Tasks
from tallyroom.servers.allowances import Asker
from tallyroom.servers.coordinator import Coordinator
from tallyroom.servers.dispatch import Dispatch
from tallyroom.servers.message_service import RETRY_SECONDS, MessageService
from tallyroom.servers.run import LiveRuns, Run, analyst_of, beginning, begun
from tallyroom.servers.server_link import GRACE_SECONDS, ServerLink
from tallyroom.storage.answers import Answers
from tallyroom.storage.journal import Kind, Record

log = logging.getLogger(__name__)

ANALYST = Asker()
MOST_CANCELLED = 1000
CANCELLED = "it was cancelled, and nothing was released"

Reports = Callable[[bytes], list[pb.AccountList]]
"""Returns the accounts that hosts reported for a run."""


class Runs:
    def __init__(
        self,
        coordinator: Coordinator,
        post: MessageService,
        dispatch: Dispatch,
        live: LiveRuns,
        servers: list[ServerLink],
        answers: Answers,
        reports: Reports,
        durable: bool,
        clock: Clock | None = None,
    ) -> None:
        """Runs are numbered by `clock`; without one they are named after their keys."""
        self.live = live
        self._clock = clock
        self._coordinator = coordinator
        self._post = post
        self._dispatch = dispatch
        self._servers = servers
        self._answers = answers
        self._reports = reports
        self._durable = durable
        self._cancelled: OrderedDict[bytes, None] = OrderedDict()
        self._writing = asyncio.Lock()
        self._background = Tasks()
        self.ended: Callable[[str], None] = lambda _: None
        """Hears how each run ended: answered, failed or cancelled."""

    async def close(self) -> None:
        await self._background.close()

    def kept(self, name: bytes) -> pb.Kept | None:
        """Returns the stored record of a finished question."""
        data = self._answers.read(name)
        if data is None:
            return None
        try:
            kept = pb.Kept.FromString(data)
        except DecodeError:
            kept = pb.Kept()
        if not kept.events:
            log.error("the answer %s cannot be read", name.hex())
            return None
        return kept

    # --- beginning ---

    async def begin(self, question: Question, asker: Asker = ANALYST) -> Run:
        """Begins a run, or finds one that already answers the question. Raises `LedgerRefusal` if
        the asker's cap has no room for it."""
        question = self._coordinator.keyed(question)
        name = self._coordinator.named(question.key)
        if name in self._cancelled:
            raise RunFailed(CANCELLED)
        while True:
            if (asked := self.live.asked(name)) is not None:
                return asked
            query = self._coordinator.query(question, self._next_time())
            other = self.live.of(self._coordinator.name_of(query))
            if other is None:
                break
            await asyncio.wait([other.over])  # a stored tree answers one question after another
        called = self._coordinator.name_of(query)
        run = Run(name, question.encode(), query, self._coordinator.data, called, asker.name)
        released, events = self._again(run)
        spend = _spend(query, released)
        # Nothing is awaited from here until the run is live, so that no other question of this
        # analyst can be let in beside it.
        awaited = (_spend(r.query, r.run) for r in self.live.all() if r.analyst == asker.name)
        asker.check(self._coordinator.ledger, spend, query.foreseen(spend), awaited)
        if events:
            self._coordinator.ledger.record([spend], analyst=asker.name)
            await self._keep(name, run.kept(events))  # it can be fetched again under its own key
            run.over.set_result(events)
            return run
        self.live.add(run)
        log.info("run %s: %s is asked", run.run.hex(), question.statistic.name)
        return await self._background.finish(self._begin(run))

    def _next_time(self) -> int | None:
        return next_time(self._coordinator.last_time, self._clock()) if self._clock else None

    async def _begin(self, run: Run) -> Run:
        """Writes a run to the journal before anybody hears of it. A question to a stored tree is
        not written: it spends nothing and can be asked again."""
        try:
            async with self._post.locks.of(run.run):
                if run.name in self._cancelled:
                    raise RunFailed(CANCELLED)
                if self._coordinator.name_of(run.query) != run.run:
                    raise RunFailed("the parties' data changed in the meantime: ask again")
                self._coordinator.asked_by(run.run, run.analyst)
                outcome = self._coordinator.ask(run.query)
                if (journal := self._post.journal) and not self._coordinator.releases.holds(
                    run.run
                ):
                    record = beginning(run.kept(), self._coordinator.records)
                    journal.append(run.run, Kind.QUERY, record)
                    await journal.commit()
        except BaseException as error:
            self.live.remove(run)
            if isinstance(error, OSError):
                self._coordinator.withdraw(run.run)
                error = RunFailed(f"the coordinator cannot store a run: {error.strerror}")
            # Others may be waiting: for the same question, to cancel it, or to ask its tree next.
            run.over.set_result([pb.Event(failure=pb.Failure(reason=str(error)))])
            raise error from None
        self._conduct(run, [outcome])
        return run

    def _again(self, run: Run) -> tuple[bytes, Sequence[pb.Event]]:
        """Returns the stored answer of an earlier question for the same release, if there is one,
        after the name of the run that releases it."""
        earlier = self._coordinator.releases.released(run.query, run.data)
        if earlier is None:
            return run.run, ()
        kept = self.kept(earlier)
        if kept is None:
            self._coordinator.releases.disown(run.query, run.data)
            return run.run, ()
        answer = kept.events[-1].answer
        answer.question, answer.reused = run.question, True
        answer.submit_seconds = answer.release_seconds = answer.waiting_seconds = 0.0
        del answer.stations[:]
        return kept.run, kept.events

    def resume(self) -> None:
        """Resumes the runs of the journal where they were left, and notes those that are over."""
        for name in self._answers.names():
            if (kept := self.kept(name)) is not None:
                self._coordinator.remember_time(kept.run)
                with contextlib.suppress(
                    TallyError
                ):  # an older version wrote questions differently
                    self._remember(name, kept, decode_query(kept.run, kept.query, "store"))
        if (journal := self._post.journal) is None:
            return
        for run, records in journal.runs():
            try:
                taken, counts = self._begun(run, records)
            except (TallyError, DecodeError, LookupError) as error:
                log.error("run %s cannot be resumed: %s", run.hex(), error)
                journal.drop(run)  # servers are told to forget it
                continue
            if taken.name in self._answers:
                journal.drop(run)
                continue
            self.live.add(taken)
            self._coordinator.asked_by(taken.run, taken.analyst)
            outcomes = [self._coordinator.start(taken.query, counts)]
            outcomes += self._post.replay(run, records[1:])
            self._conduct(taken, outcomes)

    def _begun(self, run: bytes, records: list[Record]) -> tuple[Run, Records]:
        """Raises `LookupError` if the run was cut off before it asked anybody."""
        if not records or records[0][0] is not Kind.QUERY:
            raise LookupError("it was cut off before it began")
        kept, counts = begun(records[0][1])
        query = decode_query(run, kept.query, "journal")
        name = self._coordinator.named(Question.decode(kept.question).key)
        return Run(name, kept.question, query, kept.data, run, analyst_of(kept)), counts

    def _conduct(self, run: Run, outcomes: list[Reply]) -> None:
        self._background.spawn(self._carry_all(run, outcomes))
        self._background.spawn(self._expire(run))
        self._background.spawn(self._finish(run))

    async def _carry_all(self, run: Run, outcomes: list[Reply]) -> None:
        finished = next((outcome.finished for outcome in outcomes if outcome.finished), None)
        if finished is not None:  # the messages that led to the end need not be replayed
            run.end(finished)
            return
        for outcome in outcomes:
            await self._dispatch.carry(outcome)

    # --- ending ---

    async def _expire(self, run: Run) -> None:
        """Ends a run whose time is up, whether or not anybody waits for it.

        A run that was told to release stays open if its servers can come back: it is paid for.
        """
        seconds = stages(run.query) * run.query.deadline + GRACE_SECONDS
        while not run.ended.done():
            await asyncio.wait([run.ended], timeout=seconds)
            seconds = GRACE_SECONDS
            if run.ended.done():
                return
            if self._durable and self._coordinator.is_releasing(run.run):
                run.stalled = f"{self._late(run.run)}; the answer is kept once it arrives"
                continue
            await self._dispatch.lose_those_away(run.run)
            with contextlib.suppress(OSError, NotWritten):  # tried again at the next check
                await self._post.expire(run.run)

    def _late(self, run: bytes) -> str:
        """Who keeps an answer that is paid for from arriving."""
        if reason := self._coordinator.unpaid(run):
            return f"the coordinator has not written what it costs: {reason}"
        awaited = self._coordinator.awaited_servers(run)
        names = ", ".join(Role.SERVER.named(server) for server in awaited)
        return f"{names} did not release in time"

    async def _finish(self, run: Run) -> None:
        finished = await run.ended
        match finished:
            case Done():
                answer = await self._answer(run, finished)
                events = [*self._shares(finished), pb.Event(answer=answer)]
            case Failed(reason):
                reason = "; ".join(filter(None, (reason, run.hindered)))
                events = [pb.Event(failure=pb.Failure(reason=reason))]
        self._tell(run, finished)
        kept = run.kept(events)
        while not await self._keep(run.name, kept):
            if not run.over.done():
                run.over.set_result(events)
            await asyncio.sleep(RETRY_SECONDS)
        if not run.asks_again:
            self._remember(run.name, kept, run.query)
        self.live.remove(run)
        if not run.over.done():
            run.over.set_result(events)
        await self._forget(run.run)

    def _tell(self, run: Run, finished: Done | Failed) -> None:
        """One line of a run, with its reason: nothing of a record."""
        match finished:
            case Done():
                self.ended("answered")
                log.info("run %s was answered", run.run.hex())
            case Failed(reason):
                self.ended("cancelled" if reason == CANCELLED else "failed")
                log.warning("run %s has no answer: %s", run.run.hex(), reason)

    async def _keep(self, name: bytes, kept: pb.Kept) -> bool:
        async with self._writing:
            try:
                await asyncio.to_thread(self._answers.keep, name, kept.SerializeToString())
            except OSError as error:
                log.error("cannot store an answer: %s; trying again", error)
                return False
        return True

    def _remember(self, name: bytes, kept: pb.Kept, query: Query) -> None:
        if not kept.events[-1].HasField("answer"):
            return
        for event in kept.events:
            if event.HasField("share") and event.share.server < len(self._servers):
                signed = pb.SignedShare(
                    receipt=event.share.receipt, certificate=event.share.certificate
                )
                signer = self._servers[event.share.server]
                signer.last_signed = pb.Subscription(receipt=signed, run=kept.run)
        bits = np.unpackbits(np.frombuffer(kept.events[-1].answer.contributors, dtype=np.uint8))
        members = np.flatnonzero(bits[: self._coordinator.parties]).astype(np.uint32)
        self._coordinator.releases.remember(name, query, kept.data, members)

    async def _answer(self, run: Run, done: Done) -> pb.Answer:
        total = done.output
        if not isinstance(total, Total):
            raise TypeError(f"a collector must end with a Total, not {type(total).__name__}")
        calls = (server.accounts(run.run) for server in self._servers)
        stations, reports = list(await asyncio.gather(*calls)), self._reports(run.run)
        # Stations hear nothing while parties wait for each other: their own waits come after.
        waited = max(longest_wait(stations), self._post.waits.waited(run.run))
        waited += longest_wait(reports)
        stations += reports
        meter = self._coordinator.meters.pop(run.run, Meter())
        stations.append(accounts_to_wire(meter))
        members = np.zeros(self._coordinator.parties, dtype=bool)
        members[total.contributors] = True
        return pb.Answer(
            records=total.records,
            total=total.vector.astype("<u8").tobytes(),
            contributors=np.packbits(members).tobytes(),
            stations=stations,
            parties=self._coordinator.parties,
            submit_seconds=(run.released or run.finished) - run.began,
            release_seconds=run.finished - (run.released or run.finished),
            waiting_seconds=waited,
            caught=[pb.Caught(party=party, reason=reason) for party, reason in total.caught],
            refused=total.refused,
            lost_pairs=total.lost_pairs,
            refusals=[pb.PartyRefusal(party=p, reason=reason) for p, reason in total.refusals],
            refusing=total.refusing,
            question=run.question,
            **asked_to_wire(total, self._coordinator.parties),
        )

    def _shares(self, done: Done) -> list[pb.Event]:
        """The signed shares of the answer, for the analyst to check."""
        total = done.output
        if not isinstance(total, Total):
            return []
        return list(shares_to_wire(total))

    async def cancel(self, name: bytes) -> pb.Cancelled:
        """Ends a run if nothing of it has been released."""
        run = self.live.asked(name)
        if run is None and name in self._answers:
            return pb.Cancelled(words="it was over already")
        if run is None:
            self._never_begin(name)
            return pb.Cancelled(cancelled=True, words="it had not begun")
        async with self._post.locks.of(run.run):  # no roster can be sent in between
            if self._coordinator.is_releasing(run.run):
                words = "servers are already releasing: ε is spent, and the answer is kept"
                return pb.Cancelled(words=words)
            if self._coordinator.is_open(run.run):
                self._coordinator.abandon(run.run)
                run.end(Failed(CANCELLED))
            elif not run.ended.done():  # it is about to begin
                self._never_begin(name)
        over = await asyncio.shield(run.over)
        if over[-1].failure.reason == CANCELLED:
            return pb.Cancelled(cancelled=True, words=CANCELLED)
        return pb.Cancelled(words="it was over already")

    def _never_begin(self, name: bytes) -> None:
        self._cancelled[name] = None
        while len(self._cancelled) > MOST_CANCELLED:
            self._cancelled.popitem(last=False)

    # --- forgetting ---

    async def _forget(self, run: bytes) -> None:
        """Forgets a run everywhere, unless servers hold its keys for further questions or are
        answering one just now."""
        self._reports(run)
        self._post.mailboxes.discard(run)
        outdated = self._coordinator.releases.outdated
        if self._coordinator.releases.holds(run):
            self._post.unjournal(run)
        elif run not in outdated:
            outdated.append(run)
        while unused := [each for each in outdated if self.live.of(each) is None]:
            outdated.remove(unused[0])
            await self._post.let_go(unused[0])
            await self._dispatch.forget(unused[0])


def _spend(query: Query, run: bytes) -> Spend:
    """What a query costs that is answered from the release of this run."""
    return replace(aggregator_named(query.aggregator).mechanism(query).spend, receipt=run.hex())
