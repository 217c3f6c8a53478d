"""What people see of a run: pages, plots, tables, the terminal."""
