"""The local model: parties randomize, one server collects and estimates."""
