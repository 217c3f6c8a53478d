"""A party's say: its policy, and its ledger of what it took part in."""

import logging
from pathlib import Path

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.ledger import LedgerRefusal
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.policy import MAX_TEXT, Policy, parse_policy
from tallyroom.protocols.wire.machine import Spend
from tallyroom.storage.ledger import Ledger

log = logging.getLogger(__name__)

LEDGER = "ledger.sqlite"
MAX_NAME = 200
"""Characters kept of the name that the coordinator gives the data."""


class Consent:
    """Asked once a query, before anything of it is answered."""

    def __init__(self, policy: Policy, store: Path | None) -> None:
        """With a folder the ledger is durable. Raises `LocalError` if it cannot be opened."""
        self._policy = policy
        self._servers = 1
        if store is not None:
            store.mkdir(parents=True, exist_ok=True)
        self._ledger = Ledger(store and store / LEDGER, policy.cap, policy.delta_in_all)

    def joined(self, servers: int) -> None:
        """The federation has so many servers, the coordinator says. It cannot take that back: a
        question that leaves some of them out is refused."""
        self._servers = max(self._servers, servers)

    def refusal(self, query: Query, records: int) -> str | None:
        """Why the parties do not take part; None if they may. Nothing is charged yet."""
        return self._policy.in_federation(self._servers).refusal(query, records)

    def charge(self, query: Query) -> str | None:
        """Writes what the answer costs, durably; why it must not be given if that fails.

        The whole release is charged, also where the party adds only a share of its noise. What is
        paid for is named by everything that shapes the release, not by the run alone: the
        coordinator names runs, and gets nothing for an old name. How much is left is not said.
        """
        cost = aggregator_named(query.aggregator).mechanism(query).spend
        spend = Spend(cost.data[:MAX_NAME], query.stream, cost.epsilon, cost.delta)
        try:
            self._ledger.record([spend], query.foreseen(spend))
        except LedgerRefusal as error:
            log.warning("not answered: %s", error)
            asked = "this question" if query.foreseen(spend) == spend else "this study"
            return f"its ledger has no room for the epsilon or delta of {asked}"
        except RunFailed as error:
            log.error("not answered: %s", error)
            return "its ledger cannot be written"
        return None

    def close(self) -> None:
        self._ledger.close()


def read_policy(path: Path) -> Policy:
    """The policy in a file. Raises `LocalError` on anything but one, in one line."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TEXT + 1).decode()
    except OSError as error:
        raise LocalError(f"cannot read the policy {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LocalError(f"the policy {path} is no text") from None
    return parse_policy(text)
