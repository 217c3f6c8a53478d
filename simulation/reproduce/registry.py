"""Every figure that can be reproduced, by name."""

from tallyroom.simulation.reproduce import (
    ecdf_error,
    s0_calibration,
    s0_communication,
    s0_inverse,
    s0_roc,
    s0_runtime,
    s0_smoothing,
    s1_auc,
    s1_kendall,
    s2_discrimination,
    s2_pictures,
    s2_residuals,
    s2_roc,
    s2_roc_examples,
    s3_attack,
    s3_error,
    s3_smooth,
    s4_models,
)
from tallyroom.simulation.reproduce.contract import Figure

FIGURES: dict[str, Figure] = {
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
        s0_roc.FIG1,
        s0_roc.FIG5,
        s0_roc.FIG8,
        s0_roc.FIG9,
        *s0_calibration.FIGURES,
        s2_roc_examples.FIGURE,
        *s2_roc.FIGURES,
        s2_discrimination.FIGURE,
        s2_residuals.FIGURE7,
        s2_residuals.TABLE,
        *s2_pictures.FIGURES,
        s3_attack.FIGURE,
        *s3_smooth.FIGURES,
        s3_error.FIGURE,
        s4_models.FIG1,
        s4_models.FIG2,
    )
}
