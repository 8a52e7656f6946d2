// Firmware with a generated runner: RUNNER is its class, HEADER its header; cases.h has inputs and outputs.
#include HEADER

#include <cstdio>
#include <cstring>

#include "cases.h"

using Runner = memsched::RUNNER;

// Exactly as large as the header says.
alignas(Runner::kBlockAlignment) static unsigned char block[Runner::kBlockBytes + kMoreBytes];

int main() {
  static Runner model(block, sizeof(block));
  for (unsigned number = 0; number < 2 * kCases; ++number) {
    if (model.Prepare() != Runner::Status::kOk) {
      std::printf("Prepare failed in stage %u\n", static_cast<unsigned>(model.stage()));
      return 1;
    }
    // Each input twice in a row.
    std::memcpy(model.input(0), kCaseInputs[number / 2], Runner::kInputBytes[0]);
    if (model.Invoke() != Runner::Status::kOk) {
      std::printf("Invoke failed in stage %u\n", static_cast<unsigned>(model.stage()));
      return 1;
    }
    if (std::memcmp(model.output(0), kCaseOutputs[number / 2], Runner::kOutputBytes[0]) != 0) {
      std::printf("other outputs on input %u\n", number / 2);
      return 1;
    }
  }
  std::printf("%u inputs, equal outputs\n", kCases);
  return 0;
}
