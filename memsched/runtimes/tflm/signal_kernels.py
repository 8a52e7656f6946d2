"""What TensorFlow Lite Micro's kernels for audio features ask for: operators that are custom ones in a file.

The sizes follow the structures in signal/micro/kernels/ and signal/src/, and were measured on 64 bit in the package
tflite-micro (October 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["SIGNAL_KERNELS", "signal_data", "signal_scratch"]

_WIDTHS: Mapping[int, int] = {0: 4, 2: 4, 7: 2}
"""Bytes of an element by the number that the option "T" has for its type: float32, int32, int16."""

_FLOAT = 0
_LONGEST_FFT = 1 << 24
"""The longest that is computed with: a damaged file may state anything."""

_FFT_FACTORS = 8 + 2 * 32 * 4
"""Bytes of a plan of KissFFT before its table: two integers, and pairs of factors."""


def _transform(options: Mapping[str, int], bits: int) -> int:
    """Return the bytes of a plan of KissFFT for real numbers: three pointers, a complex plan, room and a table."""
    width = 2 * _WIDTHS.get(options.get("T", -1), 0)
    length = min(options.get("fft_length", 0), _LONGEST_FFT) // 2
    return 3 * bits // 8 + _FFT_FACTORS + width * length + width * (length * 3 // 2)


def _rfft(options: Mapping[str, int], bits: int) -> tuple[int, ...]:
    return (48 if bits == 64 else 32, _transform(options, bits))


def _irfft(options: Mapping[str, int], bits: int) -> tuple[int, ...]:
    more = bits // 4 if options.get("T") == _FLOAT else 0
    return (32 if bits == 64 else 24, _transform(options, bits) + more)


def _filter_bank(options: Mapping[str, int], bits: int) -> tuple[int, ...]:
    return (64 if bits == 64 else 36, 8 * (options.get("num_channels", 0) + 1))


def _spectral_subtraction(options: Mapping[str, int], bits: int) -> tuple[int, ...]:
    return (56 if bits == 64 else 44, 4 * options.get("num_channels", 0))


def _fixed(*sizes: int) -> Callable[[Mapping[str, int], int], tuple[int, ...]]:
    return lambda _, __: sizes


_DATA: Mapping[str, Callable[[Mapping[str, int], int], tuple[int, ...]]] = {
    "CUSTOM:SignalEnergy": _fixed(8),
    "CUSTOM:SignalFftAutoScale": _fixed(),
    "CUSTOM:SignalFilterBank": _filter_bank,
    "CUSTOM:SignalFilterBankLog": _fixed(8),
    "CUSTOM:SignalFilterBankSpectralSubtraction": _spectral_subtraction,
    "CUSTOM:SignalFilterBankSquareRoot": _fixed(),
    "CUSTOM:SignalIrfft": _irfft,
    "CUSTOM:SignalPCAN": _fixed(4),
    "CUSTOM:SignalRfft": _rfft,
    "CUSTOM:SignalWindow": _fixed(8),
}

SIGNAL_KERNELS = frozenset(_DATA)
"""Those whose needs are known; of the others, which keep a history, they are not."""


def signal_data(kind: str, options: Mapping[str, int], bits: int) -> tuple[int, ...]:
    """Return the bytes of each buffer that a kernel of `SIGNAL_KERNELS` keeps, in its order, for pointers of ``bits``.

    Args:
        options: The integers of the operator's options.
    """
    return _DATA[kind](options, bits)


def signal_scratch(kind: str, options: Mapping[str, int]) -> tuple[int, ...]:
    """Return the bytes of each scratch buffer that such a kernel requests."""
    if kind != "CUSTOM:SignalRfft":
        return ()
    return (options.get("fft_length", 0) * _WIDTHS.get(options.get("T", -1), 0),)
