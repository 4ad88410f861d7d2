"""Frames, identity and counters: round trips, limits, refusals."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.errors import InputError, LinkError
from nnhw.protocol import (
    ANSWER,
    FRAME_LIMIT_BYTES,
    PAYLOAD_LIMIT_BYTES,
    PROTOCOL_VERSION,
    REASON_TEXT,
    REFUSAL_TEXT,
    WIRE_OVERHEAD_BYTES,
    Command,
    Counters,
    DeviceIdentity,
    Frame,
    ProgramState,
    ProgramStatus,
    Reason,
    Refusal,
)

IDENTITY = DeviceIdentity("00ff17a5b77e2d84cafe", 98, 20, 48_000_000)
HASH_HINT = "use the hash of the built accelerator"
BUILD_HINT = "build and load the accelerator again with this nnhw"
BYTE = st.integers(0, 255)


@given(BYTE, BYTE, st.binary(max_size=PAYLOAD_LIMIT_BYTES))
def test_frame_comes_back(command: int, sequence: int, payload: bytes) -> None:
    frame = Frame(command, sequence, payload)
    data = frame.to_bytes()
    assert Frame.from_bytes(data) == frame
    assert data[:-4] == bytes([command, sequence]) + payload
    assert int.from_bytes(data[-4:], "little") == zlib.crc32(data[:-4])


@given(BYTE, BYTE, st.binary(max_size=PAYLOAD_LIMIT_BYTES))
def test_frame_is_of_one_session(session: int, other: int, payload: bytes) -> None:
    frame = Frame(3, 7, payload)
    data = frame.to_bytes(session)
    assert Frame.from_bytes(data, session) == frame
    assert int.from_bytes(data[-4:], "little") == zlib.crc32(
        data[:-4], zlib.crc32(bytes([session]), 2**32 - 1) ^ 2**32 - 1
    )
    if other != session:
        with pytest.raises(LinkError, match="its CRC is"):
            Frame.from_bytes(data, other)


@given(st.binary(max_size=PAYLOAD_LIMIT_BYTES), st.data())
def test_frame_rejects_any_short_burst(payload: bytes, data: st.DataObject) -> None:
    """A CRC-32 finds every change within 32 bits."""
    frame = bytearray(Frame(3, 7, payload).to_bytes())
    start = data.draw(st.integers(0, 8 * len(frame) - 32))
    burst = data.draw(st.integers(1, 2**32 - 1)) << start
    changed = (int.from_bytes(frame, "little") ^ burst).to_bytes(len(frame), "little")
    with pytest.raises(LinkError, match="its CRC is"):
        Frame.from_bytes(changed)


@pytest.mark.parametrize("size", [0, 5, FRAME_LIMIT_BYTES + 1])
def test_frame_rejects_sizes(size: int) -> None:
    with pytest.raises(LinkError) as caught:
        Frame.from_bytes(bytes(size))
    assert str(caught.value) == f"frame of {size} bytes: needs 6 to 246; check the cable and the baud rate"


def test_frame_rejects_long_payload() -> None:
    with pytest.raises(InputError) as caught:
        Frame(3, 0, bytes(241))
    assert str(caught.value) == ("frame: a payload has at most 240 bytes, not 241; split it over several frames")


def test_frame_rejects_sequence_out_of_range() -> None:
    with pytest.raises(InputError) as caught:
        Frame(3, 256)
    assert str(caught.value) == "frame: command and sequence must be in 0..255, not 3 and 256; take them modulo 256"


def test_frame_fits_one_cobs_group() -> None:
    assert FRAME_LIMIT_BYTES <= 253
    assert WIRE_OVERHEAD_BYTES == 8


def test_commands_answer_with_the_high_bit() -> None:
    for question, answer in (
        ("IDENTIFY", "IDENTITY"),
        ("RESET", "RESET_DONE"),
        ("STATUS", "COUNTERS"),
        ("DATA", "RESULT"),
        ("PROGRAM", "PROGRAM_STATUS"),
    ):
        assert Command[answer] == Command[question] | ANSWER
    assert len({*Command}) == 13


def test_identity_comes_back() -> None:
    packed = IDENTITY.pack()
    assert packed[:13] == b"NNHW" + bytes([PROTOCOL_VERSION]) + bytes.fromhex("00ff17a5b77e2d84")
    assert DeviceIdentity.unpack(packed) == DeviceIdentity("00ff17a5b77e2d84", 98, 20, 48_000_000)


@pytest.mark.parametrize(("size", "frames"), [(1, 1), (240, 1), (241, 2), (480, 2), (481, 3)])
def test_identity_counts_results_per_image(size: int, frames: int) -> None:
    assert DeviceIdentity("0" * 16, 1, size, 1).results_per_image == frames


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("12", 1, 1, 1), "model_hash needs 16 hexadecimal digits or more, not '12'; " + HASH_HINT),
        (("g" * 16, 1, 1, 1), f"model_hash needs 16 hexadecimal digits or more, not '{'g' * 16}'; " + HASH_HINT),
        (("0" * 16, 0, 1, 1), "input_bytes must be in 1..2^32-1, not 0; check the accelerator"),
        (("0" * 16, 1, 2**32, 1), "output_bytes must be in 1..2^32-1, not 4294967296; check the accelerator"),
    ],
)
def test_identity_rejects_nonsense(arguments: tuple[str, int, int, int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        DeviceIdentity(*arguments)
    assert str(caught.value) == f"device identity: {message}"


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "the device names itself b'', not b'NNHW': it runs no nnhw accelerator; load one"),
        (b"XXHW\2", "the device names itself b'XXHW', not b'NNHW': it runs no nnhw accelerator; load one"),
        (
            b"NNHW\1" + bytes(40),
            "the device speaks protocol version 1, this nnhw speaks 2; " + BUILD_HINT,
        ),
        (
            b"NNHW\2" + bytes(3),
            "the device's identity has 8 bytes, not 25; " + BUILD_HINT,
        ),
    ],
)
def test_identity_rejects_other_devices(payload: bytes, message: str) -> None:
    with pytest.raises(LinkError) as caught:
        DeviceIdentity.unpack(payload)
    assert str(caught.value) == message


@given(*[st.integers(0, 2**40)] * 5)
def test_counters_wrap(cycles: int, input_wait: int, output_wait: int, results: int, bad_frames: int) -> None:
    unpacked = Counters.unpack(Counters(cycles, input_wait, output_wait, results, bad_frames).pack())
    assert unpacked == Counters(
        cycles % 2**32, input_wait % 2**32, output_wait % 2**32, results % 2**16, bad_frames % 2**8
    )


def test_counters_reject_another_size() -> None:
    with pytest.raises(LinkError) as caught:
        Counters.unpack(bytes(16))
    assert str(caught.value) == (
        "the device's status has 16 bytes, not 15; build and load the accelerator again with this nnhw"
    )


@given(st.sampled_from(ProgramState), st.sampled_from(Refusal), *[st.integers(0, 2**32 - 1)] * 3)
def test_program_status_comes_back(
    state: ProgramState, reason: Refusal, crc: int, output_bytes: int, array_id: int
) -> None:
    status = ProgramStatus(state, reason, crc, output_bytes, array_id)
    assert ProgramStatus.unpack(status.pack()) == status
    assert status.pack()[:2] == bytes([state, reason])


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (bytes(13), f"the state of the device's program has 13 bytes, not 14; {BUILD_HINT}"),
        (
            b"\4" + bytes(13),
            f"the device's program is in state 4 for reason 0, which this nnhw does not know; {BUILD_HINT}",
        ),
        (
            b"\3\5" + bytes(12),
            f"the device's program is in state 3 for reason 5, which this nnhw does not know; {BUILD_HINT}",
        ),
    ],
)
def test_program_status_rejects_nonsense(payload: bytes, message: str) -> None:
    with pytest.raises(LinkError) as caught:
        ProgramStatus.unpack(payload)
    assert str(caught.value) == message


def test_reasons_have_their_text() -> None:
    assert set(REASON_TEXT) == set(Reason)
    assert set(REFUSAL_TEXT) == set(Refusal)
