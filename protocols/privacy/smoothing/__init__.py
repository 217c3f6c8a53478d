"""Non-decreasing curves from noisy ones: post-processing that spends nothing."""

from tallyroom.protocols.privacy.smoothing.counts import smooth_counts
from tallyroom.protocols.privacy.smoothing.curve import smooth
from tallyroom.protocols.privacy.smoothing.problem import Smoothed

__all__ = ["Smoothed", "smooth", "smooth_counts"]
