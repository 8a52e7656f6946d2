/* Written by memsched @version@; do not edit. C++17. */
#include "@header@"

#include <cstring>
#include <new>

#include "tensorflow/lite/schema/schema_generated.h"

namespace memsched {
namespace {

@models@
// A tensor of a stage: its bytes, and where it lies behind the arenas, counted from the block's end, or 0.
struct Moved {
  std::size_t bytes;
  std::size_t from_end;
};

@moved@

struct Stage {
  const unsigned char* model;
  const Moved* reads;
  std::size_t read;
  const Moved* makes;
  std::size_t made;
  std::size_t kept;  // bytes at the block's end that its arena leaves alone
};

constexpr Stage kStage[] = {
@stages@
};

// Per input of the model its place in the first stage, or -1, and behind the arenas.
constexpr struct { int place; std::size_t from_end; } kInput[] = {
@inputs@
};

// Per output of the model its place in the last stage, or -1, and behind the arenas.
constexpr struct { int place; std::size_t from_end; } kOutput[] = {
@outputs@
};

// Whether tensor i of those that a stage has made would, moved to `begin`, lie over another that is still to be moved.
bool Covers(const Stage& stage, const unsigned char* const* made, std::size_t i, const unsigned char* begin) {
  for (std::size_t j = 0; j < stage.made; ++j) {
    if (j == i || made[j] == nullptr) continue;
    if (begin < made[j] + stage.makes[j].bytes && made[j] < begin + stage.makes[i].bytes) return true;
  }
  return false;
}

}  // namespace

@own_constructor@
@class@::@class@(unsigned char* block, std::size_t bytes, const tflm::MicroOpResolver& resolver)
    : block_(block), bytes_(bytes), resolver_(&resolver) {}

@class@::~@class@() { End(); }

unsigned char* @class@::At(std::size_t from_end) const { return block_ + bytes_ - from_end; }

void @class@::End() {
  if (interpreter_ != nullptr) interpreter_->~MicroInterpreter();
  interpreter_ = nullptr;
}

@class@::Status @class@::Begin(std::size_t stage) {
  End();
  stage_ = stage;
  const auto* model = ::tflite::GetModel(kStage[stage].model);
#ifdef TFLITE_SCHEMA_VERSION
  if (model->version() != TFLITE_SCHEMA_VERSION) return Status::kWrongSchema;
#endif
  interpreter_ = new (room_) tflm::MicroInterpreter(model, *resolver_, block_, bytes_ - kStage[stage].kept);
  if (static_cast<int>(interpreter_->AllocateTensors()) != 0) return Status::kAllocationFailed;
  for (std::size_t i = 0; i < kStage[stage].read; ++i) {
    const auto* tensor = interpreter_->input(i);
    if (tensor == nullptr || tensor->bytes != kStage[stage].reads[i].bytes) return Status::kUnexpectedTensor;
  }
  for (std::size_t i = 0; i < kStage[stage].made; ++i) {
    const auto* tensor = interpreter_->output(i);
    if (tensor == nullptr || tensor->bytes != kStage[stage].makes[i].bytes) return Status::kUnexpectedTensor;
  }
  return Status::kOk;
}

// Gives the stage what was handed over; of the first one's inputs, keeps what later stages read.
@class@::Status @class@::Read() {
  const Stage& stage = kStage[stage_];
  for (std::size_t i = 0; i < stage.read; ++i) {
    if (stage.reads[i].from_end == 0) continue;
    void* inside = interpreter_->input(i)->data.data;
    void* outside = At(stage.reads[i].from_end);
    if (stage_ == 0) {
      std::memcpy(outside, inside, stage.reads[i].bytes);
    } else {
      std::memcpy(inside, outside, stage.reads[i].bytes);
    }
  }
  return Status::kOk;
}

// Moves what the stage has made to the block's end. Its arena is of no more use, so it may be overwritten, but not
// what is still to be moved.
@class@::Status @class@::HandOver() {
  const Stage& stage = kStage[stage_];
  const unsigned char* made[kMostMade] = {};
  for (std::size_t i = 0; i < stage.made; ++i) {
    if (stage.makes[i].from_end != 0) {
      made[i] = static_cast<const unsigned char*>(interpreter_->output(i)->data.data);
    }
  }
  // The interpreter's own structures lie where the tensors go.
  End();
  for (std::size_t left = stage.made; left > 0; --left) {
    std::size_t next = 0;
    while (next < stage.made &&
           (made[next] == nullptr || Covers(stage, made, next, At(stage.makes[next].from_end)))) {
      ++next;
    }
    if (next == stage.made) break;
    std::memmove(At(stage.makes[next].from_end), made[next], stage.makes[next].bytes);
    made[next] = nullptr;
  }
  for (std::size_t i = 0; i < stage.made; ++i) {
    if (made[i] != nullptr) return Status::kBlockTooSmall;
  }
  return Status::kOk;
}

@class@::Status @class@::Prepare() {
  prepared_ = done_ = false;
  End();
  if (resolved_ != Status::kOk) return resolved_;
  if (bytes_ < kBlockBytes || bytes_ % kBlockAlignment != 0 ||
      reinterpret_cast<std::uintptr_t>(block_) % kBlockAlignment != 0) {
    return Status::kBlockTooSmall;
  }
  const Status status = Begin(0);
  prepared_ = status == Status::kOk;
  return status;
}

void* @class@::input(std::size_t i) {
  if (!prepared_ || i >= kInputs) return nullptr;
  if (kInput[i].place >= 0) return interpreter_->input(static_cast<std::size_t>(kInput[i].place))->data.data;
  return kInput[i].from_end != 0 ? At(kInput[i].from_end) : nullptr;
}

@class@::Status @class@::Invoke() {
  if (!prepared_) return Status::kNotPrepared;
  prepared_ = false;
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    Status status = stage == 0 ? Status::kOk : Begin(stage);
    if (status == Status::kOk) status = Read();
    if (status != Status::kOk) return status;
    if (static_cast<int>(interpreter_->Invoke()) != 0) return Status::kInvokeFailed;
    if (stage + 1 == kStages) break;
    status = HandOver();
    if (status != Status::kOk) return status;
  }
  done_ = true;
  return Status::kOk;
}

const void* @class@::output(std::size_t i) {
  if (!done_ || i >= kOutputs) return nullptr;
  if (kOutput[i].place >= 0) return interpreter_->output(static_cast<std::size_t>(kOutput[i].place))->data.data;
  return kOutput[i].from_end != 0 ? At(kOutput[i].from_end) : nullptr;
}

}  // namespace memsched
