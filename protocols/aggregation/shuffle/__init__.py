"""The shuffle model: parties randomize, a shuffler mixes, the collector opens."""
