"""The operators that TensorFlow Lite Micro has, and the calls by which a firmware registers those that a model uses.

The table is that of tensorflow/lite/micro/micro_mutable_op_resolver.h; operators that came later were found in the
symbols of a build of October 2026 and run there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from memsched.formats.tflite.model import FileModel
from memsched.runtimes.firmware import Resolver

__all__ = ["BUILTIN", "resolver"]

_BUILTIN = """
    ABS:Abs ADD:Add ADD_N:AddN ARG_MAX:ArgMax ARG_MIN:ArgMin ASSIGN_VARIABLE:AssignVariable
    AVERAGE_POOL_2D:AveragePool2D BATCH_MATMUL:BatchMatMul BATCH_TO_SPACE_ND:BatchToSpaceNd
    BROADCAST_ARGS:BroadcastArgs BROADCAST_TO:BroadcastTo CALL_ONCE:CallOnce CAST:Cast CEIL:Ceil
    CONCATENATION:Concatenation CONV_2D:Conv2D COS:Cos CUMSUM:CumSum DEPTH_TO_SPACE:DepthToSpace
    DEPTHWISE_CONV_2D:DepthwiseConv2D DEQUANTIZE:Dequantize DIV:Div DYNAMIC_UPDATE_SLICE:DynamicUpdateSlice ELU:Elu
    EMBEDDING_LOOKUP:EmbeddingLookup EQUAL:Equal EXP:Exp EXPAND_DIMS:ExpandDims FILL:Fill FLOOR:Floor
    FLOOR_DIV:FloorDiv FLOOR_MOD:FloorMod FULLY_CONNECTED:FullyConnected GATHER:Gather GATHER_ND:GatherNd
    GREATER:Greater GREATER_EQUAL:GreaterEqual HARD_SWISH:HardSwish IF:If L2_NORMALIZATION:L2Normalization
    L2_POOL_2D:L2Pool2D LEAKY_RELU:LeakyRelu LESS:Less LESS_EQUAL:LessEqual LOG:Log LOG_SOFTMAX:LogSoftmax
    LOGICAL_AND:LogicalAnd LOGICAL_NOT:LogicalNot LOGICAL_OR:LogicalOr LOGISTIC:Logistic MAX_POOL_2D:MaxPool2D
    MAXIMUM:Maximum MEAN:Mean MINIMUM:Minimum MIRROR_PAD:MirrorPad MUL:Mul NEG:Neg NOT_EQUAL:NotEqual PACK:Pack
    PAD:Pad PADV2:PadV2 PRELU:Prelu QUANTIZE:Quantize READ_VARIABLE:ReadVariable REDUCE_ALL:ReduceAll
    REDUCE_MAX:ReduceMax REDUCE_MIN:ReduceMin RELU:Relu RELU6:Relu6 RESHAPE:Reshape RESIZE_BILINEAR:ResizeBilinear
    RESIZE_NEAREST_NEIGHBOR:ResizeNearestNeighbor REVERSE_V2:ReverseV2 ROUND:Round RSQRT:Rsqrt SELECT_V2:SelectV2
    SHAPE:Shape SIN:Sin SLICE:Slice SOFTMAX:Softmax SPACE_TO_BATCH_ND:SpaceToBatchNd SPACE_TO_DEPTH:SpaceToDepth
    SPLIT:Split SPLIT_V:SplitV SQRT:Sqrt SQUARE:Square SQUARED_DIFFERENCE:SquaredDifference SQUEEZE:Squeeze
    STRIDED_SLICE:StridedSlice SUB:Sub SUM:Sum SVDF:Svdf TANH:Tanh TRANSPOSE:Transpose TRANSPOSE_CONV:TransposeConv
    UNIDIRECTIONAL_SEQUENCE_LSTM:UnidirectionalSequenceLSTM UNPACK:Unpack VAR_HANDLE:VarHandle WHILE:While
    ZEROS_LIKE:ZerosLike
"""
_CUSTOM = """
    CIRCULAR_BUFFER:CircularBuffer SignalDelay:Delay SignalEnergy:Energy SignalFftAutoScale:FftAutoScale
    SignalFilterBank:FilterBank SignalFilterBankLog:FilterBankLog
    SignalFilterBankSpectralSubtraction:FilterBankSpectralSubtraction
    SignalFilterBankSquareRoot:FilterBankSquareRoot SignalFramer:Framer SignalIrfft:Irfft SignalOverlapAdd:OverlapAdd
    SignalPCAN:PCAN SignalRfft:Rfft SignalStacker:Stacker SignalWindow:Window TFLM_DECODE:Decode
    TFLite_Detection_PostProcess:DetectionPostprocess ethos-u:EthosU
"""


def _table(text: str) -> Mapping[str, str]:
    pairs = (entry.split(":") for entry in text.split())
    return {operator: f"Add{method}" for operator, method in pairs}


BUILTIN = _table(_BUILTIN)
"""Operators of the schema to methods of MicroMutableOpResolver."""

_OWN_CUSTOM = _table(_CUSTOM)
_PREFIX = "CUSTOM:"


def resolver(model: FileModel) -> Resolver:
    """Return what is to be registered for the operators of all subgraphs of ``model``."""
    calls, unsupported, custom = [], [], []
    for kind in sorted({operator.type for subgraph in model.subgraphs for operator in subgraph.operators}):
        name = kind.removeprefix(_PREFIX)
        method = (_OWN_CUSTOM if kind.startswith(_PREFIX) else BUILTIN).get(name)
        if method is not None:
            calls.append(f"{method}()")
        elif kind.startswith(_PREFIX):
            custom.append(name)
            # A JSON string of printable ASCII is a C string as well, but for \\u escapes of other characters.
            calls.append(f"AddCustom({json.dumps(name)}, registration)")
        else:
            unsupported.append(kind)
    return Resolver(tuple(calls), tuple(unsupported), tuple(custom))
