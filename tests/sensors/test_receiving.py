"""The I2S receiver at a microphone's pins, the buffer of a frame, and results as numbers and lines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from nnhw.accelerator.formats import OutputFormat
from nnhw.hdl.sensors.frame_buffer import FrameBuffer
from nnhw.hdl.sensors.i2s import I2sReceiver
from nnhw.hdl.sensors.pdm import PdmReceiver
from nnhw.hdl.sensors.results import Largest, Reporter
from nnhw.ir.types import IntType
from nnhw.sensors import LogMelConfig
from nnhw.sensors.pdm import WORD_SHIFT, filtered, modulated
from nnhw.sensors.results import lines_of
from sim.simulator import Simulator

Bench = Callable[[Any], Awaitable[None]]


def simulated(component: Any, bench: Bench) -> None:
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(("half", "gain"), [(4, 0), (5, 3)])
def test_i2s_receiver_gives_the_words_of_the_left_slot(half: int, gain: int) -> None:
    words = [0x123456, -0x800000, 0x7FFFFF, -1, 0, 0x0FFFFF, -0x100001]
    receiver, samples = I2sReceiver(half, gain), []

    async def bench(ctx: Any) -> None:
        bclk, select, index, number = 0, 1, 64, -1
        for _ in range(128 * half * len(words)):
            now, ws = ctx.get(receiver.bclk), ctx.get(receiver.ws)
            if bclk and not now:
                # A word begins a bit clock behind the edge of `ws`; the right slot has ones, which nobody must read.
                index = 0 if select != ws else index + 1
                number += select == 1 and ws == 0
                bit = words[number] >> (24 - index) & 1 if 1 <= index <= 24 and number < len(words) else 0
                ctx.set(receiver.sd, 1 if ws else bit)
                select = ws
            bclk = now
            if ctx.get(receiver.take):
                samples.append(ctx.get(receiver.sample))
            await ctx.tick()

    simulated(receiver, bench)
    assert samples == LogMelConfig(gain_log2=gain).samples(np.array(words)).tolist()


def test_pdm_receiver_equals_the_definition_bit_for_bit() -> None:
    samples = np.array([0, 20000, -32768, 32767, 32767, 32767, 32767, 1, -5])
    bits, receiver, found = modulated(samples), PdmReceiver(8, 2), []

    async def bench(ctx: Any) -> None:
        clock, number = 1, 0
        for _ in range(8 * len(bits) + 8):
            now = ctx.get(receiver.clk)
            if clock and not now and number < len(bits):
                ctx.set(receiver.data, int(bits[number]))
                number += 1
            clock = now
            if ctx.get(receiver.take):
                found.append(ctx.get(receiver.sample))
            await ctx.tick()

    simulated(receiver, bench)
    assert found == LogMelConfig(gain_log2=2).samples(filtered(bits) << WORD_SHIFT).tolist()
    assert max(found) == 32767


def test_pdm_filter_gives_the_sound_back_that_was_modulated() -> None:
    sound = 12000 * np.sin(2 * np.pi * 500 * np.arange(160) / 8000)
    found = LogMelConfig().samples(filtered(modulated(np.rint(sound))) << WORD_SHIFT)[40:]
    # The filter delays the tone, and takes 2 % of it.
    assert np.abs(np.fft.rfft(found)).argmax() == np.abs(np.fft.rfft(sound[40:])).argmax()
    assert 0.95 < found.std() / sound.std() < 1.0


def test_frame_buffer_sends_the_last_codes_oldest_first_whatever_stalls() -> None:
    buffer, frames = FrameBuffer(5, 7, 3), []

    async def send(ctx: Any, codes: list[int], stalls: int) -> None:
        # Told to send in the cycle of the last code, or in the one behind it.
        together = len(codes) % 2 == 0
        for number, code in enumerate(codes):
            ctx.set(buffer.code, code)
            ctx.set(buffer.write, 1)
            ctx.set(buffer.send, together and number == len(codes) - 1)
            await ctx.tick()
        ctx.set(buffer.write, 0)
        ctx.set(buffer.send, not (together and codes))
        await ctx.tick()
        ctx.set(buffer.send, 0)
        frames.append([])
        cycle = 0
        while ctx.get(buffer.busy):
            ctx.set(buffer.o.ready, cycle % (stalls + 1) == 0)
            if ctx.get(buffer.o.valid) and ctx.get(buffer.o.ready):
                frames[-1].append(ctx.get(buffer.o.payload))
            await ctx.tick()
            cycle += 1

    async def bench(ctx: Any) -> None:
        await send(ctx, [1, 2], 0)
        await send(ctx, [3, 4, 5], 2)
        await send(ctx, [], 1)

    simulated(buffer, bench)
    assert frames == [[7, 7, 7, 1, 2], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("element", [IntType(-700, 700), IntType(0, 200)], ids=str)
def test_largest_is_the_first_of_equals(element: IntType) -> None:
    form = OutputFormat((4,), element, -(-element.bits // 8), 1, np.zeros(1, np.int64))
    rows = np.array([[5, 9, 9, 0], [element.low, element.low, element.low, element.low + 1], [3, 3, 3, 3]])
    rows = np.concatenate([rows, np.random.default_rng(1).integers(element.low, element.high + 1, (20, 4))])
    largest, labels = Largest(form), []

    async def bench(ctx: Any) -> None:
        for number, byte in enumerate(form.pack(rows).reshape(-1).tolist()):
            ctx.set(largest.i.valid, 1)
            ctx.set(largest.i.payload, byte)
            await ctx.tick()
            ctx.set(largest.i.valid, 0)
            for _ in range(number % 3):
                if ctx.get(largest.found):
                    labels.append(ctx.get(largest.label))
                await ctx.tick()
            if number % 3 == 0 and ctx.get(largest.found):
                labels.append(ctx.get(largest.label))

    simulated(largest, bench)
    assert labels == rows.argmax(axis=1).tolist()


def test_reporter_writes_each_result_as_a_line() -> None:
    divisor, reporter, levels, labels = 4, Reporter(4), [], [0x0B, 0xC3]

    async def bench(ctx: Any) -> None:
        for label in labels:
            ctx.set(reporter.label, label)
            ctx.set(reporter.found, 1)
            await ctx.tick()
            ctx.set(reporter.found, 0)
            ctx.set(reporter.label, 0x55)
            for _ in range(45 * divisor):
                levels.append(ctx.get(reporter.tx))
                await ctx.tick()

    simulated(reporter, bench)
    text, place = b"", 0
    while 0 in levels[place:]:
        start = levels.index(0, place)
        bits = [levels[start + divisor // 2 + bit * divisor] for bit in range(10)]
        assert bits[9] == 1
        text += bytes([sum(bit << number for number, bit in enumerate(bits[1:9]))])
        place = start + 9 * divisor + divisor // 2
    assert text == lines_of(np.array(labels)) == b"0b\nc3\n"
