"""The party process: data sources, its machines, and their gRPC shell."""
