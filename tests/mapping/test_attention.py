"""Networks with products of two computed matrices: mapped, equal at every boundary."""

from __future__ import annotations

import pytest

from nnhw.mapping.mapper import map_body
from tests.mapping.attention import PRODUCTS
from tests.mapping.test_mapper import LARGE, check_equal


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("interval", [None, 100_000])
def test_product_equals_interpreter_at_every_boundary(name: str, interval: int | None) -> None:
    body = PRODUCTS[name]()
    check_equal(body, map_body(body, "test", LARGE, target_interval=interval))
