"""memsched inside other tools, each a thin module over the Python API that is imported by name.

`onnx_ir_pass` for ONNX IR, `olive_pass` for Olive, `executorch_planning` for ExecuTorch. Each needs its tool, which the
extra of that name installs, and says so where it is missing.
"""
