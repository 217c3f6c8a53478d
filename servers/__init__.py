"""The server and coordinator processes: shells, ledgers, identities."""

import tallyroom.protos  # noqa: F401 - before gRPC
