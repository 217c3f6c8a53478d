"""A party's consent: its policy, and the ledger of the questions that it took part in."""

import logging
from dataclasses import replace
from pathlib import Path

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.ledger import LedgerRefusal
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.policy import MAX_TEXT, Policy, parse_policy
from tallyroom.storage.ledger import Ledger
from tallyroom.storage.served import Served

log = logging.getLogger(__name__)

LEDGER = "ledger.sqlite"
MAX_NAME = 200
"""Characters kept of the name that the coordinator gives the data."""


class Consent:
    """Decides once per query, before anything of it is answered."""

    def __init__(self, policy: Policy, store: Path | None) -> None:
        """With a folder the ledger is durable. Raises `LocalError` if it cannot be opened."""
        self._policy = policy
        self._servers = 1
        if store is not None:
            store.mkdir(parents=True, exist_ok=True)
        served = None if store is None else Served(store)
        self.ledger = Ledger(store and store / LEDGER, policy.filter, served)

    @property
    def tells_columns(self) -> bool:
        """Whether a question that names another column hears which ones there are."""
        return self._policy.tells_columns

    def joined(self, servers: int) -> None:
        """Notes how many servers the federation has, according to the coordinator. The number can
        only grow: a question that leaves out some of the servers is refused."""
        self._servers = max(self._servers, servers)

    def refusal(self, query: Query, records: int) -> str | None:
        """Returns why the parties refuse to take part, or None if they agree. Charges nothing."""
        return self._policy.in_federation(self._servers).refusal(query, records)

    def charge(self, query: Query) -> str | None:
        """Writes the cost of the answer durably. Returns why the answer must not be given, if so.

        Raises `NotWritten` while the ledger cannot be written: it may be tried again.

        The full cost of the release is charged, even if the party adds only a share of its noise.
        The charge is identified by everything that shapes the release, not by the run's name alone:
        the coordinator chooses run names, and gains nothing by using an old one. The reason does
        not say how much of the budget is left.
        """
        cost = aggregator_named(query.aggregator).mechanism(query).spend
        spend = replace(cost, data=cost.data[:MAX_NAME], receipt=query.stream)
        try:
            self.ledger.record([spend], query.foreseen(spend))
        except LedgerRefusal as error:
            log.warning("not answered: %s", error)
            asked = "this question" if query.foreseen(spend) == spend else "this study"
            return f"its ledger has no room for the epsilon or delta of {asked}"
        except LocalError as error:
            log.error("not answered: %s", error)
            return "its ledger cannot be read"
        return None

    def close(self) -> None:
        self.ledger.close()


def read_policy(path: Path) -> Policy:
    """Reads a policy from a file. Raises `LocalError` with one line if the file has no policy."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TEXT + 1).decode()
    except OSError as error:
        raise LocalError(f"cannot read the policy {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LocalError(f"the policy {path} is not a text file") from None
    return parse_policy(text)
