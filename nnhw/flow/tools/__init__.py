"""External tools as processes, what they made kept by hash, and what a person sees meanwhile."""
