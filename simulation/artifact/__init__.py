"""Everything that repeats a result: inputs, figures, and a script that runs and compares."""
