// Declarations for tests; see README.md.
#ifndef TESTS_MICRO_MUTABLE_OP_RESOLVER_H_
#define TESTS_MICRO_MUTABLE_OP_RESOLVER_H_

#include <new>

#include "tensorflow/lite/micro/micro_interpreter.h"

namespace tflite {

#ifdef TYPES_IN_MICRO
class PythonOpsResolver {
 public:
  PythonOpsResolver();
  virtual ~PythonOpsResolver();

 private:
  unsigned char room_[(1 << 16) - 16];
};

namespace micro {
#endif

template <unsigned int kOperators>
class MicroMutableOpResolver : public MicroOpResolver {
 public:
#ifdef TYPES_IN_MICRO
  MicroMutableOpResolver() { new (room) ::tflite::PythonOpsResolver(); }
#endif

#define TESTS_OPERATOR(name)                                         \
  TfLiteStatus Add##name() {                                         \
    return added_++ < kOperators ? kTfLiteOk : kTfLiteError;         \
  }
  TESTS_OPERATOR(Add)
  TESTS_OPERATOR(AveragePool2D)
  TESTS_OPERATOR(Concatenation)
  TESTS_OPERATOR(Conv2D)
  TESTS_OPERATOR(DepthwiseConv2D)
  TESTS_OPERATOR(DynamicUpdateSlice)
  TESTS_OPERATOR(Fill)
  TESTS_OPERATOR(FullyConnected)
  TESTS_OPERATOR(Less)
  TESTS_OPERATOR(Logistic)
  TESTS_OPERATOR(Maximum)
  TESTS_OPERATOR(MaxPool2D)
  TESTS_OPERATOR(Mean)
  TESTS_OPERATOR(Minimum)
  TESTS_OPERATOR(Mul)
  TESTS_OPERATOR(Pad)
  TESTS_OPERATOR(PadV2)
  TESTS_OPERATOR(Relu)
  TESTS_OPERATOR(Relu6)
  TESTS_OPERATOR(Reshape)
  TESTS_OPERATOR(Slice)
  TESTS_OPERATOR(Softmax)
  TESTS_OPERATOR(StridedSlice)
  TESTS_OPERATOR(Sub)
  TESTS_OPERATOR(Tanh)
  TESTS_OPERATOR(While)
#undef TESTS_OPERATOR

 private:
  unsigned int added_ = 0;
};

#ifdef TYPES_IN_MICRO
}  // namespace micro
#endif
}  // namespace tflite

#endif  // TESTS_MICRO_MUTABLE_OP_RESOLVER_H_
