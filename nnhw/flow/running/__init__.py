"""A finished build in use: its device, files that run through it, accuracy, counted cycles."""
