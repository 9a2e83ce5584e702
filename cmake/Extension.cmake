# cmake/Extension.cmake
# src/{python,interp,guard,observe,record,autograd,lower,device,run,session}, compile.cpp, module.cpp -> torchbolt/_C, against the installed torch.

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

# torch is found without its CMake package, which wants the CUDA toolkit wherever torch was built with CUDA, and
# without importing it, which takes seconds.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import importlib.util, pathlib, runpy
folder = pathlib.Path(importlib.util.find_spec('torch').origin).parent
print(runpy.run_path(str(folder / 'version.py'))['__version__'], folder, sep=';')"
  OUTPUT_VARIABLE torch_facts OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE torch_missing)
if(torch_missing)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no torch; install it first (`make build` does)")
endif()
list(GET torch_facts 0 BOLT_TORCH_VERSION)
list(GET torch_facts 1 torch_dir)
message(STATUS "torch ${BOLT_TORCH_VERSION} in ${torch_dir}, Python ${Python_VERSION}")
if(BOLT_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torchbolt needs torch 2.11 or newer")
endif()

bolt_sources(ext_sources src/python src/interp src/guard src/observe src/record src/autograd src/lower src/device src/run src/session)
list(FILTER ext_sources EXCLUDE REGEX "/src/device/driver/")  # the core's
file(GLOB top_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp)
Python_add_library(_C MODULE WITH_SOABI ${ext_sources} ${top_sources})
bolt_target(_C)
# No precompiled header: one with Tensor.h and library.h takes 12 s, saves 0 to 3 s a file, and ccache does less. Units
# of many files (BOLT_UNITY) gain up to 10 s each, of a dozen, from one that takes 23 s and that all of them wait for.
# Python resolves every symbol when it loads a module, so calls of torch and Python need no stubs on their way.
target_compile_options(_C PRIVATE -fvisibility=hidden -fno-plt)
target_compile_definitions(_C PRIVATE BOLT_TORCH_VERSION="${BOLT_TORCH_VERSION}")
target_include_directories(_C SYSTEM PRIVATE ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include)
foreach(lib torch torch_cpu torch_python c10)
  target_link_libraries(_C PRIVATE ${torch_dir}/lib/lib${lib}.so)
endforeach()
target_link_libraries(_C PRIVATE bolt_core)
# Streams and exceptions cross between torch and us, so there must be one C++ runtime. Some toolchains take the static
# one unless told otherwise.
target_link_libraries(_C PRIVATE -l:libstdc++.so.6)
# Without OpenMP at compile time at::parallel_for is a plain loop. The runtime must be the one torch brings: a second
# one would have threads of its own.
target_compile_options(_C PRIVATE -fopenmp)
file(GLOB torch_openmp ${torch_dir}/lib/libgomp*.so* ${torch_dir}/lib/libomp*.so* ${torch_dir}/lib/libiomp*.so*)
if(torch_openmp)
  target_link_libraries(_C PRIVATE ${torch_openmp})
else()
  find_package(OpenMP REQUIRED)
  target_link_libraries(_C PRIVATE OpenMP::OpenMP_CXX)
endif()
set_target_properties(_C PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${BOLT_PACKAGE_DIR}
                      BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib")
install(TARGETS _C LIBRARY DESTINATION torchbolt COMPONENT python)

# The importable package in the build tree: links to the Python files and the report's page, and what this build was made for.
file(GLOB_RECURSE python_files RELATIVE ${PROJECT_SOURCE_DIR}/torchbolt CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/torchbolt/*.py ${PROJECT_SOURCE_DIR}/torchbolt/*.pyi ${PROJECT_SOURCE_DIR}/torchbolt/*.html)
foreach(file ${python_files})
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY ${BOLT_PACKAGE_DIR}/${folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/torchbolt/${file} ${BOLT_PACKAGE_DIR}/${file} SYMBOLIC)
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/_build.py.in ${BOLT_PACKAGE_DIR}/_build.py @ONLY)
install(FILES ${BOLT_PACKAGE_DIR}/_build.py DESTINATION torchbolt COMPONENT python)

# What an installed package says of itself, for the build tree: pyproject.toml's entry points are found through it.
set(facts ${PROJECT_BINARY_DIR}/python/torchbolt-${PROJECT_VERSION}.dist-info)
file(WRITE ${facts}/METADATA "Metadata-Version: 2.1\nName: torchbolt\nVersion: ${PROJECT_VERSION}\n")
file(STRINGS ${PROJECT_SOURCE_DIR}/pyproject.toml backend REGEX "^torchbolt = \"torchbolt\\.api:")
string(REPLACE "\"" "" backend "${backend}")
file(WRITE ${facts}/entry_points.txt "[torch_dynamo_backends]\n${backend}\n")

# What `pip install` builds: the tests stay out.
add_custom_target(torchbolt_package DEPENDS _C $<$<TARGET_EXISTS:bolt-opt>:bolt-opt>)
