"""From layers to the program of a shared engine: tasks, tiles, places in its memory, the cycle of each access."""
