"""Numbers that the sources of TensorFlow Lite Micro and of its kernel libraries state, where no table has them."""

from __future__ import annotations

from typing import Final

__all__ = ["Sources"]


class Sources:
    """Bytes, unless they say otherwise.

    Attributes:
        ONLINE: The offset that leaves a tensor to the runtime's planner.
        POINTER: Of a pointer on 64 bit: what holds pointers alone takes half of it on 32 bit.
        IMAGE_AXES: Axes of what convolutions and pools take.
        MOST_JOINED: Inputs of a CONCATENATION: kMaxInputNum of concatenation.cc.
        SOFTMAX_BITS: softmax_common.cc scales differences by beta x scale x 2^26, which quantization_util.cc wants
            above 1.
        SOFTMAX_TABLE: Each of the two tables that a SOFTMAX of 16-bit data keeps.
        REQUESTS_OF_ONE_KERNEL: Scratch buffers that one kernel may request: kMaxScratchBuffersPerOp of
            micro_allocator.cc.
        PLANNED_BUFFER: The planner's record of a buffer in greedy_memory_planner.h.
        RECORDER: What a RecordingMicroAllocator, as the package tflite-micro has it, takes more than a firmware's, on
            64 bit.
        SIGNAL_FLOAT: The number that the option "T" of signal operators has for float32.
        FFT_FACTORS: A plan of KissFFT before its table: two integers, and pairs of factors.
        CMSIS_CHANNELS: Channels of a depthwise convolution in one block of vectors: CH_IN_BLOCK_MVE of
            arm_nnsupportfunctions.h.
        ESP_MARGIN: What convolutions of esp_nn ask for beside their buffers.
        ESP_PANEL: Weights of a convolution of 1x1 above which esp_nn takes panels of them.
        ESP_PADDED: What esp_nn pads of the data of a depthwise convolution of 3x3 at once.
        ESP_WIDENED: What esp_nn widens to 16 bits of a depthwise convolution at once.
    """

    ONLINE: Final = -1
    POINTER: Final = 8
    IMAGE_AXES: Final = 4
    MOST_JOINED: Final = 10
    SOFTMAX_BITS: Final = 26
    SOFTMAX_TABLE: Final = 2 * 513
    REQUESTS_OF_ONE_KERNEL: Final = 12
    PLANNED_BUFFER: Final = 40
    RECORDER: Final = 232
    SIGNAL_FLOAT: Final = 0
    FFT_FACTORS: Final = 8 + 2 * 32 * 4
    CMSIS_CHANNELS: Final = 124
    ESP_MARGIN: Final = 64
    ESP_PANEL: Final = 24 * 1024
    ESP_PADDED: Final = 40 * 1024
    ESP_WIDENED: Final = 48 * 1024
