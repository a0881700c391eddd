# C++ tests: each tests/cpp/*.cpp is one executable, and where metal is built each
# tests/cpp/metal/*.cpp; every header must compile alone.

file(GLOB test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cpp/*.cpp)
if(LUCID_HAS_METAL)
  file(GLOB metal_test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cpp/metal/*.cpp)
  list(APPEND test_sources ${metal_test_sources})
endif()
foreach(source IN LISTS test_sources)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE lucid_compile lucid_math)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/cpp)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endforeach()

# Bindings need Python.h, metal needs Apple's headers: their own sources compile those.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/csrc
     ${PROJECT_SOURCE_DIR}/csrc/*.h)
list(FILTER headers EXCLUDE REGEX "^(bindings|backends/metal)/")
set(header_sources "")
foreach(header IN LISTS headers)
  set(header_source ${PROJECT_BINARY_DIR}/headers/${header}.cpp)
  file(CONFIGURE OUTPUT ${header_source} CONTENT "#include \"@header@\"\n" @ONLY)
  list(APPEND header_sources ${header_source})
endforeach()
if(header_sources)
  add_library(lucid_headers OBJECT ${header_sources})
  target_link_libraries(lucid_headers PRIVATE lucid_compile lucid_math)
  target_compile_definitions(lucid_headers PRIVATE LUCID_ISA=baseline)
endif()

# An inline function that only the AVX objects hold would crash an older machine.
get_property(isa_targets GLOBAL PROPERTY LUCID_ISA_TARGETS)
list(LENGTH isa_targets num_isa_targets)
if(num_isa_targets GREATER 1 AND CMAKE_NM)
  set(arguments "")
  foreach(target IN LISTS isa_targets)
    string(REGEX REPLACE ".*_" "" isa ${target})
    list(APPEND arguments --${isa} $<TARGET_OBJECTS:${target}>)
  endforeach()
  add_test(NAME isa_symbols COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/isa_symbols.py
                                    --nm ${CMAKE_NM} ${arguments} COMMAND_EXPAND_LISTS)
endif()
