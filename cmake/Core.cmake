# cmake/Core.cmake
# src/{support,graph,loops,codegen,cache,opt} -> libtorchbolt_core.so, bolt-opt, bolt_tests, and the packed core.

include(Hiredis)
include(LLVM)
find_package(Threads REQUIRED)

bolt_sources(core_sources src/support src/graph src/loops src/codegen/common src/codegen/cuda src/cache
             src/device/driver src/opt)
add_library(bolt_core SHARED ${core_sources})
target_include_directories(bolt_core INTERFACE ${PROJECT_SOURCE_DIR}/src)
bolt_target(bolt_core)

# Only codegen/cpu sees LLVM's headers: any other folder that includes one fails to compile.
bolt_sources(cpu_sources src/codegen/cpu)
if(cpu_sources)
  add_library(bolt_codegen_cpu OBJECT ${cpu_sources})
  bolt_target(bolt_codegen_cpu)
  target_include_directories(bolt_codegen_cpu SYSTEM PRIVATE ${BOLT_LLVM_INCLUDE})
  target_link_libraries(bolt_core PRIVATE bolt_codegen_cpu ${BOLT_LLVM_LIBS})
endif()
target_link_libraries(bolt_core PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
if(BOLT_HIREDIS)
  target_compile_definitions(bolt_core PRIVATE BOLT_HIREDIS)
  target_include_directories(bolt_core SYSTEM PRIVATE ${BOLT_HIREDIS_INCLUDE})
  target_link_libraries(bolt_core PRIVATE ${BOLT_HIREDIS_LIB})
endif()

# The version script keeps every symbol but `bolt::*` out of the export table: another LLVM in the same process
# (Triton, numba) never meets ours. The build id names this exact library in cache keys.
target_link_options(bolt_core PRIVATE ${BOLT_LLVM_LINKER} -Wl,--gc-sections
                    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/core.map
                    -Wl,--build-id=sha1 -Wl,-Bsymbolic-functions -Wl,-z,defs)
set_target_properties(bolt_core PROPERTIES OUTPUT_NAME torchbolt_core INSTALL_RPATH "$ORIGIN"
                      LIBRARY_OUTPUT_DIRECTORY ${BOLT_PACKAGE_DIR}
                      LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/core.map)
install(TARGETS bolt_core LIBRARY DESTINATION torchbolt COMPONENT python)
install(TARGETS bolt_core LIBRARY DESTINATION . COMPONENT core)

file(GLOB bolt_opt_source CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/bolt-opt.cpp)
if(bolt_opt_source)
  add_executable(bolt-opt ${bolt_opt_source})
  bolt_target(bolt-opt)
  target_link_libraries(bolt-opt PRIVATE bolt_core)
  set_target_properties(bolt-opt PROPERTIES INSTALL_RPATH "$ORIGIN/.." BUILD_WITH_INSTALL_RPATH ON
                        RUNTIME_OUTPUT_DIRECTORY ${BOLT_PACKAGE_DIR}/bin)
  install(TARGETS bolt-opt RUNTIME DESTINATION torchbolt/bin COMPONENT python)
  install(TARGETS bolt-opt RUNTIME DESTINATION bin COMPONENT core)
endif()

# Graphs and kernels run the slow and obvious way, which tests compare with.
file(GLOB reference_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/reference/*.cpp)
add_library(bolt_reference OBJECT EXCLUDE_FROM_ALL ${reference_sources})
bolt_target(bolt_reference)
target_include_directories(bolt_reference PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(bolt_reference PUBLIC bolt_core)

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*_test.cpp)
if(BOLT_TESTS AND test_sources)
  find_package(GTest REQUIRED)
  enable_testing()
  add_executable(bolt_tests ${test_sources})
  bolt_target(bolt_tests)
  # Tests read their text-form files from here.
  target_compile_definitions(bolt_tests PRIVATE BOLT_TEST_DIR="${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(bolt_tests PRIVATE bolt_reference GTest::gtest GTest::gtest_main)
  set_target_properties(bolt_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  add_test(NAME bolt_tests COMMAND bolt_tests)
endif()

# Runs kernels on a CUDA device, compiles them for one without, and runs them on one that is emulated:
# tests/cuda/test_gpu.py, test_emulated.py.
if(BOLT_TESTS)
  add_library(emulated_gpu MODULE ${PROJECT_SOURCE_DIR}/tests/cuda/emulate/device.cpp
                                  ${PROJECT_SOURCE_DIR}/tests/cuda/emulate/threads.cpp
                                  ${PROJECT_SOURCE_DIR}/tests/cuda/emulate/compiler.cpp)
  bolt_target(emulated_gpu)
  target_compile_definitions(emulated_gpu PRIVATE BOLT_EMULATE_COMPILER="${CMAKE_CXX_COMPILER}"
                                                  BOLT_EMULATE_DIR="${PROJECT_SOURCE_DIR}/tests/cuda/emulate")
  target_link_libraries(emulated_gpu PRIVATE ${CMAKE_DL_LIBS})
  # Only who opens it by its path has it for a driver.
  target_link_options(emulated_gpu PRIVATE -Wl,-soname,libcuda.so.1)
  set_target_properties(emulated_gpu PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${BOLT_PACKAGE_DIR}/bin)
endif()
file(GLOB gpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cuda/gpu/*.cpp)
add_executable(run_on_gpu ${PROJECT_SOURCE_DIR}/tests/cuda/run_on_gpu.cpp ${gpu_sources})
if(NOT BOLT_TESTS)
  set_target_properties(run_on_gpu PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
bolt_target(run_on_gpu)
target_link_libraries(run_on_gpu PRIVATE bolt_reference)
set_target_properties(run_on_gpu PROPERTIES INSTALL_RPATH "$ORIGIN/.." BUILD_WITH_INSTALL_RPATH ON
                      RUNTIME_OUTPUT_DIRECTORY ${BOLT_PACKAGE_DIR}/bin)

# Times contraction kernels beside torch's: `ninja gemm_bench`, then bench/micro/gemm.py <its path>.
add_library(gemm_bench MODULE EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/micro/gemm_bench.cpp)
bolt_target(gemm_bench)
target_include_directories(gemm_bench PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(gemm_bench PRIVATE bolt_core)

# `make core-dist`: the library and bolt-opt (above), the headers they were made from, and what PrebuiltCore.cmake reads.
foreach(folder support graph loops codegen cache device/driver opt)
  get_filename_component(parent ${folder} DIRECTORY)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/${folder} DESTINATION include/${parent} COMPONENT core OPTIONAL
          FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/torchbolt_core.cmake.in torchbolt_core.cmake @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/torchbolt_core.cmake DESTINATION . COMPONENT core)

include(Tidy)
