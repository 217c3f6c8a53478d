"""Non-decreasing curves from noisy ones: post-processing that spends nothing."""

from protocols.privacy.smoothing.counts import smooth_counts
from protocols.privacy.smoothing.curve import smooth
from protocols.privacy.smoothing.problem import Smoothed

__all__ = ["Smoothed", "smooth", "smooth_counts"]
