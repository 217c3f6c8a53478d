"""Network conditions: profiles by name, and how long a run takes under them."""
