"""From layers to the program of a shared engine: tasks, tiles, places in its memory, when each word is read and written."""
