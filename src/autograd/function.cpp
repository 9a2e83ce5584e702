// autograd/function.cpp
#include "autograd/function.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node_ptr.h"
#include "python/gil.h"
#include "python/py_ref.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
namespace variables = torch::autograd::impl;

/// Guarded by the GIL.
std::vector<PyRef>& kept_callables() {
  static auto* const kept = new std::vector<PyRef>;  // never destroyed: Python may be gone by then
  return *kept;
}

PyRef as_list(const std::vector<at::Tensor>& tensors) {
  PyRef list = PyRef::steal(PyList_New(0));
  for (const at::Tensor& t : tensors) {
    const PyRef object = PyRef::steal(t.defined() ? THPVariable_Wrap(t) : Py_NewRef(Py_None));
    if (!object || PyList_Append(list.get(), object.get()) < 0) throw python_error();
  }
  return list;
}

/// A Python object that is let go of in any thread.
std::shared_ptr<PyObject> shared(PyObject* object) {
  return {Py_NewRef(object), [](PyObject* held) {
            if (!Py_IsInitialized()) return;
            const WithGil gil;
            Py_DECREF(held);
          }};
}

class FunctionNode final : public Node {
 public:
  FunctionNode(std::shared_ptr<PyObject> backward, std::vector<int64_t> ints)
      : backward_(std::move(backward)), ints_(std::move(ints)) {}

  void keep(const at::Tensor& t, bool is_output) { saved_.emplace_back(t, is_output); }
  /// Of a gradient that does not come, zeros are made; an undefined one stays away.
  void fill_up(std::vector<at::Tensor> like) {
    for (const at::Tensor& t : like) filled_.push_back({t.sizes().vec(), t.options()});
  }

  std::string name() const override { return "torch.autograd.Function"; }
  void release_variables() override { saved_.clear(), released_ = true; }

 private:
  struct Like {
    std::vector<int64_t> sizes;
    at::TensorOptions options;
  };

  variable_list apply(variable_list&& gradients) override {
    if (released_) throw_user("Trying to backward through the graph a second time");
    for (size_t i = 0; i < filled_.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = at::zeros(filled_[i].sizes, filled_[i].options);
    std::vector<at::Tensor> saved;
    for (const SavedVariable& each : saved_) saved.push_back(each.unpack(getptr()));
    const WithGil gil;
    const PyRef saved_list = as_list(saved), gradient_list = as_list(gradients);
    const PyRef ints = PyRef::steal(pybind11::cast(ints_).release().ptr());
    PyObject* const found = PyObject_CallFunctionObjArgs(backward_.get(), saved_list.get(), ints.get(),
                                                         gradient_list.get(), nullptr);
    if (!found) raise();
    return tensors_in(PyRef::steal(found));
  }

  /// The exception that is set, for who called autograd.
  [[noreturn]] static void raise() {
    python_error error;
    error.persist();
    throw error;
  }

  variable_list tensors_in(const PyRef& result) const {
    const PyRef items = PyRef::steal(PySequence_Fast(result.get(), "gradients were expected"));
    if (!items) raise();
    variable_list tensors;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
      tensors.push_back(THPVariable_Check(item) ? THPVariable_Unpack(item) : at::Tensor());
    }
    tensors.resize(num_outputs());
    return tensors;
  }

  const std::shared_ptr<PyObject> backward_;
  const std::vector<int64_t> ints_;
  std::vector<SavedVariable> saved_;
  std::vector<Like> filled_;
  bool released_ = false;
};

using Inputs = FunctionInputs;

/// Of the same memory, and of the same count of writes to it: what was saved notices them.
at::Tensor same_again(const at::Tensor& t) {
  const at::AutoDispatchBelowADInplaceOrView plainly;
  at::Tensor made = at::alias(t);
  if (!t.is_inference())
    made.unsafeGetTensorImpl()->set_version_counter(t.unsafeGetTensorImpl()->version_counter());
  return made;
}

std::vector<at::Tensor> without_gradients(int64_t, const Inputs&, at::TensorList outputs, at::TensorList,
                                          c10::SymIntArrayRef, const c10::List<bool>&, bool) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& t : outputs) results.push_back(same_again(t));
  return results;
}

