"""The search for the array, and the engines beside it, that run a network in the fewest cycles and fit a board."""
