"""`tally serve`: a page of runs. It reads folders and starts `tally run`, and asks no
federation."""
