"""A device belongs to the process that opened it: a process that is forked from that one may not use it."""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import Any

import numpy as np
import pytest

from nnhw.driver import Device
from nnhw.driver.links.base import ByteLink
from nnhw.driver.links.hardware import HardwareLink
from nnhw.driver.links.model import ModelLink
from tests.driver.fakes import golden, make_accelerator, make_board, make_codes, open_toy, said_by_child
from tests.driver.test_ftdi import BytePins, ftdi_link
from tests.driver.test_hardware import SlowHardware
from tests.driver.test_serial import far_end, serial_link
from tests.driver.test_sharing import USES, parts

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="fork, and terminals as on Linux")

ACCELERATOR = make_accelerator()
CODES = make_codes(300)


def refused(name: str) -> str:
    return (
        f"link '{name}': the device belongs to process PARENT, which opened it, but this is process CHILD, which was "
        "forked from it; open a device in this process, or start processes with multiprocessing's 'spawn' method"
    )


def links(board_port: str) -> list[ByteLink]:
    """Return a link of each kind."""
    hardware: Any = SlowHardware(make_board(ACCELERATOR), 1)
    ftdi, _ = ftdi_link(BytePins(make_board(ACCELERATOR)))
    return [
        ModelLink(make_board(ACCELERATOR)),
        HardwareLink(hardware, 48_000_000),
        ftdi,
        serial_link(board_port),
    ]


def test_device_of_any_link_is_refused_to_a_forked_process() -> None:
    """The child closes it, too, and the parent goes on as if there were none."""

    def use(device: Device) -> None:
        with device:
            device.infer_codes(CODES)

    with far_end(make_board(ACCELERATOR).exchange) as port:
        for link in links(port):
            with open_toy(link, ACCELERATOR) as device:
                assert said_by_child(lambda: use(device)) == refused(link.name)
                assert np.array_equal(device.infer_codes(CODES), golden(CODES, 5))
                assert device.status().resets == 1


@pytest.mark.parametrize("use", USES)
def test_every_use_of_a_device_is_refused_to_a_forked_process(use: str) -> None:
    device = Device(ModelLink(make_board(ACCELERATOR)), ACCELERATOR, *parts())
    assert said_by_child(lambda: USES[use](device)) == refused("model")


def test_device_that_a_thread_uses_is_refused_to_a_forked_process() -> None:
    """Its lock is held by a thread that does not exist there, and would never be released."""
    device = open_toy(ModelLink(make_board(ACCELERATOR)), ACCELERATOR)
    begun, told = threading.Event(), threading.Event()

    def wait(finished: int, total: int) -> None:
        begun.set()
        told.wait()

    user = threading.Thread(target=lambda: device.infer_codes(CODES[:1], wait))
    user.start()
    begun.wait()

    def use() -> None:
        device.close()
        device.status()

    said = said_by_child(use)
    told.set()
    user.join()
    assert said == refused("model")
    assert np.array_equal(device.infer_codes(CODES), golden(CODES, 5))


def test_batch_ends_in_a_process_that_is_forked_in_its_middle() -> None:
    """It goes on in the process that has begun it, here a child, whose child may not go on."""
    codes = make_codes(2000)

    def batch() -> bool:
        device, forked = open_toy(ModelLink(make_board(ACCELERATOR)), ACCELERATOR), list[int]()

        def fork(finished: int, total: int) -> None:
            if finished == 300:
                forked.append(os.fork())
                if forked[0]:
                    os.waitpid(forked[0], 0)

        return np.array_equal(device.infer_codes(codes, fork), golden(codes, 5))

    assert re.fullmatch(
        r"link 'model': batch stopped after \d+ of 2000 images: the device belongs to process CHILD, which opened it, "
        r"but this is process \d+, which was forked from it; .* "
        r"\(the finished results are in the exception's 'results'\)"
        r"True",
        said_by_child(batch),
    )
