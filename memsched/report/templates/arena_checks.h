#if defined(__cplusplus)
#define @name@_STATIC_ASSERT(condition, text) static_assert(condition, text)
#define @name@_ALIGNED alignas(@name@_ARENA_ALIGNMENT)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define @name@_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#define @name@_ALIGNED _Alignas(@name@_ARENA_ALIGNMENT)
#else
#define @name@_STATIC_ASSERT(condition, text) extern char @name@_assertion[(condition) ? 1 : -1]
#define @name@_ALIGNED __attribute__((aligned(@name@_ARENA_ALIGNMENT)))
#endif
/* @name@_ALIGNED static uint8_t arena[@name@_ARENA_BYTES]; then @name@_CHECK_ARENA(arena); */
#define @name@_CHECK_ARENA(array) \
    @name@_STATIC_ASSERT(sizeof(array) >= @name@_ARENA_BYTES, "the arena is too small for this model")
@name@_STATIC_ASSERT((@name@_ARENA_ALIGNMENT & (@name@_ARENA_ALIGNMENT - 1)) == 0, "an alignment is a power of two");
