"""What there is to choose from, in words."""

from collections.abc import Callable, Mapping

from fss import native
from protocols.statistics import offered
from protocols.studies import studies
from simulation.reports.trust import promises
from simulation.runtimes import runtimes


def _statistics() -> dict[str, str]:
    return {name: kind.summary() for name, kind in offered().items()}


def _studies() -> dict[str, str]:
    return {name: kind.summary() for name, kind in studies().items()}


def _runtimes() -> dict[str, str]:
    return {name: kind.summary for name, kind in runtimes().items()}


def _networks() -> dict[str, str]:
    return {"none": "the network as it is"}


def _figures() -> dict[str, str]:
    from simulation.reproduce.registry import FIGURES  # draws in matplotlib, slow to import

    return {name: figure.claim for name, figure in FIGURES.items()}


CATALOGUES: dict[str, Callable[[], Mapping[str, object]]] = {
    "aggregators": promises,
    "statistics": _statistics,
    "studies": _studies,
    "runtimes": _runtimes,
    "networks": _networks,
    "figures": _figures,
}


def describe_native() -> str:
    return native.implementation()
