"""The link between host and engine in gateware: UART, COBS, CRC, frames, commands, identity and counters."""
