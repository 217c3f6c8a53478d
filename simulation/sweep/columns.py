"""The columns that every run of a sweep has beside its options."""

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
    "server_cpu_seconds",
)
"""Numbers. Estimate and truth are there where they are one number."""
TIMES = ("seconds", "server_cpu_seconds")
"""Those that differ from one execution of the same run to the next."""
COLUMNS = ("statistic", "trial", "run_seed", *MEASURED, "failed")
"""`failed` is why there is no answer; empty where there is one."""
