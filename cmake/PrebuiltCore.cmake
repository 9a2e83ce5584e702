# cmake/PrebuiltCore.cmake
# A core made by `make core-dist` (packed or unpacked) -> target bolt_core, so that neither LLVM nor
# the minutes it takes are needed. It fits these sources only while its headers are the same.

if(IS_DIRECTORY ${BOLT_CORE_PREBUILT})
  set(core_dir ${BOLT_CORE_PREBUILT})
else()
  set(core_dir ${PROJECT_BINARY_DIR}/core)
  file(REMOVE_RECURSE ${core_dir})
  file(ARCHIVE_EXTRACT INPUT ${BOLT_CORE_PREBUILT} DESTINATION ${core_dir})
  string(APPEND core_dir /torchbolt-core)
endif()
include(${core_dir}/torchbolt_core.cmake)
message(STATUS "prebuilt core ${TORCHBOLT_CORE_VERSION} in ${core_dir}")
if(NOT TORCHBOLT_CORE_VERSION VERSION_EQUAL PROJECT_VERSION)
  message(FATAL_ERROR "this source is ${PROJECT_VERSION}, the prebuilt core is ${TORCHBOLT_CORE_VERSION}")
endif()
file(GLOB_RECURSE core_headers RELATIVE ${core_dir}/include ${core_dir}/include/*)
foreach(header ${core_headers})
  execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${core_dir}/include/${header}
                          ${PROJECT_SOURCE_DIR}/src/${header} RESULT_VARIABLE differs ERROR_QUIET)
  if(differs)
    message(FATAL_ERROR "the prebuilt core was made from another src/${header}: make core-dist again")
  endif()
endforeach()

file(COPY ${core_dir}/libtorchbolt_core.so DESTINATION ${BOLT_PACKAGE_DIR})
add_library(bolt_core SHARED IMPORTED)
set_target_properties(bolt_core PROPERTIES IMPORTED_LOCATION ${BOLT_PACKAGE_DIR}/libtorchbolt_core.so
                      IMPORTED_SONAME libtorchbolt_core.so)
install(FILES ${core_dir}/libtorchbolt_core.so DESTINATION torchbolt COMPONENT python)
if(EXISTS ${core_dir}/bin/bolt-opt)
  file(COPY ${core_dir}/bin/bolt-opt DESTINATION ${BOLT_PACKAGE_DIR}/bin)
  install(PROGRAMS ${core_dir}/bin/bolt-opt DESTINATION torchbolt/bin COMPONENT python)
endif()
