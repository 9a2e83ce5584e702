// observe/calls/controls.cpp
#include "observe/calls/controls.h"

#include <string_view>
#include <unordered_map>
#include <vector>

#include "guard/tensors.h"
#include "observe/calls/torch_marks.h"
#include "observe/observation.h"
#include "observe/world.h"
#include "python/compat.h"
#include "python/py_ref.h"
#include "python/slots.h"
#include "support/pointer_map.h"

namespace bolt::observe {
namespace {

/// What mark_callable was told. Callables live as long as the process.
struct Mark {
  Control control;
  PyRef callable, by;
};
std::unordered_map<PyObject*, Mark>& marks() {
  static auto* all = new std::unordered_map<PyObject*, Mark>();
  return *all;
}
bool native_is_marked = false;

/// A Python function, by the module it was written in and its qualified name there: a decorator that copies
/// these to its wrapper changes nothing of that. Names under torch._dynamo and torch._functorch are functions
/// that users' code reaches through torch's public ones: recognised when met, never imported or called.
struct ControlRow {
  const char *module, *name;
  Control control;
};
constexpr ControlRow kControls[] = {
    // Models take their traceable branches on "yes".
    {"torch.compiler", "is_compiling", Control::asks_whether_compiling},
    {"torch.compiler", "is_dynamo_compiling", Control::asks_whether_compiling},
    {"torch._dynamo.external_utils", "is_compiling", Control::asks_whether_compiling},
    {"torchbolt.controls", "is_compiling", Control::asks_whether_compiling},
    {"torchbolt.stand_ins.functions", "_differs", Control::asks_whether_differing},
    {"torch._dynamo.decorators", "graph_break", Control::ends_region},
    {"torchbolt.controls", "graph_break", Control::ends_region},
    // torch's own functions that torch.compile shall not look into: what matters is the function inside.
    {"torch._compile", "_disable_dynamo.<locals>.inner", Control::substituted},
    // Who logs what a collective raised: the collective itself may be one that is recorded.
    {"torch.distributed.c10d_logger", "_exception_logger.<locals>.wrapper", Control::substituted},
    // DDP speaks to its reducer there, which keeps books of each pass, and may put a node behind the result.
    {"torch.nn.parallel.distributed", "DistributedDataParallel._pre_forward", Control::apart},
    {"torch.nn.parallel.distributed", "DistributedDataParallel._post_forward", Control::apart},
    // FSDP gives parameters other memory there, and waits for it.
    {"torch.distributed.fsdp._runtime_utils", "_root_pre_forward", Control::apart},
    {"torch.distributed.fsdp._runtime_utils", "_pre_forward", Control::apart},
    {"torch.distributed.fsdp._runtime_utils", "_post_forward", Control::apart},
    // What makes distributed tensors of others, and others of them: Python that runs behind operators.
    {"torch.distributed.tensor._api", "DTensor.from_local", Control::apart},
    {"torch.distributed.tensor._api", "DTensor.to_local", Control::apart},
    {"torch.distributed.tensor._api", "DTensor.redistribute", Control::apart},
    {"torch.distributed.tensor._api", "DTensor.full_tensor", Control::apart},
    {"torch.distributed.tensor._api", "distribute_tensor", Control::apart},
    {"torch.distributed.tensor.parallel.style", "ColwiseParallel._prepare_input_fn", Control::apart},
    {"torch.distributed.tensor.parallel.style", "ColwiseParallel._prepare_output_fn", Control::apart},
    {"torch.distributed.tensor.parallel.style", "RowwiseParallel._prepare_input_fn", Control::apart},
    {"torch.distributed.tensor.parallel.style", "RowwiseParallel._prepare_output_fn", Control::apart},
    {"torch.distributed.tensor.parallel.style", "SequenceParallel._prepare_input_fn", Control::apart},
    {"torch.distributed.tensor.parallel.style", "SequenceParallel._prepare_output_fn", Control::apart},
    // Of a process group, which is the same object as long as it has that name and size.
    {"torch.distributed._functional_collectives", "_group_or_group_name", Control::constant},
    {"torch.distributed._functional_collectives", "_resolve_group_name", Control::constant},
    {"torch.distributed.distributed_c10d", "_get_group_size_by_name", Control::constant},
    // A function that a library has compiled with torch.compile is recorded as what it was.
    {"torch._dynamo.eval_frame", "_TorchDynamoContext.__call__.<locals>.compile_wrapper",
     Control::substituted},
    {"torch._dynamo.decorators", "mark_static", Control::ignored},
    // What torch.compile, once used in the process, has every nn.Module's __init__ call.
    {"torch._dynamo.mutation_guard", "GenerationTracker.tag", Control::ignored},
    // The state of random numbers is nothing that operators are seen to change.
    {"torch.random", "manual_seed", Control::apart},
    {"torch.random", "seed", Control::apart},
    {"torch.random", "get_rng_state", Control::apart},
    {"torch.random", "set_rng_state", Control::apart},
    // One end, not one for each number that they draw and go by; numbers are drawn within the region.
    {"random", "Random.shuffle", Control::draws_list},
    {"random", "Random.sample", Control::draws_list},
    {"random", "Random.choices", Control::draws_list},
    {"random", "Random._randbelow_with_getrandbits", Control::draws},
    {"random", "Random.triangular", Control::draws},
    {"random", "Random.normalvariate", Control::draws},
    {"random", "Random.gammavariate", Control::draws},
    {"random", "Random.betavariate", Control::draws},
    {"random", "Random.vonmisesvariate", Control::draws},
    // Where it is no part of the region: one end, not one for each thing that it tells autograd's threads.
    {"torch.autograd.graph", "_engine_run_backward", Control::engine},
    // Levels of forward-mode gradients. While one is open calls are eager's: every tensor may have a tangent.
    {"torch.autograd.forward_ad", "enter_dual_level", Control::apart_alone},
    {"torch.autograd.forward_ad", "exit_dual_level", Control::apart_alone},
    // linearize traces, and gives a function of a graph that is another one each time.
    {"torch._functorch.eager_transforms", "linearize", Control::apart},
    {"torch._functorch.eager_transforms", "linearize.<locals>.jvp_fn", Control::apart},
    // It wraps tensors for a level of its own, which operators there give back in wrappers that are no
    // results.
    {"torch._functorch.eager_transforms", "functionalize.<locals>.wrapped", Control::apart},
    // What makes jagged tensors: Python that registers their classes and runs behind their operators.
    {"torch.nested._internal.nested_tensor", "jagged_from_list", Control::apart},
    {"torch.nested._internal.nested_tensor", "jagged_from_tensor_and_lengths", Control::apart},
    {"torch.nested._internal.nested_tensor", "nested_view_from_values_offsets", Control::apart},
    {"torch.nested._internal.nested_tensor", "nested_view_from_values_offsets_lengths", Control::apart},
    // An event loop's own affairs.
    {"asyncio.tasks", "sleep", Control::apart},
    {"asyncio.tasks", "gather", Control::apart},
    {"asyncio.tasks", "create_task", Control::apart},
    {"asyncio.tasks", "ensure_future", Control::apart},
    {"asyncio.tasks", "shield", Control::apart},
    {"asyncio.tasks", "wait", Control::apart},
    {"asyncio.tasks", "wait_for", Control::apart},
    {"asyncio.base_events", "BaseEventLoop.call_soon", Control::apart},
    {"asyncio.base_events", "BaseEventLoop.call_later", Control::apart},
    {"asyncio.base_events", "BaseEventLoop.create_task", Control::apart},
    {"asyncio.base_events", "BaseEventLoop.create_future", Control::apart},
    {"asyncio.base_events", "BaseEventLoop.run_in_executor", Control::apart},
    {"asyncio.locks", "Lock.acquire", Control::apart},
    {"asyncio.locks", "Event.wait", Control::apart},
    {"asyncio.locks", "Semaphore.acquire", Control::apart},
    {"asyncio.queues", "Queue.get", Control::apart},
    {"asyncio.queues", "Queue.put", Control::apart},
    {"asyncio.threads", "to_thread", Control::apart},
    // Files of tensors: one end, not one for each thing that is read or written.
    {"torch.serialization", "save", Control::apart},
    {"torch.serialization", "load", Control::apart},
    // Debuggers look for the frame that called them, and leave a tracer in it (session/plain_run.h).
    {"pdb", "set_trace", Control::apart},
    {"pdb", "Pdb.set_trace", Control::apart},
    {"bdb", "Bdb.set_trace", Control::apart},
    // Done once in a process.
    {"importlib", "import_module", Control::constant},
    {"torch._functorch.predispatch", "lazy_load_decompositions", Control::constant},
    {"torchbolt.stand_ins", "_gradients", Control::allowed},
    {"torchbolt.stand_ins", "_kernel_of", Control::constant},
    {"torch._functorch.eager_transforms", "_set_tensor_requires_grad", Control::allowed},
};

/// Marks that functions carry themselves.
constexpr std::pair<const char*, Control> kAttributes[] = {
    {"_torchbolt_disable", Control::disabled},
    {"_torchdynamo_disable", Control::disabled},
    {"_dynamo_marked_constant", Control::constant},
    {"_dynamo_forbidden", Control::forbidden},
};

std::string text_of(PyObject* unicode) {
  const char* text = unicode && PyUnicode_Check(unicode) ? PyUnicode_AsUTF8(unicode) : nullptr;
  return text ? text : "";
}

/// A table of torchbolt.stand_ins, held for the life of the process; null where it cannot be had.
PyObject* table_of_stand_ins(const char* name) {
  PyRef module = PyRef::steal(import_module("torchbolt.stand_ins"));
  return module ? PyObject_GetAttrString(module.get(), name) : nullptr;
}

/// By the whole name, and which last parts of names there are: most functions have none of these.
struct Rows {
  std::unordered_map<std::string, Controlled> all;
  PyRef last_parts = PyRef::steal(PyDict_New());
};
const Rows& rows() {
  static const Rows* const all = [] {
    auto* made = new Rows();
    auto add = [&](const std::string& name, Controlled found) {
      made->all.emplace(name, found);
      if (made->last_parts)
        PyDict_SetItemString(made->last_parts.get(), name.c_str() + name.rfind('.') + 1, Py_None);
    };
    for (const ControlRow& row : kControls)
      add(std::string(row.module) + "." + row.name, {row.control, nullptr});
    PyObject* functions = table_of_stand_ins("FUNCTIONS");
    Py_ssize_t position = 0;
    PyObject *name, *function;
    while (functions && PyDict_Next(functions, &position, &name, &function))
      add(text_of(name), {Control::substituted, function});
    return made;
  }();
  return *all;
}

Controlled named(PyFunctionObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  const Rows& known = rows();
  if (!known.last_parts || !PyDict_GetItemWithError(known.last_parts.get(), code->co_name)) return {};
  PyObject* module = PyDict_GetItemWithError(function->func_globals, interned<"__name__">());
  const auto at = known.all.find(text_of(module) + "." + text_of(code->co_qualname));
  return at == known.all.end() ? Controlled{} : at->second;
}

/// What torch forbids of itself is what its own compiler cannot look into.
bool is_torchs(PyFunctionObject* function) {
  return text_of(PyDict_GetItemWithError(function->func_globals, interned<"__name__">()))
      .starts_with("torch.");
}

/// The function of torch.optim that torch.compile has put a disabled wrapper around, borrowed. It does so to
/// the library itself, once anybody in the process has used it, since its own recording cannot look into
/// them. The names are the wrapper's: what it wraps may itself be a decorator's.
PyObject* disabled_for_torch_compile(PyFunctionObject* wrapper) {
  PyObject* wrapped = PyDict_GetItemWithError(wrapper->func_dict, interned<"__wrapped__">());
  if (!wrapped || !PyFunction_Check(wrapped)) return nullptr;
  if (!text_of(wrapper->func_module).starts_with("torch.optim.")) return nullptr;
  const std::string name = text_of(wrapper->func_qualname);
  const bool is_one = name.ends_with("._init_group") || name.starts_with("_fused_") || name == "LBFGS.step" ||
                      name == "SparseAdam.step";
  return is_one ? wrapped : nullptr;
}

/// The Python function that torch.jit.script compiled, borrowed: it says the same. One that was traced says
/// what it did when it was traced, which its Python need not do again; only scripted ones are given a name.
PyObject* source_of_script(PyObject* callable) {
  static PyTypeObject* const script = native_type("torch._C", "ScriptFunction");
  if (!script || !Py_IS_TYPE(callable, script)) return nullptr;
  PyObject** dict = guard::instance_dict_slot(callable);
  if (!dict || !*dict || !PyDict_GetItemWithError(*dict, interned<"__qualname__">())) return nullptr;
  PyRef source = PyRef::steal(PyObject_GetAttr(callable, interned<"_torchdynamo_inline">()));
  if (!source) PyErr_Clear();
  return source && PyFunction_Check(source.get()) ? source.get() : nullptr;  // the callable holds it
}

}  // namespace

PyObject* call_with_stack(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  if (!nargs || !PyErr_ExceptionMatches(PyExc_TypeError)) return nullptr;
  const CFunction& row = *find_cfunction(callable).row;
  if (row.kind != Kind::tensor || !row.method.starts_with("_foreach_")) return nullptr;
  PyObject* last = args[nargs - 1];
  if (!PyList_CheckExact(last) || !PyList_GET_SIZE(last)) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(last); ++i)
    if (PyObject* item = PyList_GET_ITEM(last, i);
        !guard::is_tensor(item) || guard::rank_of(*guard::tensor_impl(item)) != 0)
      return nullptr;
  PyRef raised = PyRef::steal(take_raised());
  PyRef module = PyRef::steal(import_module("torch"));
  PyRef stack = PyRef::steal(module ? PyObject_CallMethod(module.get(), "stack", "O", last) : nullptr);
  std::vector<PyObject*> all = interp::all_given(nullptr, args, nargs, kwnames);
  all[nargs - 1] = stack.get();
  PyObject* result = stack ? PyObject_Vectorcall(callable, all.data(), nargs, kwnames) : nullptr;
  if (result) return result;
  PyErr_Clear();
  set_raised(raised.release());
  return nullptr;
}

