"""Studies by name: questions that follow from answers, under one ε.

Studies are found through the entry-point group `tallyroom.studies`; no study is named here.
"""

from functools import cache
from typing import TYPE_CHECKING

from tallyroom.protocols import registry
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study


def study_names() -> list[str]:
    """The names of all installed studies, ours and those of other packages."""
    return list(registry.registered(registry.STUDIES))


def studies() -> dict[str, type[Study]]:
    """All installed studies that can be loaded."""
    return registry.loadable(registry.STUDIES)


@cache
def study_named(name: str) -> type[Study]:
    """Loads the study of that name, and no other. Raises `LocalError` if there is no such study, or
    if it cannot be loaded."""
    kind: type[Study] = registry.kind_named(registry.STUDIES, name, Study)
    return kind


BY_OPTION = {"private-bounds": "PrivateBounds", "quantile-zoom": "QuantileZoom"}
"""Studies that are asked by an option of a statistic, and by no name of their own."""

if TYPE_CHECKING:
    from tallyroom.protocols.studies.private_bounds import PrivateBounds
    from tallyroom.protocols.studies.quantile_zoom import QuantileZoom
else:
    __getattr__ = registry.lazily(
        __name__,
        {
            "PrivateBounds": "private_bounds",
            "QuantileZoom": "quantile_zoom",
        },
    )

__all__ = [
    "BY_OPTION",
    "Answer",
    "Ask",
    "Finding",
    "PrivateBounds",
    "QuantileZoom",
    "Steps",
    "Study",
    "studies",
    "study_named",
    "study_names",
]
