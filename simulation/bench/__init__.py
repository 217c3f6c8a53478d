"""`tally bench`: each module measures one thing beside its peers or the hardware's limit."""
