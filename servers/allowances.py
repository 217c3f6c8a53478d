"""Who asks, and how much each analyst may still learn.

An analyst's certificate can state a cap, which the members' authority signed. The coordinator
counts against it every release that this analyst has learnt or waits for, also one that another
analyst paid for before: what it tells of a record it tells to both. It is the coordinator that
holds analysts to their caps; servers and parties hold all of them together to theirs, and know no
analyst.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import Identity, cap_of
from tallyroom.protocols.privacy.ledger import (
    ANYTHING,
    DEFAULT_CAP_DELTA,
    Filter,
    LedgerRefusal,
    parse_cap,
)
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.wire.machine import Spend
from tallyroom.storage.ledger import Ledger


@dataclass(frozen=True)
class Asker:
    """An analyst by name, and the rule of its cap."""

    name: str = "analyst"
    filter: Filter = ANYTHING

    @classmethod
    def of(cls, identity: Identity, certificate: bytes) -> "Asker":
        """Raises `PeerError` if the certificate states a cap that cannot be read."""
        stated = cap_of(certificate)
        if not stated:
            return cls(identity.name)
        try:
            return cls(identity.name, Filter.of(parse_cap(stated), DEFAULT_CAP_DELTA))
        except LocalError as error:
            raise PeerError(identity.name, f"its certificate states no cap: {error}") from None

    def check(
        self, ledger: Ledger, spend: Spend, foreseen: Spend, awaited: Iterable[Spend]
    ) -> None:
        """Raises `LedgerRefusal` unless this analyst may learn one more release. `foreseen` is that
        with the rest of its study; `awaited` are the releases of this analyst's runs in progress.
        """
        if self.filter == ANYTHING:
            return
        known = {each.receipt: each for each in (*awaited, *ledger.learnt(self.name))}
        if spend.receipt in known:
            return
        charges: dict[PrivacyLoss, int] = {}
        for each in known.values():
            loss = self.filter.counted(each.loss, each.concentrated)
            charges[loss] = charges.get(loss, 0) + 1
        try:
            self.filter.check(self.filter.counted(foreseen.loss, foreseen.concentrated), charges)
        except LedgerRefusal as error:
            raise LedgerRefusal(f"{self.name} has a cap of its own: {error}") from None