PyObject* stand_in(const std::string& name) {
  static PyObject* const natives = table_of_stand_ins("NATIVES");
  return natives ? PyDict_GetItemString(natives, name.c_str()) : nullptr;
}

PyObject* interned(const char* text) {
  static auto* made = new PointerMap<PyObject*>();
  PyObject*& name = (*made)[text];
  return name ? name : name = PyUnicode_InternFromString(text);
}

bool asks_for_eager(PyObject* globals) {
  const std::string module = text_of(PyDict_GetItemWithError(globals, interned<"__name__">()));
  return module == "torch.nn.modules.module" || module == "torch.distributed.utils" ||
         module.starts_with("torch.nn.parallel.") || module.starts_with("torch.distributed.fsdp.");
}

bool ends_for_aot_autograd(PyObject* globals, PyObject* name) {
  PyObject* module = PyDict_GetItemWithError(globals, interned<"__name__">());
  return module && PyUnicode_Check(module) && PyUnicode_Check(name) &&
         PyUnicode_CompareWithASCIIString(module, "torch.optim.optimizer") == 0 &&
         PyUnicode_CompareWithASCIIString(name, "_use_grad") == 0;
}

bool marks_natives() { return native_is_marked; }

Controlled control_of(PyObject* callable, const Native& native) {
  if (!marks().empty())
    if (auto at = marks().find(callable); at != marks().end())
      return {at->second.control, at->second.control == Control::substituted ? at->second.by.get() : nullptr};
  const bool python = PyFunction_Check(callable);
  if (!python && is_builtin_function(callable)) {
    const CFunction& row = native.row ? *native.row : *find_cfunction(callable).row;
    PyObject* function = row.kind == Kind::stand_in ? stand_in(row.name) : nullptr;
    return function ? Controlled{Control::stand_in, function} : Controlled{torch_mark(callable), nullptr};
  }
  if (!python) {
    PyObject* source = source_of_script(callable);
    return source ? Controlled{Control::substituted, source} : Controlled{};
  }
  auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  if (PyObject* dict = function->func_dict)
    for (const auto& [name, control] : kAttributes)
      if (PyObject* mark = PyDict_GetItemWithError(dict, interned(name)); mark && mark != Py_False)
        if (control != Control::forbidden || !is_torchs(function)) {
          PyObject* by = control == Control::disabled ? disabled_for_torch_compile(function) : nullptr;
          return by ? Controlled{Control::substituted, by} : Controlled{control, nullptr};
        }
  Controlled found = named(function);
  if (found.control == Control::substituted && !found.by) {
    found.by = function->func_dict ? PyDict_GetItemWithError(function->func_dict, interned<"__wrapped__">())
                                   : nullptr;
    if (!found.by) return {};
    if (Controlled inside = control_of(found.by); inside.control != Control::none)
      return {inside.control, inside.itself(found.by)};
  }
  return found.control == Control::none ? Controlled{torch_mark(callable), nullptr} : found;
}

void set_forbidden(PyObject* callable) {
  PyErr_Format(PyExc_AssertionError, "torchbolt: %R is not to be called from compiled code (forbid_in_graph)",
               callable);
}

int mark_callable(PyObject* callable, const char* mark, PyObject* by) {
  const std::string_view name = mark;
  if (name == "shows" || name == "shows not") return show_with(callable, name == "shows"), 0;
  Control control = name == "allow_in_graph" ? Control::allowed
                    : name == "constant"     ? Control::constant
                    : name == "substitute"   ? Control::substituted
                                             : Control::none;
  if (control == Control::none) {
    PyErr_Format(PyExc_ValueError, "no mark %s", mark);
    return -1;
  }
  native_is_marked |= !PyFunction_Check(callable);
  marks()[callable] = {control, PyRef::share(callable), PyRef::share(by)};
  return 0;
}

}  // namespace bolt::observe
