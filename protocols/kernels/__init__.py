"""Kernels: functions of two records, bundled, by name, or written out."""
