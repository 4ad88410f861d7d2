"""External tools as processes, a cache of their results, and how their progress is shown."""
