// Declarations for tests; see README.md.
#ifndef TESTS_SCHEMA_GENERATED_H_
#define TESTS_SCHEMA_GENERATED_H_

#include <cstdint>
#include <cstring>

namespace tflite {

class Model {
 public:
  std::uint32_t version() const { return 3; }
};

inline const Model* GetModel(const void* buffer) {
  std::uint32_t root;
  std::memcpy(&root, buffer, sizeof(root));
  return reinterpret_cast<const Model*>(static_cast<const unsigned char*>(buffer) + root);
}

}  // namespace tflite

#endif  // TESTS_SCHEMA_GENERATED_H_