torch::autograd::edge_list edges_of(const Inputs& inputs) {
  torch::autograd::edge_list edges;
  for (const std::optional<at::Tensor> t : inputs)
    edges.push_back(t && t->defined() && t->requires_grad() ? variables::gradient_edge(*t) : Edge());
  return edges;
}

struct ResultsOfFunction {
  at::TensorList outputs, saved;
  std::vector<int64_t> ints;  ///< of what else the forward pass left, those that may differ between calls
  std::vector<bool> differentiable, written;  ///< by output; written: it is an input that was written to
  bool materialize;
};

void put_behind(const autograd::NodePtr& node, const at::Tensor& result, bool differentiable, bool written) {
  if (!differentiable || !torch::autograd::isDifferentiableType(result.scalar_type())) {
    node->add_input_metadata(Node::undefined_input());
  } else if (written) {
    variables::rebase_history(result, Edge(node, node->add_input_metadata(result)));
  } else {
    variables::set_gradient_edge(result, Edge(node, node->add_input_metadata(result)));
  }
}

std::vector<at::Tensor> tied(std::shared_ptr<PyObject> backward, const Inputs& inputs,
                             const ResultsOfFunction& given) {
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < given.outputs.size(); ++i)
    results.push_back(given.written[i] ? given.outputs[i] : same_again(given.outputs[i]));
  torch::autograd::edge_list edges = edges_of(inputs);
  const bool any = std::ranges::any_of(edges, [](const Edge& edge) { return edge.is_valid(); });
  if (!any || !at::GradMode::is_enabled()) return results;
  for (size_t i = 0; i < results.size(); ++i)
    if (given.written[i]) torch::autograd::check_inplace(results[i], true);
  const auto node = make_node<FunctionNode>(std::move(backward), given.ints);
  node->set_next_edges(std::move(edges));
  if (given.materialize) node->fill_up(results);
  for (size_t i = 0; i < results.size(); ++i)
    put_behind(node, results[i], given.differentiable[i], given.written[i]);
  for (const at::Tensor& t : given.saved) {
    const auto output =
        std::ranges::find_if(given.outputs, [&](const at::Tensor& o) { return o.is_same(t); });
    const bool is_output = output != given.outputs.end();
    node->keep(is_output ? results[output - given.outputs.begin()] : t, is_output);
  }
  return results;
}

std::vector<at::Tensor> with_gradients(int64_t backward, const Inputs& inputs, at::TensorList outputs,
                                       at::TensorList saved, c10::SymIntArrayRef ints,
                                       const c10::List<bool>& differentiable, bool materialize) {
  std::shared_ptr<PyObject> callable;
  {
    const WithGil gil;
    callable = shared(kept_callable(backward).get());
  }
  const ResultsOfFunction given{outputs,
                                saved,
                                C10_AS_INTARRAYREF_SLOW(ints).vec(),
                                {differentiable.begin(), differentiable.end()},
                                std::vector<bool>(outputs.size(), false),
                                materialize};
  return tied(std::move(callable), inputs, given);
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def(
      "function(int backward, Tensor?[] inputs, Tensor(a)[] outputs, Tensor[] saved, SymInt[] ints, "
      "bool[] differentiable, bool materialize) -> Tensor(a)[]");
  m.impl("function", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(without_gradients));
  m.impl("function", c10::DispatchKey::Autograd, TORCH_FN(with_gradients));
}

}  // namespace

std::vector<at::Tensor> tie_function(PyObject* callable, const Inputs& inputs, at::TensorList outputs,
                                     at::TensorList saved, std::vector<bool> differentiable,
                                     std::vector<bool> written, bool materialize) {
  return tied(shared(callable), inputs,
              {outputs, saved, {}, std::move(differentiable), std::move(written), materialize});
}

int64_t keep_callable(PyObject* callable) {
  kept_callables().push_back(PyRef::share(callable));
  return static_cast<int64_t>(kept_callables().size()) - 1;
}

const PyRef& kept_callable(int64_t number) { return kept_callables()[number]; }

}  // namespace bolt::autograd
