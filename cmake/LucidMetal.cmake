# Decides whether csrc/backends/metal is built (LUCID_HAS_METAL).

set(LUCID_HAS_METAL OFF)
if(LUCID_METAL STREQUAL host)
  message(FATAL_ERROR "LUCID_METAL=host: the test double of Metal is not part of this version; "
                      "use ON (macOS) or OFF")
elseif(LUCID_METAL STREQUAL AUTO)
  # The folder may not be there yet.
  file(GLOB metal_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/backends/metal/*.mm)
  if(APPLE AND metal_sources)
    set(LUCID_HAS_METAL ON)
  endif()
elseif(LUCID_METAL)
  if(NOT APPLE)
    message(FATAL_ERROR "LUCID_METAL=ON needs macOS; this is ${CMAKE_SYSTEM_NAME}; use OFF")
  endif()
  set(LUCID_HAS_METAL ON)
endif()
if(LUCID_HAS_METAL)
  enable_language(OBJCXX)
  set(CMAKE_OBJCXX_STANDARD 20)
  set(CMAKE_OBJCXX_STANDARD_REQUIRED ON)
endif()
message(STATUS "Metal: ${LUCID_HAS_METAL}")
