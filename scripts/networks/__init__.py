"""Networks of the scheduling literature, written from their published definitions as small, valid ONNX models.

``python -m scripts.networks --help`` says how to write them to files and how to print their figures.

Every network has batch 1, float32 activations and BN folded into the convolution before it. ONNX has no convolution
with an activation, but inference engines do, and the published figures count such a pair as one op. So in the
networks of the figures an activation that is the only reader of a Conv, Add, Concat or BatchNormalization is *left
out* (`Builder`), which gives exactly the ops and tensors of the fused network in operators that every ONNX tool
knows; with ``--activations kept`` they are written as ops of their own. The networks without published figures always
keep theirs, and networks that people run have the operators of an exporter one by one.

Weights are made by ``ConstantOfShape`` from values that differ from op to op, so no optimiser takes two ops for the
same.
"""
