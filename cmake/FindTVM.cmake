# Finds the headers of TVM 0.19 and sets TVM_INCLUDE_DIRS.
#
# TVM_DTR_TVM_HOME (environment or -D) names a source tree or build of TVM 0.19, for users of
# CUDA or of their own TVM; without it the headers come from the installed `tvm` package.
if(NOT TVM_DTR_TVM_HOME AND DEFINED ENV{TVM_DTR_TVM_HOME})
  set(TVM_DTR_TVM_HOME $ENV{TVM_DTR_TVM_HOME})
endif()
if(TVM_DTR_TVM_HOME)
  set(tvm_root ${TVM_DTR_TVM_HOME})
else()
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import importlib.util as u; s = u.find_spec('tvm'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE tvm_root)
endif()
if(NOT EXISTS "${tvm_root}/include/tvm/runtime/vm/vm.h")
  message(FATAL_ERROR "No TVM 0.19 headers with the Relay VM under '${tvm_root}': install "
                      "xtc-tvm-python-bindings==0.19.0.12 or set TVM_DTR_TVM_HOME to a TVM 0.19 tree.")
endif()
set(TVM_INCLUDE_DIRS ${tvm_root}/include ${tvm_root}/3rdparty/dlpack/include
                     ${tvm_root}/3rdparty/dmlc-core/include)
