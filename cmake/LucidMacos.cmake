# The oldest macOS that is built for: what the metal backend calls of MPSGraph is there from 14 on.
# To be included before project(), which looks at the target.

set(LUCID_OLDEST_MACOS 14.0)
if(CMAKE_HOST_APPLE)
  set(lucid_target "$ENV{MACOSX_DEPLOYMENT_TARGET}")
  if(CMAKE_OSX_DEPLOYMENT_TARGET)
    set(lucid_target ${CMAKE_OSX_DEPLOYMENT_TARGET})
  endif()
  if("${lucid_target}" STREQUAL "" OR lucid_target VERSION_LESS LUCID_OLDEST_MACOS)
    set(CMAKE_OSX_DEPLOYMENT_TARGET ${LUCID_OLDEST_MACOS} CACHE STRING "Oldest macOS" FORCE)
  endif()
endif()
