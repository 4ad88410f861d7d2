"""Which arrays, and which engines beside them, run a network in the fewest cycles that fit a board."""
