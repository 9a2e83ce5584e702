# cmake/InterpOnly.cmake
# src/{support,python,interp} + tests/interp/standalone_module.cpp -> _interp, a module without torch and LLVM.
# It lets the interpreter be tested on any Python that has headers, torch or not.

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
set(interp_module ${PROJECT_SOURCE_DIR}/tests/interp/standalone_module.cpp)
if(NOT EXISTS ${interp_module})
  message(FATAL_ERROR "tests/interp/standalone_module.cpp (which defines PyInit__interp) is missing")
endif()

bolt_sources(interp_sources src/support src/python src/interp)
Python_add_library(_interp MODULE WITH_SOABI ${interp_sources} ${interp_module})
bolt_target(_interp)
target_compile_options(_interp PRIVATE -fvisibility=hidden)
target_link_libraries(_interp PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(_interp PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python)
