"""Devices so large that one clock cycle does not suffice from one end to the other."""

from __future__ import annotations

LARGE_DEVICE = "-85f"
"""End of the names of large devices."""


def is_large(platform: object) -> bool:
    """Return whether a design is for a large device; on others, and in simulation, it has fewer registers."""
    return str(getattr(platform, "device", "")).lower().endswith(LARGE_DEVICE)
