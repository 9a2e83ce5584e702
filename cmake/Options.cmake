# cmake/Options.cmake
# What every target shares: language, flags, ccache, where results go.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# -O3 doubles the compile time of the files that include ATen and gains nothing: the hot loops are emitted code.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g0 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g -gsplit-dwarf")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# The package as Python sees it; shared libraries land next to the (symlinked) Python files.
set(BOLT_PACKAGE_DIR ${PROJECT_BINARY_DIR}/python/torchbolt)

# bolt_sources(VAR folder...): all .cpp files below the folders, re-globbed when files come or go.
function(bolt_sources out)
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE folders)
  list(TRANSFORM folders APPEND "/*.cpp" OUTPUT_VARIABLE patterns)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${patterns})
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# bolt_target(TARGET): our own code is compiled with the full set of warnings.
function(bolt_target target)
  # GCC takes the members of a std::variant that are not there for ones that might be.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-maybe-uninitialized -ffunction-sections -fdata-sections
                                            -fvisibility-inlines-hidden)
  target_compile_definitions(${target} PRIVATE BOLT_VERSION="${PROJECT_VERSION}")
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  bolt_unity(${target})
endfunction()
