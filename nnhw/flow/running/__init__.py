"""Using a finished build: open its device, run files through it, measure accuracy and cycles."""
