# cmake/Hiredis.cmake
# hiredis of the system -> BOLT_HIREDIS_LIB, linked statically as LLVM is, so that a wheel needs nothing beside it.
#
# Where it is not installed the core is built without: everything works but a cache on a Redis server, of which one
# sentence says why (src/cache/redis.h).

find_library(BOLT_HIREDIS_LIB NAMES libhiredis.a)
find_path(BOLT_HIREDIS_INCLUDE NAMES hiredis.h PATH_SUFFIXES hiredis)
if(BOLT_HIREDIS_LIB AND BOLT_HIREDIS_INCLUDE)
  set(BOLT_HIREDIS ON)
else()
  set(BOLT_HIREDIS OFF)
  message(STATUS "hiredis (libhiredis-dev) is not here: this build uses no cache on a Redis server")
endif()
