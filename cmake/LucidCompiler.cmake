# Build type, language level and the flags of our own code (target lucid_flags).

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(LUCID_CCACHE ccache)
  if(LUCID_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${LUCID_CCACHE})
  endif()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)

# -ffp-contract=off and no fast-math: eager and compiled code must round alike.
add_library(lucid_flags INTERFACE)
target_include_directories(lucid_flags INTERFACE ${PROJECT_SOURCE_DIR}/csrc)
target_link_libraries(lucid_flags INTERFACE Threads::Threads)
target_compile_options(
  lucid_flags INTERFACE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra
                        -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms inside std::string (GCC bug 105651) and std::variant (GCC bug 80635) at -O3;
  # to go with GCC 12.
  target_compile_options(
    lucid_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict> $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()
if(LUCID_WERROR)
  target_compile_options(lucid_flags INTERFACE -Werror)
endif()
if(LUCID_SANITIZE)
  target_compile_options(
    lucid_flags INTERFACE -fsanitize=${LUCID_SANITIZE} -fno-sanitize-recover=all
                          -fno-omit-frame-pointer -g -UNDEBUG)
  target_link_options(lucid_flags INTERFACE -fsanitize=${LUCID_SANITIZE})
endif()
