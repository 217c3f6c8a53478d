"""Secure aggregation with one server, by masks that cancel in the sum."""
