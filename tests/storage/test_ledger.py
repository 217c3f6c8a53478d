"""The ledger: durable, atomic, capped, and written before anything leaves."""

import math
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from tallyroom.protocols.errors import LocalError, NotWritten, RunFailed
from tallyroom.protocols.privacy.ledger import (
    DEFAULT_CAP_DELTA,
    Composition,
    Filter,
    LedgerRefusal,
    parse_cap,
)
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.wire.machine import Spend
from tallyroom.storage.ledger import SCHEMA_VERSION, Ledger
from tallyroom.storage.served import Served

THIRD = Fraction(1, 3)


def spend(receipt: str, epsilon: Fraction | None = THIRD) -> Spend:
    return Spend("data", receipt, PrivacyLoss.of(epsilon))


def test_exactly_the_cap_may_be_spent_and_no_more(tmp_path: Path) -> None:
    """Fractions: three thirds are one, where floats would leave a crack."""
    ledger = Ledger(tmp_path / "ledger.sqlite", Filter.of(Fraction(1)))
    for receipt in "abc":
        ledger.check(spend(receipt))
        ledger.record([spend(receipt)])
    assert ledger.totals().noisy.epsilon == 1
    with pytest.raises(LedgerRefusal, match="epsilon 1e-09 refused: 0 of 1 is left"):
        ledger.record([spend("d", Fraction(1, 10**9))])
    assert [row[0] for row in ledger.rows()] == ["a", "b", "c"]
    ledger.close()


def test_delta_adds_up_and_is_capped_beside_epsilon() -> None:
    """In decimals: ten times 1e-6 is 1e-5, where doubles would leave a crack."""
    ledger = Ledger(None, Filter.of(None, 1e-5))
    for number in range(10):
        ledger.record([Spend("data", str(number), PrivacyLoss.of(THIRD, 1e-6))])
    with pytest.raises(LedgerRefusal, match="delta 1e-12 refused: 0 of 1e-05 is left"):
        ledger.record([Spend("data", "late", PrivacyLoss.of(THIRD, 1e-12))])
    ledger.record([Spend("data", "pure", PrivacyLoss.of(THIRD, 0.0))])
    assert ledger.totals().noisy.delta == Fraction(1, 10**5)
    ledger.close()


def test_a_shuffle_that_tells_the_truth_is_not_paid_for_with_a_small_epsilon() -> None:
    """ε = 1e-6 with δ = 0.9 is truth with probability 0.99."""
    ledger = Ledger(None, Filter.of(Fraction(10), DEFAULT_CAP_DELTA))
    with pytest.raises(LedgerRefusal, match=r"delta 0\.9 refused: 1e-05 of 1e-05 is left"):
        ledger.record([Spend("data", "shuffled", PrivacyLoss.of(Fraction(1, 10**6), 0.9))])
    assert ledger.rows() == []
    ledger.close()


def test_tight_composition_admits_what_the_plain_sum_does_not() -> None:
    cap, each = Fraction(5), Fraction(1, 10)
    plain = Ledger(None, Filter.of(cap, 1e-6))
    tight = Ledger(None, Filter.of(cap, 1e-6, Composition.TIGHT))
    taken = dict.fromkeys((plain, tight), 0)
    for ledger in taken:
        while taken[ledger] < 300:
            try:
                ledger.record([spend(str(taken[ledger]), each)])
            except LedgerRefusal:
                break
            taken[ledger] += 1
    assert taken[plain] == 50
    assert 100 < taken[tight] < 110  # at 100 the optimal ε is 4.7746, at 110 it is 5.06
    assert tight.tight(1e-6) <= 5 < tight.totals().noisy.size
    for ledger in taken:
        ledger.close()


def test_tight_composition_needs_a_delta_and_refuses_what_uses_it_up() -> None:
    with pytest.raises(LocalError, match="--cap-delta"):
        Filter.of(Fraction(1), None, Composition.TIGHT)
    ledger = Ledger(None, Filter.of(None, 1e-6, Composition.TIGHT))
    with pytest.raises(LedgerRefusal, match="delta 1e-05 refused"):
        ledger.record([Spend("data", "a", PrivacyLoss.of(Fraction(1), 1e-5))])
    ledger.close()


