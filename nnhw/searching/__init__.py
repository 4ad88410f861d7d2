"""Architecture search: a user's `model(trial)`, mapped before it is trained, over any number of processes.

The package is called `searching` so that `nnhw.search` stays the function.
"""
