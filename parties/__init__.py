"""The party process: data sources, its machines, and their gRPC shell."""

import tallyroom.protos  # noqa: F401 - before gRPC
