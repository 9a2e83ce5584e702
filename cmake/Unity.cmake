# cmake/Unity.cmake
# BOLT_UNITY: the sources of a room (a folder of src/) -> a few units that include them, each compiled at once.
#
# Most of what compiling a file costs is torch's and LLVM's headers, the same for every file of a room. A unit
# reads them once: 380 s of one core for the whole package instead of about 950, which is what `make build` wants.
# An edit compiles its whole unit again, up to 40 s instead of 10, so a tree one works in does without.
#
# Units never mix rooms, whose names and macros are their own. What two files of a room both define in an unnamed
# namespace collides: one of them gets the name of what it is, or both share it. scripts/check_definitions.py finds
# it wherever the cuts between units fall. Both builds must pass.

option(BOLT_UNITY "Compile the files of a room together: everything sooner, one file later" OFF)
if(NOT BOLT_UNITY)
  function(bolt_unity target)
  endfunction()
  return()
endif()

# A unit for every core at least, so that none waits; and none that takes more than 1.5 GiB to compile. Kept in
# the cache, so that what is built is the same when CMake runs again.
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
set(BOLT_UNITY_UNITS ${cores} CACHE STRING "Units that a target is cut into, at least")
set(unit_most_bytes 131072)

# These stay by themselves.
set(alone
    src/interp/code.cpp            # <opcode.h> defines every opcode's name as a macro
    src/interp/loop_plain.cpp      # the two loops of the interpreter: what is inlined into them must not hang
    src/interp/loop_observed.cpp)  # on what else is in their unit

# bolt_unity(TARGET): to be called when the target has all its sources.
function(bolt_unity target)
  get_target_property(files ${target} SOURCES)
  set(rooms)
  set(total 0)
  foreach(file ${files})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${file})
    if(name IN_LIST alone)
      set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    string(REGEX MATCH "^(src/)?[^/]+/" room ${name})
    string(MAKE_C_IDENTIFIER ${room} room)
    file(SIZE ${file} bytes)
    list(APPEND rooms ${room})
    list(APPEND ${room}_files ${file})
    math(EXPR ${room}_bytes "${${room}_bytes} + ${bytes}")
    math(EXPR total "${total} + ${bytes}")
  endforeach()
  math(EXPR unit_bytes "${total} / ${BOLT_UNITY_UNITS} + 1")
  if(unit_bytes GREATER unit_most_bytes)
    set(unit_bytes ${unit_most_bytes})
  endif()

  list(REMOVE_DUPLICATES rooms)
  foreach(room ${rooms})
    bolt_cut_room(${room} ${unit_bytes} ${${room}_bytes} ${${room}_files})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP UNITY_BUILD_RELOCATABLE ON)
  # A class of a header whose hidden part is a type of its .cpp file: right, but a warning where that file is included.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

# bolt_cut_room(ROOM UNIT_BYTES BYTES FILE...): cuts the files, which are BYTES long, into units of about the same size.
function(bolt_cut_room room unit_bytes bytes)
  math(EXPR units "${bytes} / ${unit_bytes} + 1")
  set(before 0)
  foreach(file ${ARGN})
    math(EXPR unit "${before} * ${units} / (${bytes} + 1)")
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${room}${unit})
    file(SIZE ${file} size)
    math(EXPR before "${before} + ${size}")
  endforeach()
endfunction()
