"""Models as files for other tools: `c` makes portable C of an integer graph."""
