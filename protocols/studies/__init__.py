"""Studies by name: questions that follow from answers, under one ε.

Each is found through the entry-point group `tallyroom.studies`; nothing here names one.
"""

from functools import cache

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
    """Only the one that is asked for is loaded.

    Raises `LocalError` if there is none of that name, or if it cannot be loaded.
    """
    kind: type[Study] = registry.kind_named(registry.STUDIES, name, Study)
    return kind


__all__ = ["Answer", "Ask", "Finding", "Steps", "Study", "studies", "study_named", "study_names"]
