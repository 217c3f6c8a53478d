"""The columns that every run of a sweep has besides its options."""

from tallyroom.simulation.times import COLUMNS as COLUMNS_OF_TIMES

MEASURED = (
    "estimate",
    "truth",
    "rmse",
    "max_error",
    "noise_rmse",
    "expected_rmse",
    "party_bytes",
    "party_bytes_max",
    "total_bytes",
    "messages",
    "rounds",
    "delta_spent",
    "seconds",
    *COLUMNS_OF_TIMES,
    "server_cpu_seconds",
    "cpu_seconds",
    "peak_bytes",
)
"""Columns of numbers. Estimate and truth are filled if they are a single number; `seconds` has the
start of processes; CPU is that of all roles together, and the peak of memory that of the largest
process."""
TIMES = (
    "seconds",
    *COLUMNS_OF_TIMES,
    "server_cpu_seconds",
    "cpu_seconds",
    "peak_bytes",
    "machine",
)
"""Columns that differ from one execution of the same run to the next."""
SUMMARISED = (
    "rmse",
    "noise_rmse",
    "expected_rmse",
    "party_bytes",
    "total_bytes",
    "rounds",
    *COLUMNS_OF_TIMES,
    "server_cpu_seconds",
)
"""Columns whose means over trials a summary tells."""
COLUMNS = ("statistic", "trial", "run_seed", *MEASURED, "machine", "failed")
"""`machine` is a key of machines.json, which says what the run was measured with; `failed` says why
there is no answer; it is empty if there is one."""
