"""What tests of devices behind a link share."""

from __future__ import annotations

import pytest

from nnhw.hdl.link import linked_engine


@pytest.fixture(params=[False, True], ids=["", "large device"])
def small_and_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large device there may be buffers between link and engine, and the engine's reset may come later."""
    monkeypatch.setattr(linked_engine, "is_large", lambda platform: request.param)
