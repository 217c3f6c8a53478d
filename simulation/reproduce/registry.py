"""Every figure that can be reproduced, by name: the bundled ones, and those of other packages."""

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.registry import FIGURES, look_up, named, registered
from tallyroom.simulation.reproduce import (
    coverage,
    ecdf_error,
    s0_calibration,
    s0_communication,
    s0_data,
    s0_direct,
    s0_inverse,
    s0_roc,
    s0_runtime,
    s0_smoothing,
    s1_auc,
    s1_kendall,
    s1_protocols,
    s2_discrimination,
    s2_pictures,
    s2_residuals,
    s2_roc,
    s2_roc_examples,
    s3_attack,
    s3_error,
    s3_neighbours,
    s3_smooth,
    s4_models,
)
from tallyroom.simulation.reproduce.contract import Figure

BUNDLED: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        s0_smoothing.FIG2,
        s0_smoothing.FIG3,
        s0_inverse.FIGURE,
        s0_runtime.FIGURE,
        s0_communication.FIGURE,
        ecdf_error.FIGURE,
        s1_auc.FIGURE,
        s1_kendall.FIGURE,
        s1_protocols.FIGURE,
        s0_data.FIGURE,
        s0_roc.FIG1,
        s0_roc.FIG5,
        s0_roc.FIG8,
        s0_roc.FIG9,
        *s0_calibration.FIGURES,
        s0_direct.FIGURE,
        s2_roc_examples.FIGURE,
        *s2_roc.FIGURES,
        s2_discrimination.FIGURE,
        s2_residuals.FIGURE7,
        s2_residuals.TABLE,
        *s2_pictures.FIGURES,
        s3_neighbours.FIGURE,
        s3_attack.FIGURE,
        *s3_smooth.FIGURES,
        s3_error.FIGURE,
        s4_models.FIG1,
        s4_models.FIG2,
        coverage.FIGURE,
    )
}


def names() -> list[str]:
    """The names of all figures. Loads none of another package."""
    return [*BUNDLED, *(name for name in registered(FIGURES) if name not in BUNDLED)]


def figure_named(name: str) -> Figure:
    """Raises `LocalError` if there is no such figure, or if it cannot be loaded or is misnamed."""
    if name in BUNDLED:
        return BUNDLED[name]
    look_up("figure", name, dict.fromkeys(names()))
    found = named(FIGURES, name)
    if not isinstance(found, Figure) or found.name != name:
        raise LocalError(f"figure {name!r} must be a Figure of that name, not {found!r}")
    return found


def loadable() -> tuple[list[Figure], list[str]]:
    """All figures that can be loaded, and why each of the others cannot."""
    found, broken = [], []
    for name in names():
        try:
            found.append(figure_named(name))
        except LocalError as error:
            broken.append(str(error))
    return found, broken
