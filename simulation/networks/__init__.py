"""Network conditions: profiles by name, and the time that a run takes under them."""
