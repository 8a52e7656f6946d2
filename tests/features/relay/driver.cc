// Lets a test call a generated runner: RUNNER is its class, HEADER its header.
#include HEADER

#include <cstring>
#include <new>

using Runner = memsched::RUNNER;

extern "C" {
void* runner_new(unsigned char* block, std::size_t bytes) { return new (std::nothrow) Runner(block, bytes); }
void runner_delete(void* one) { delete static_cast<Runner*>(one); }
std::size_t runner_block_bytes() { return Runner::kBlockBytes; }
std::size_t runner_stage(void* one) { return static_cast<Runner*>(one)->stage(); }
int runner_prepare(void* one) { return static_cast<int>(static_cast<Runner*>(one)->Prepare()); }
int runner_invoke(void* one) { return static_cast<int>(static_cast<Runner*>(one)->Invoke()); }
void* runner_input(void* one, std::size_t i) { return static_cast<Runner*>(one)->input(i); }
const void* runner_output(void* one, std::size_t i) { return static_cast<Runner*>(one)->output(i); }
std::size_t runner_input_bytes(std::size_t i) { return Runner::kInputBytes[i]; }
std::size_t runner_output_bytes(std::size_t i) { return Runner::kOutputBytes[i]; }
}
