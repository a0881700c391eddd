# The math libraries of the cpu backend (target lucid_math): oneDNN and CBLAS.
# LUCID_BUNDLED_LIBRARIES lists shared libraries to install beside the module, as path and name.

add_library(lucid_math INTERFACE)
set(LUCID_BUNDLED_LIBRARIES "")

# Sets `result` to the output of a line of Python, or to nothing if it fails.
function(lucid_ask_python result code)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "${code}" OUTPUT_VARIABLE output
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(output "")
  endif()
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

# Sets `result` to the place of an installed distribution's file, or to nothing.
function(lucid_find_distribution_file result distribution name)
  lucid_ask_python(output "
import importlib.metadata as metadata
files = metadata.files('${distribution}') or []
found = [f for f in files if f.name == '${name}']
print(found[0].locate().resolve().as_posix() if found else '')")
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

# Links a shared library by its headers and place, and has it installed as `name`.
macro(lucid_use_library target include_dir library name)
  add_library(${target} SHARED IMPORTED)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${library})
  target_include_directories(${target} SYSTEM INTERFACE ${include_dir})
  target_link_libraries(lucid_math INTERFACE ${target})
  list(APPEND LUCID_BUNDLED_LIBRARIES ${library} ${name})
endmacro()

function(lucid_find_onednn include_result library_result)
  # The system's, unless its headers and library are not of version 3.
  find_path(include_dir dnnl.hpp PATH_SUFFIXES include NO_CACHE NO_PACKAGE_ROOT_PATH
            NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH)
  find_library(library NAMES libdnnl.so.3 dnnl NO_CACHE NO_PACKAGE_ROOT_PATH NO_CMAKE_PATH
               NO_CMAKE_ENVIRONMENT_PATH)
  set(version_header ${include_dir}/oneapi/dnnl/dnnl_version.h)
  if(include_dir AND library AND EXISTS ${version_header})
    file(STRINGS ${version_header} version REGEX "define DNNL_VERSION_MAJOR +3")
    if(version)
      file(REAL_PATH ${library} library)
      set(${include_result} ${include_dir} PARENT_SCOPE)
      set(${library_result} ${library} PARENT_SCOPE)
      return()
    endif()
  endif()
  lucid_find_distribution_file(header onednn-devel-cpu-gomp dnnl.hpp)
  lucid_find_distribution_file(library onednn-cpu-gomp libdnnl.so.3)
  cmake_path(GET header PARENT_PATH include_dir)
  # The list holds dnnl.hpp twice: include/dnnl.hpp includes the one of include/oneapi/dnnl.
  string(REGEX REPLACE "/oneapi/dnnl$" "" include_dir "${include_dir}")
  set(${include_result} "${include_dir}" PARENT_SCOPE)
  set(${library_result} "${library}" PARENT_SCOPE)
endfunction()

set(LUCID_HAS_ONEDNN OFF)
if(CMAKE_SYSTEM_NAME STREQUAL Linux AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  lucid_find_onednn(LUCID_ONEDNN_INCLUDE LUCID_ONEDNN_LIBRARY)
  if(LUCID_ONEDNN_INCLUDE AND LUCID_ONEDNN_LIBRARY)
    set(LUCID_HAS_ONEDNN ON)
    lucid_use_library(lucid_onednn ${LUCID_ONEDNN_INCLUDE} ${LUCID_ONEDNN_LIBRARY} libdnnl.so.3)
    target_compile_definitions(lucid_math INTERFACE LUCID_HAS_ONEDNN=1)
  endif()
endif()

set(LUCID_HAS_CBLAS OFF)
if(NOT LUCID_CBLAS STREQUAL OFF)
  if(APPLE)
    set(LUCID_HAS_CBLAS ON)
    target_link_libraries(lucid_math INTERFACE "-framework Accelerate")
    target_compile_definitions(lucid_math INTERFACE LUCID_HAS_CBLAS=1 ACCELERATE_NEW_LAPACK)
  else()
    # Found without an import, which a library for another processor would not survive.
    lucid_find_distribution_file(openblas_header scipy-openblas32 cblas.h)
    lucid_find_distribution_file(openblas_library scipy-openblas32 libscipy_openblas.so)
    if(openblas_header AND openblas_library)
      set(LUCID_HAS_CBLAS ON)
      cmake_path(GET openblas_header PARENT_PATH openblas_include)
      lucid_use_library(lucid_openblas ${openblas_include} ${openblas_library}
                        libscipy_openblas.so)
      # Its functions are called scipy_cblas_sgemm and so on.
      target_compile_definitions(lucid_math INTERFACE LUCID_HAS_CBLAS=1 LUCID_CBLAS_PREFIX=scipy_)
    endif()
  endif()
endif()

message(STATUS "oneDNN: ${LUCID_HAS_ONEDNN} ${LUCID_ONEDNN_LIBRARY}")
message(STATUS "CBLAS: ${LUCID_HAS_CBLAS} ${openblas_library}")
if(LUCID_CBLAS STREQUAL ON AND NOT LUCID_HAS_CBLAS)
  message(FATAL_ERROR "LUCID_CBLAS=ON, but no CBLAS was found: pip install scipy-openblas32")
endif()
if(NOT LUCID_HAS_ONEDNN AND NOT LUCID_HAS_CBLAS)
  message(FATAL_ERROR "neither oneDNN nor CBLAS was found: pip install onednn-devel-cpu-gomp "
                      "(Linux on x86-64) or scipy-openblas32 (elsewhere)")
endif()
