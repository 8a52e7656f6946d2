/* Written by memsched @version@; do not edit. C++17.
 *
 * @model@ in @stages_counted@, which
 * TensorFlow Lite Micro executes one after the other in one block of memory. Each stage has its arena at
 * the block's begin; what stages hand over lies at its end.
@stage_comments@
 * Their sizes hold for pointers of 32 bits and the target's kernels.
 *
 *   alignas(@class@::kBlockAlignment) static unsigned char block[@class@::kBlockBytes];
 *   static @class@ model(block, sizeof(block));
 *   if (model.Prepare() != @class@::Status::kOk) ...  // before every inference
 *   std::memcpy(model.input(0), image, @class@::kInputBytes[0]);
 *   if (model.Invoke() != @class@::Status::kOk) ...
 *   model.output(0) ...                              // until the next Prepare()
 *
 * It allocates nothing beside the block and itself, throws nothing, and is for one thread.
 */
#ifndef @guard@
#define @guard@

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"

namespace tflite {
namespace micro {}
}  // namespace tflite

namespace memsched {
namespace tflm {
// Where TensorFlow Lite Micro has its types depends on its age.
using namespace ::tflite;         // NOLINT
using namespace ::tflite::micro;  // NOLINT
}  // namespace tflm

class @class@ {
 public:
  enum class Status {
    kOk,
    kBlockTooSmall,      // or not aligned to kBlockAlignment
    kNotPrepared,        // Invoke() without Prepare() before it
    kUnknownOperator,    // the resolver could not be told of all operators
    kWrongSchema,        // the library reads models of another schema
    kAllocationFailed,   // AllocateTensors(): see stage()
    kUnexpectedTensor,   // a tensor is not there, or of another size: see stage()
    kInvokeFailed,       // Invoke() of a stage: see stage()
  };

  static constexpr std::size_t kStages = @stages@;
  static constexpr std::size_t kBlockAlignment = @alignment@;
  static constexpr std::size_t kBlockBytes =
      sizeof(void*) > 4 ? @block_64@ : @block_32@;
  static constexpr std::size_t kInputs = @inputs@;
  static constexpr std::size_t kOutputs = @outputs@;
@input_comments@
  static constexpr std::size_t kInputBytes[] = {@input_bytes@};
@output_comments@
  static constexpr std::size_t kOutputBytes[] = {@output_bytes@};

  // block: aligned to kBlockAlignment; bytes: kBlockBytes or more, a multiple of kBlockAlignment.
@own_constructor@
  // With a resolver of the caller's, which outlives this object.
  @class@(unsigned char* block, std::size_t bytes, const tflm::MicroOpResolver& resolver);
  ~@class@();
  @class@(const @class@&) = delete;
  @class@& operator=(const @class@&) = delete;

  // Allocates the first stage, so that inputs can be written.
  Status Prepare();
  // Where input i is to be written, after Prepare() and before Invoke(); null where it is not there.
  void* input(std::size_t i);
  // Executes all stages.
  Status Invoke();
  // Output i, after Invoke() and before the next Prepare(); null where it is not there.
  const void* output(std::size_t i);
  // The stage in which the last call ended, from 0.
  std::size_t stage() const { return stage_; }

 private:
  Status Begin(std::size_t stage);
  void End();
  Status Read();
  Status HandOver();
  unsigned char* At(std::size_t from_end) const;

  unsigned char* block_;
  std::size_t bytes_;
  std::size_t stage_ = 0;
  bool prepared_ = false;
  bool done_ = false;
@own_resolver@
  const tflm::MicroOpResolver* resolver_;
  Status resolved_ = Status::kOk;
  tflm::MicroInterpreter* interpreter_ = nullptr;
  alignas(tflm::MicroInterpreter) unsigned char room_[sizeof(tflm::MicroInterpreter)];
  static constexpr std::size_t kMostMade = @most_made@;
};

}  // namespace memsched

#endif  // @guard@
