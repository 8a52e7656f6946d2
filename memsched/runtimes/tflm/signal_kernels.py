"""What TensorFlow Lite Micro's kernels for audio features ask for: operators that are custom ones in a file.

The sizes follow the structures in signal/micro/kernels/ and signal/src/, and were measured on 64 bit in the package
tflite-micro (October 2026).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from memsched.base.units import LONGEST
from memsched.runtimes.tflm.sources import Sources

__all__ = ["SIGNAL_KERNELS", "signal_data", "signal_scratch"]

_WIDTHS: Mapping[int, int] = {0: 4, 2: 4, 7: 2}
"""Bytes of an element by the number that the option "T" has for its type: float32, int32, int16."""

_MOST_ROWS = 1 << 12
"""Circular buffers in one operator, at most: a damaged file may state more."""


_Options = Mapping[str, int]
_Shape = Sequence[int]
_Sizes = Callable[[_Options, _Shape, int], tuple[int, ...]]
"""From the options, the shape of the first input and the bits of a pointer, the bytes of each buffer."""


def _transform(options: _Options, bits: int) -> int:
    """Return the bytes of a plan of KissFFT for real numbers: three pointers, a complex plan, room and a table."""
    width = 2 * _WIDTHS.get(options.get("T", -1), 0)
    length = min(options.get("fft_length", 0), LONGEST) // 2
    return 3 * bits // 8 + Sources.FFT_FACTORS + width * length + width * (length * 3 // 2)


def _rfft(options: _Options, _: _Shape, bits: int) -> tuple[int, ...]:
    return (48 if bits == 64 else 32, _transform(options, bits))


def _irfft(options: _Options, _: _Shape, bits: int) -> tuple[int, ...]:
    more = bits // 4 if options.get("T") == Sources.SIGNAL_FLOAT else 0
    return (32 if bits == 64 else 24, _transform(options, bits) + more)


def _filter_bank(options: _Options, _: _Shape, bits: int) -> tuple[int, ...]:
    return (64 if bits == 64 else 36, 8 * (options.get("num_channels", 0) + 1))


def _spectral_subtraction(options: _Options, _: _Shape, bits: int) -> tuple[int, ...]:
    return (56 if bits == 64 else 44, 4 * options.get("num_channels", 0))


def _ring(capacity: int, bits: int) -> int:
    """Return the bytes of a circular buffer of 16-bit values: its record, and all of them twice (circular_buffer.h)."""
    return (40 if bits == 64 else 24) + 2 * 2 * min(capacity, LONGEST)


def _rings(shape: _Shape, capacity: int, bits: int) -> tuple[int, ...]:
    """Return the bytes of a circular buffer for each row of the input, after those of two lists of pointers."""
    rows = math.prod(shape[:-1])
    return (rows * bits // 8,) * 2 + (_ring(capacity, bits),) * min(rows, _MOST_ROWS)


def _delay(options: _Options, shape: _Shape, bits: int) -> tuple[int, ...]:
    capacity = options.get("delay_length", 0) + (shape[-1] if shape else 0)
    return (32 if bits == 64 else 20, *_rings(shape, capacity, bits))


def _framer(options: _Options, shape: _Shape, bits: int) -> tuple[int, ...]:
    step = max(1, options.get("frame_step", 1))
    capacity = -(-options.get("frame_size", 0) // step) * step
    return (40 if bits == 64 else 28, *_rings(shape, capacity, bits))


def _stacker(options: _Options, _: _Shape, bits: int) -> tuple[int, ...]:
    frames = options.get("stacker_left_context", 0) + options.get("stacker_right_context", 0) + 1
    return (56 if bits == 64 else 36, _ring(options.get("num_channels", 0) * frames, bits))


def _overlap_add(options: _Options, shape: _Shape, bits: int) -> tuple[int, ...]:
    rows = math.prod(shape[:-2])
    row = _WIDTHS.get(options.get("T", -1), 0) * (shape[-1] if shape else 0)
    return (32 if bits == 64 else 24, rows * bits // 8, *(row,) * min(rows, _MOST_ROWS))


def _fixed(*sizes: int) -> _Sizes:
    return lambda _, __, ___: sizes


_DATA: Mapping[str, _Sizes] = {
    "CUSTOM:SignalDelay": _delay,
    "CUSTOM:SignalEnergy": _fixed(8),
    "CUSTOM:SignalFftAutoScale": _fixed(),
    "CUSTOM:SignalFilterBank": _filter_bank,
    "CUSTOM:SignalFilterBankLog": _fixed(8),
    "CUSTOM:SignalFilterBankSpectralSubtraction": _spectral_subtraction,
    "CUSTOM:SignalFilterBankSquareRoot": _fixed(),
    "CUSTOM:SignalFramer": _framer,
    "CUSTOM:SignalIrfft": _irfft,
    "CUSTOM:SignalOverlapAdd": _overlap_add,
    "CUSTOM:SignalPCAN": _fixed(4),
    "CUSTOM:SignalRfft": _rfft,
    "CUSTOM:SignalStacker": _stacker,
    "CUSTOM:SignalWindow": _fixed(8),
}

SIGNAL_KERNELS = frozenset(_DATA)
"""All that there are in signal/micro/kernels/."""


def signal_data(kind: str, options: Mapping[str, int], shape: Sequence[int], bits: int) -> tuple[int, ...]:
    """Return the bytes of each buffer that a kernel of `SIGNAL_KERNELS` keeps, in its order, for pointers of ``bits``.

    Args:
        options: The integers of the operator's options.
        shape: Of its first input.
    """
    return _DATA[kind](options, shape, bits)


def signal_scratch(kind: str, options: Mapping[str, int]) -> tuple[int, ...]:
    """Return the bytes of each scratch buffer that such a kernel requests."""
    if kind != "CUSTOM:SignalRfft":
        return ()
    return (options.get("fft_length", 0) * _WIDTHS.get(options.get("T", -1), 0),)