def test_a_release_without_noise_leaves_nothing_of_a_cap(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    free = Ledger(path)
    free.record([spend("exact", None), spend("noisy")])
    totals = free.totals()
    assert (totals.exact, totals.noisy, totals.epsilon()) == (1, PrivacyLoss.of(THIRD), math.inf)
    free.close()
    capped = Ledger(path, Filter.of(Fraction(100)))
    with pytest.raises(LedgerRefusal, match="1 release without noise"):
        capped.record([spend("next")])
    capped.record([spend("noisy")])  # paid for
    capped.close()


def test_a_refusal_says_what_is_left() -> None:
    ledger = Ledger(None, Filter.of(Fraction(3, 2)))
    ledger.record([spend("a", Fraction(1))])
    with pytest.raises(LedgerRefusal, match=r"epsilon 1 refused: 0\.5 of 1\.5 is left"):
        ledger.check(spend("b", Fraction(1)))
    ledger.close()


def test_the_same_receipt_costs_once() -> None:
    ledger = Ledger(None, Filter.of(Fraction(1)))
    for _ in range(5):
        ledger.record([spend("a", Fraction(1))])
    ledger.check(spend("a", Fraction(1)))
    assert ledger.totals().noisy.epsilon == 1
    assert len(ledger.rows()) == 1
    ledger.close()


def test_two_spends_are_written_both_or_neither() -> None:
    ledger = Ledger(None, Filter.of(Fraction(1)))
    with pytest.raises(LedgerRefusal):
        ledger.record([spend("a", Fraction(3, 4)), spend("b", Fraction(3, 4))])
    assert ledger.rows() == []
    ledger.record([spend("a", Fraction(1, 4)), spend("b", Fraction(3, 4))])
    assert ledger.totals().noisy.epsilon == 1
    ledger.close()


def test_concentrated_losses_are_kept_and_counted_as_such(tmp_path: Path) -> None:
    path, rho = tmp_path / "ledger.sqlite", PrivacyLoss.concentrated(Fraction(1, 20))
    cap = Filter(PrivacyLoss.concentrated(Fraction(1, 10)))
    for receipt in "ab":
        ledger = Ledger(path, cap)
        ledger.record([Spend("data", receipt, rho)])
        ledger.close()
    ledger = Ledger(path, cap)
    assert [row[2:4] for row in ledger.rows()] == [("rho 1/20", 0.0)] * 2
    assert ledger.totals().noisy == rho * 2
    assert ledger.tight(1e-6) == (rho * 2).at(1e-6).size
    with pytest.raises(LedgerRefusal, match=r"rho 1e-06 refused: 0 of 0\.1 is left"):
        ledger.record([Spend("data", "c", PrivacyLoss.concentrated(Fraction(1, 10**6)))])
    ledger.close()


def test_a_loss_that_could_not_be_read_back_is_not_written() -> None:
    """One row of a hundred digits would lock the keeper out of its own ledger."""
    ledger = Ledger(None)
    with pytest.raises(LocalError, match="too many digits"):
        ledger.record([spend("a", Fraction(1, 10**99))])
    assert ledger.rows() == []


def test_an_old_ledger_keeps_its_meaning(tmp_path: Path) -> None:
    """As the first version wrote it."""
    path = tmp_path / "ledger.sqlite"
    old = sqlite3.connect(path)
    old.executescript(
        "CREATE TABLE spends (receipt TEXT PRIMARY KEY, data TEXT NOT NULL, epsilon TEXT NOT NULL, "
        "delta REAL NOT NULL, written TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);"
        "INSERT INTO spends (receipt, data, epsilon, delta) VALUES ('a', 'd', '1/3', 0.0),"
        "('b', 'd', '1/3', 1e-06), ('c', 'd', 'inf', 0.0), ('e', 'd', '2', 9.094947017729282e-13);"
        "PRAGMA user_version = 1;"
    )
    old.close()
    ledger = Ledger(path)
    assert ledger.totals().exact == 1
    spent = PrivacyLoss.of(Fraction(8, 3)) + PrivacyLoss.of(0, 1e-6)
    assert ledger.totals().noisy == spent + PrivacyLoss.of(0, 9.094947017729282e-13)
    ledger.record([spend("f")])
    assert ledger.rows()[-1][2:4] == ("1/3", 0.0)
    ledger.close()


def test_renaming_the_data_gains_nothing() -> None:
    ledger = Ledger(None, Filter.of(Fraction(1)))
    ledger.record([Spend("one name", "a", PrivacyLoss.of(Fraction(1)))])
    with pytest.raises(LedgerRefusal):
        ledger.record([Spend("another name", "b", PrivacyLoss.of(Fraction(1)))])
    ledger.close()


def test_an_answer_without_noise_is_refused_under_any_cap_and_written_without_one() -> None:
    capped, free = Ledger(None, Filter.of(Fraction(10**9))), Ledger(None)
    with pytest.raises(LedgerRefusal, match="without noise is refused"):
        capped.record([spend("a", None)])
    free.record([spend("a", None), spend("b")])
    assert [row[2] for row in free.rows()] == ["inf", "1/3"]
    assert free.totals().noisy.epsilon == THIRD
    capped.close()
    free.close()


def test_a_spend_survives_the_death_of_its_keeper(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    program = (
        "import os, signal, sys; from fractions import Fraction; from pathlib import Path;"
        "from tallyroom.protocols.privacy.loss import PrivacyLoss;"
        "from tallyroom.protocols.wire.machine import Spend;"
        "from tallyroom.storage.ledger import Ledger;"
        "Ledger(Path(sys.argv[1])).record([Spend('d', 'r', PrivacyLoss.of(Fraction(1, 3)))]);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert died.returncode == -9
    ledger = Ledger(path, Filter.of(Fraction(1, 2)))
    assert ledger.totals().noisy.epsilon == THIRD
    with pytest.raises(LedgerRefusal):
        ledger.record([spend("again", THIRD)])
    ledger.close()


def test_a_spend_is_on_disk_before_it_is_answered_for(tmp_path: Path) -> None:
    """SQLite waits for the disk at every commit: 2 is its FULL."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)
    ledger.close()


def test_two_keepers_of_one_file_share_its_cap(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    left, right = Ledger(path, Filter.of(Fraction(1))), Ledger(path, Filter.of(Fraction(1)))
    left.record([spend("a", Fraction(3, 4))])
    with pytest.raises(LedgerRefusal):
        right.record([spend("b", Fraction(3, 4))])
    left.close()
    right.close()


def test_a_ledger_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(LocalError, match="newer Tallyroom"):
        Ledger(path)


def test_what_is_not_a_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_text("not a database, but long enough to be taken for one" * 20)
    with pytest.raises(LocalError, match="ledger"):
        Ledger(path)


def test_a_ledger_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="ledger"):
        Ledger(tmp_path / "no such folder" / "ledger.sqlite")


def test_nothing_to_spend_is_nothing_written() -> None:
    ledger = Ledger(None, Filter.of(Fraction(0)))
    nothing: Sequence[Spend] = ()
    ledger.record(nothing)
    assert ledger.rows() == []
    ledger.close()


def test_a_ledger_that_cannot_be_written_says_so_and_recovers(tmp_path: Path) -> None:
    """Whether the disk fills while a spend is inserted or only when it is committed."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record([spend("a")])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(RunFailed, match="the ledger cannot be written"):
            ledger.record([spend("b")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row[0] for row in ledger.rows()] == ["a"]
    ledger.record([spend("b")])
    assert ledger.totals().noisy.epsilon == 2 * THIRD
    ledger.close()


def test_a_commit_that_fails_leaves_no_transaction_open(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger, reader = Ledger(path), sqlite3.connect(path, isolation_level=None)
    ledger._db.execute("PRAGMA busy_timeout = 1")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM spends").fetchall()
    with pytest.raises(RunFailed, match="the ledger cannot be written: database is locked"):
        ledger.record([spend("a")])
    reader.execute("COMMIT")
    reader.close()
    ledger.record([spend("a")])
    assert [row[0] for row in ledger.rows()] == ["a"]
    ledger.close()


# --- losses that are known in ρ ---

CURVE = PrivacyLoss.concentrated(Fraction(1, 1200))
"""Of a curve at ε = 0.1, whose six counts move by one each."""


def a_curve(receipt: str) -> Spend:
    return Spend("data", receipt, PrivacyLoss.of(Fraction(1, 10)), CURVE)


def test_a_loss_in_rho_is_kept_beside_epsilon_and_counts_under_a_cap_in_rho(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path, Filter.of(parse_cap("rho 1/600")))
    ledger.record([a_curve("a"), a_curve("b")])
    ledger.close()
    again = Ledger(path, Filter.of(parse_cap("rho 1/600")))
    assert again.in_rho() == {"a": CURVE, "b": CURVE}
    assert again.totals().noisy == PrivacyLoss.of(Fraction(1, 5))
    with pytest.raises(LedgerRefusal, match=r"rho 0\.000833333 refused: 0 of 0\.00166667 is left"):
        again.record([a_curve("c")])
    again.record([a_curve("a")])  # paid for
    again.close()
    by_epsilon = Ledger(path, Filter.of(Fraction(1, 5)))
    with pytest.raises(LedgerRefusal, match=r"epsilon 0\.1 refused: 0 of 0\.2 is left"):
        by_epsilon.record([a_curve("c")])
    by_epsilon.close()


def test_a_cap_with_delta_holds_more_curves_than_plain_sums() -> None:
    plain, in_rho = (
        Ledger(None, Filter.of(Fraction(2), 1e-6)),
        Ledger(None, Filter.of(parse_cap("2, delta = 1e-6"))),
    )
    with pytest.raises(LedgerRefusal):
        plain.record([a_curve(str(number)) for number in range(21)])
    in_rho.record([a_curve(str(number)) for number in range(100)])
    assert in_rho.adaptive(1e-6) <= 2
    with pytest.raises(LedgerRefusal, match="would come to epsilon 2"):
        in_rho.record([a_curve(f"more {number}") for number in range(20)])
    assert len(in_rho.rows()) == 100


OLD = """
CREATE TABLE spends (receipt TEXT PRIMARY KEY, data TEXT NOT NULL, epsilon TEXT NOT NULL,
    delta REAL NOT NULL, written TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
INSERT INTO spends (receipt, data, epsilon, delta) VALUES ('a', 'd', '1/10', 0.0);
INSERT INTO spends (receipt, data, epsilon, delta) VALUES ('b', 'd', 'rho 1/50', 0.0);
PRAGMA user_version = 1;
"""


def test_an_old_ledger_opens_and_keeps_its_meaning(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    old = sqlite3.connect(path)
    old.executescript(OLD)
    old.close()
    first, second = Ledger(path), Ledger(path, Filter.of(parse_cap("rho 0.026")))
    by_epsilon = PrivacyLoss.concentrated(Fraction(1, 200))
    assert first.in_rho() == {"a": by_epsilon, "b": PrivacyLoss.concentrated(Fraction(1, 50))}
    assert [row[2:4] for row in first.rows()] == [("1/10", 0.0), ("rho 1/50", 0.0)]
    with pytest.raises(LedgerRefusal):
        second.record([spend("c", Fraction(1, 10))])  # by ε²/2, as nothing more is known of it
    second.record([a_curve("c")])
    assert first.has(a_curve("c"))
    first.close()
    second.close()


def test_a_spend_in_rho_survives_the_death_of_its_keeper(tmp_path: Path) -> None:
    """It dies between the charge and the release: what was charged stays charged."""
    path = tmp_path / "ledger.sqlite"
    program = (
        "import os, signal, sys; from fractions import Fraction; from pathlib import Path;"
        "from tallyroom.protocols.privacy.loss import PrivacyLoss as Loss;"
        "from tallyroom.protocols.wire.machine import Spend;"
        "from tallyroom.storage.ledger import Ledger;"
        "loss = Loss.of(Fraction(1, 10)), Loss.concentrated(Fraction(1, 1200));"
        "Ledger(Path(sys.argv[1])).record([Spend('d', 'r', *loss)]);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert died.returncode == -9
    ledger = Ledger(path, Filter.of(parse_cap("rho 1/1000")))
    assert ledger.in_rho() == {"r": CURVE}
    with pytest.raises(LedgerRefusal):
        ledger.record([a_curve("again")])
    ledger.close()


def test_many_that_spend_at_once_come_to_the_cap_and_no_further(tmp_path: Path) -> None:
    """They are written together, and whoever does not fit is refused alone."""
    ledger = Ledger(tmp_path / "ledger.sqlite", Filter.of(Fraction(5)))
    begin = threading.Barrier(20)

    def pay(number: int) -> bool:
        begin.wait()
        try:
            ledger.record(
                [spend(f"{number} a", Fraction(1, 2)), spend(f"{number} b", Fraction(1, 2))]
            )
        except LedgerRefusal:
            return False
        return True

    with ThreadPoolExecutor(20) as pool:
        paid = list(pool.map(pay, range(20)))
    assert sum(paid) == 5
    receipts = {row[0] for row in ledger.rows()}
    assert receipts == {f"{n} {half}" for n, ok in enumerate(paid) if ok for half in "ab"}
    ledger.close()


class Counting(Served):
    """Notes every count that it is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reached: list[int] = []

    def reach(self, rows: int) -> None:
        self.reached.append(rows)
        super().reach(rows)


def test_what_waits_behind_a_writer_is_written_in_one_go(tmp_path: Path) -> None:
    """One sync of the disk for all: the count of releases beside the ledger is written once."""
    served = Counting(tmp_path)
    ledger = Ledger(tmp_path / "ledger.sqlite", served=served)
    served.reached.clear()
    with ThreadPoolExecutor(10) as pool:
        with ledger._writing:
            waiting = [pool.submit(ledger.record, [spend(str(n))]) for n in range(10)]
            while len(ledger._waiting) < 10:
                time.sleep(0.01)
        for each in waiting:
            each.result()
    assert served.reached == [10]
    ledger.close()


def test_what_cannot_be_written_is_written_for_none_of_those_that_wait(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(ledger.record, [spend(str(n))]) for n in range(4)]
        errors = [each.exception() for each in waiting]
    assert all(isinstance(error, NotWritten) for error in errors)
    assert ledger.rows() == []
    holder.execute("ROLLBACK")
    ledger.record([spend("0")])
    assert len(ledger.rows()) == 1
    holder.close()
    ledger.close()
