// What firmware does with the files that memsched wrote, up to the interpreter.
#include <cstdio>
#include <cstring>

#include "person_detect_arena.h"

PERSON_DETECT_ALIGNED static unsigned char arena[PERSON_DETECT_ARENA_BYTES];
PERSON_DETECT_CHECK_ARENA(arena);

int main() {
  // With TensorFlow Lite Micro:
  //   tflite::MicroMutableOpResolver<PERSON_DETECT_RESOLVER_SIZE> resolver;  // the header lists what to add
  //   tflite::MicroInterpreter interpreter(tflite::GetModel(person_detect_model), resolver, arena, sizeof(arena));
  const bool is_model = std::memcmp(person_detect_model + 4, "TFL3", 4) == 0;
  std::printf("model %u bytes, arena %u bytes, %u operators to register\n",
              static_cast<unsigned>(PERSON_DETECT_MODEL_BYTES), static_cast<unsigned>(sizeof(arena)),
              static_cast<unsigned>(PERSON_DETECT_RESOLVER_SIZE));
  return is_model ? 0 : 1;
}
