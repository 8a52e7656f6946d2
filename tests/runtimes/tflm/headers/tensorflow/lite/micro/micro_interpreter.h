// Declarations for tests; see README.md.
#ifndef TESTS_MICRO_INTERPRETER_H_
#define TESTS_MICRO_INTERPRETER_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/schema/schema_generated.h"

#define TFLITE_SCHEMA_VERSION (3)

namespace tflite {
#ifdef TYPES_IN_MICRO
namespace micro {
#endif

enum TfLiteStatus { kTfLiteOk = 0, kTfLiteError = 1 };

union TfLitePtrUnion {
  std::int8_t* int8;
  void* data;
};

struct TfLiteTensor {
  struct {
    std::int32_t type;
    void* params;
  } quantization;
  struct {
    float scale;
    std::int32_t zero_point;
  } params;
  TfLitePtrUnion data;
  void* dims;
  std::size_t bytes;
  std::int32_t type;
  std::int32_t allocation_type;
  bool is_variable;
};

class MicroOpResolver {
 public:
  // The library's own resolver, with all operators, is made in here: it begins where this object begins.
  alignas(16) unsigned char room[1 << 16];
};

class MicroResourceVariables;
class MicroProfilerInterface;

class MicroInterpreter {
 public:
  MicroInterpreter(const Model* model, const MicroOpResolver& op_resolver, std::uint8_t* tensor_arena,
                   std::size_t tensor_arena_size, MicroResourceVariables* resource_variables = nullptr,
                   MicroProfilerInterface* profiler = nullptr, bool preserve_all_tensors = false);
  ~MicroInterpreter();
  TfLiteStatus AllocateTensors();
  TfLiteStatus Invoke();
  TfLiteTensor* input(std::size_t index);
  TfLiteTensor* output(std::size_t index);

 private:
  alignas(16) unsigned char room_[1 << 12];
};

#ifdef TYPES_IN_MICRO
}  // namespace micro
#endif
}  // namespace tflite

#endif  // TESTS_MICRO_INTERPRETER_H_
