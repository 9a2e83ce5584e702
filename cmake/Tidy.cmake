# cmake/Tidy.cmake
# Target `tidy`: clang-tidy on every file of the core; each file's result is kept until the file or one of its
# own headers changes.

find_program(CLANG_TIDY NAMES clang-tidy-19)
if(NOT CLANG_TIDY)
  return()
endif()

set(stamps)
foreach(source ${core_sources} ${cpu_sources} ${bolt_opt_source})
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
  set(stamp ${PROJECT_BINARY_DIR}/tidy/${name}.stamp)
  cmake_path(GET stamp PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(
    OUTPUT ${stamp}
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -MM -MF ${stamp}.d -MT ${stamp} -I${PROJECT_SOURCE_DIR}/src
            -isystem ${BOLT_LLVM_INCLUDE} ${source}
    COMMAND ${CLANG_TIDY} --quiet -p ${PROJECT_BINARY_DIR} ${source}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${source} ${PROJECT_SOURCE_DIR}/.clang-tidy
    DEPFILE ${stamp}.d
    COMMENT "clang-tidy ${name}"
    VERBATIM)
  list(APPEND stamps ${stamp})
endforeach()
add_custom_target(tidy DEPENDS ${stamps})
