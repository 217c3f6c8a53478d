"""Prio3 of draft-irtf-cfrg-vdaf, byte for byte: sums of measurements that are proved valid."""
