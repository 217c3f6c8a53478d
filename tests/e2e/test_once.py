"""A run happens once: servers as processes, with a store, whatever came between."""

import shutil
import time
from pathlib import Path

import grpc
import pytest

from tallyroom.protocols.query import Query
from tallyroom.protocols.run.participant import MOST_NAMES
from tallyroom.protocols.wire.messages import Message, Phase, Role, milliseconds, number
from tallyroom.simulation.runtimes import Layout
from tests.e2e.siege import Hand, LoneServers
from tests.samples import a_message, a_query, holdings_of

HOLDINGS = holdings_of([0.1, 0.3, 0.6, 0.9], 4)


def of_time(seconds: float, telling: int = 0) -> Query:
    return a_query(nonce=number(milliseconds(time.time() + seconds), telling))


def put(query: Query) -> Message:
    return a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode(), run=query.run)


def test_an_old_run_is_not_begun_again_after_as_many_as_a_store_has_names_for(
    tmp_path: Path,
) -> None:
    """It was, by whoever put 65,600 others first. Their names are written as the server writes
    them; it is the server that makes room, is killed, and is asked again."""
    old = of_time(-600)
    between = (number(milliseconds(time.time() - 500), i) for i in range(2 * MOST_NAMES - 1))
    with LoneServers(Layout(HOLDINGS, 2, 1, store=tmp_path)) as servers:
        with Hand(servers) as hand:
            assert hand.send(put(old)) == []
            hand.forget(old.run)
        servers.children["server-0"].kill()
        with (tmp_path / "server-0" / "runs" / "over").open("a") as file:
            file.writelines(f"{(name + bytes(20)).hex()}\n" for name in between)
        servers.restart("server-0")
        with Hand(servers) as hand:
            assert "is over" in hand.send(put(old))[0]
            newer = of_time(0)
            assert hand.send(put(newer)) == []
            hand.forget(newer.run)
            assert "is over" in hand.send(put(newer))[0]
        servers.children["server-0"].kill()
        over = tmp_path / "server-0" / "runs" / "over"
        kept = over.read_text()
        assert old.run.hex() not in kept
        assert kept.count("\n") == MOST_NAMES + 1
        # As if it had been killed before the last name was whole: no more are left than it has
        # room for, and nothing but the mark on disk tells of the old one.
        over.write_text(kept[:-5])
        servers.restart("server-0")
        with Hand(servers) as hand:
            assert "is over" in hand.send(put(old))[0]
            assert hand.send(put(of_time(0))) == []


def test_a_store_that_lost_its_runs_takes_all_that_were_before_for_begun(tmp_path: Path) -> None:
    """Such as a copy of the secret and the ledger, from which the same noise would be drawn."""
    old, never = of_time(-60), of_time(-30)
    with LoneServers(Layout(HOLDINGS, 2, 1, store=tmp_path)) as servers:
        with Hand(servers) as hand:
            assert hand.send(put(old)) == []
        servers.children["server-0"].kill()
        shutil.rmtree(tmp_path / "server-0" / "runs")
        servers.restart("server-0")
        with Hand(servers) as hand:
            for query in (old, never):
                assert "is over" in hand.send(put(query))[0]
            assert hand.send(put(of_time(0))) == []


def test_a_coordinator_cannot_use_up_the_numbers_that_are_to_come(tmp_path: Path) -> None:
    far = a_query(nonce=b"\xff" * 8)
    with LoneServers(Layout(HOLDINGS, 2, 1, store=tmp_path)) as servers, Hand(servers) as hand:
        assert "ahead of our clock" in hand.send(put(far))[0]
        assert "long before our clock" in hand.send(put(of_time(-90_000)))[0]
        with pytest.raises(grpc.RpcError) as error:
            hand.forget(far.run)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert hand.send(put(of_time(0))) == []
