# memsched_model(app model.tflite BUDGET 80KB [STAGES] [RULES tflm] [ALLOW reorder,inplace,tile])
#
# Fits model.tflite into BUDGET bytes of arena while app is built, and gives app the result: the header
# <stem>_arena.h, with the arena's size and what the resolver must be told of, and the model as a C array. A model that
# does not fit, or whose outputs change, ends the build. RULES is memsched's --target, ALLOW its --allow. With STAGES the
# model is cut into files that run one after the other in one block of BUDGET bytes: app gets <stem>_relay.h and
# <stem>_relay.cc, the C++17 that executes them.
include_guard(GLOBAL)

set(MEMSCHED_COMMAND memsched CACHE STRING "How memsched is called: a program, or a list with its first arguments")

function(memsched_model app model)
  cmake_parse_arguments(PARSE_ARGV 2 arg "STAGES" "BUDGET;RULES;ALLOW" "")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_BUDGET)
    message(FATAL_ERROR "memsched_model(app model.tflite BUDGET 80KB [STAGES] [RULES tflm] [ALLOW LIST])")
  endif()
  if(NOT arg_RULES)
    set(arg_RULES tflm)
  endif()
  set(allow)
  if(arg_ALLOW)
    set(allow --allow ${arg_ALLOW})
  endif()
  get_filename_component(source ${model} ABSOLUTE)
  get_filename_component(stem ${model} NAME_WE)
  # The array is C and C++: what the project compiles.
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(suffix cc)
  if(C IN_LIST languages)
    set(suffix c)
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/memsched/${app})
  set(command optimize)
  set(names ${stem}_arena.h ${stem}_model.${suffix})
  set(written --output ${folder}/tried/${stem}.tflite --header ${folder}/tried/${stem}_arena.h --c-array
              ${folder}/tried/${stem}_model.${suffix})
  if(arg_STAGES)
    set(command relay)
    set(names ${stem}_relay.h ${stem}_relay.cc)
    set(written --output ${folder}/tried)
  endif()
  list(TRANSFORM names PREPEND ${folder}/ OUTPUT_VARIABLE outputs)
  list(TRANSFORM names PREPEND ${folder}/tried/ OUTPUT_VARIABLE tried)
  # Only what memsched was content with takes the names that app is built of.
  add_custom_command(
    OUTPUT ${outputs}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}/tried
    COMMAND
      ${MEMSCHED_COMMAND} ${command} ${source} --target ${arg_RULES} --budget ${arg_BUDGET} ${allow} --quiet ${written}
    COMMAND ${CMAKE_COMMAND} -E copy ${tried} ${folder}
    DEPENDS ${source}
    COMMENT "Fitting ${stem} into ${arg_BUDGET}"
    VERBATIM)
  target_sources(${app} PRIVATE ${outputs})
  target_include_directories(${app} PRIVATE ${folder})
endfunction()
