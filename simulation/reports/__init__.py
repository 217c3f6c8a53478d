"""Shows runs to people: pages, plots, tables, the terminal."""
