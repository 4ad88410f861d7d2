"""From layers to the program of a shared engine: tasks, tiles, places in its memory, and when each word is used."""
