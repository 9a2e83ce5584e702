# cmake/LLVM.cmake
# LLVM 19 of the system -> BOLT_LLVM_INCLUDE and BOLT_LLVM_LIBS: static archives, only the parts codegen/cpu needs.
#
# llvm-config is asked instead of LLVM's CMake package, which insists on the development files of libraries that
# nothing here uses (libedit, libxml2, z3). zlib and zstd (compressed ELF sections) are linked statically as
# well, so that the core runs where they are not installed.

find_program(LLVM_CONFIG NAMES llvm-config-19 HINTS /usr/lib/llvm-19/bin REQUIRED)

function(bolt_llvm_config out)
  execute_process(COMMAND ${LLVM_CONFIG} --link-static ${ARGN} OUTPUT_VARIABLE text
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "[ \n]+" ";" text "${text}")
  set(${out} ${text} PARENT_SCOPE)
endfunction()

bolt_llvm_config(BOLT_LLVM_INCLUDE --includedir)
bolt_llvm_config(BOLT_LLVM_LIBS --libfiles core orcjit passes x86codegen x86asmparser)
find_library(BOLT_ZLIB NAMES libz.a REQUIRED)
find_library(BOLT_ZSTD NAMES libzstd.a REQUIRED)
list(APPEND BOLT_LLVM_LIBS ${BOLT_ZLIB} ${BOLT_ZSTD})

# LLVM's own linker links its 50 archives in two seconds instead of twenty.
bolt_llvm_config(llvm_bin --bindir)
if(EXISTS ${llvm_bin}/ld.lld)
  set(BOLT_LLVM_LINKER -B${llvm_bin} -fuse-ld=lld)
endif()
