"""What a party shows its operator with `--metrics`: spends, refusals, whether it is connected."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tallyroom.parties.process import PartyHost
from tallyroom.servers.metrics import Metrics, watch_ledger


def shown_at(listen: str | None) -> Callable[[PartyHost], AbstractContextManager[None]]:
    """Serves a host's figures at host:port; None serves nothing."""

    @contextmanager
    def watched(host: PartyHost) -> Iterator[None]:
        with party_metrics(host).serving(listen):
            yield

    return watched


def party_metrics(host: PartyHost) -> Metrics:
    metrics = Metrics(lambda: host.credentials)
    if host.ledger is not None:
        watch_ledger(metrics, host.ledger)
    host.watch(metrics.ended)
    metrics.watch(
        "tally_connected", "1 while the coordinator counts on this party.", lambda: host.present
    )
    return metrics
