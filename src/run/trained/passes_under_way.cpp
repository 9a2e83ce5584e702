// run/trained/passes_under_way.cpp
#include "run/trained/passes_under_way.h"

#include <torch/csrc/autograd/engine.h>

namespace bolt::run {

using torch::autograd::variable_list;

std::shared_ptr<PassUnderWay> PassesUnderWay::find(int id) const {
  for (const std::weak_ptr<PassUnderWay>& known : kept_)
    if (auto pass = known.lock(); pass && pass->id == id) return pass;
  return nullptr;
}

std::shared_ptr<PassUnderWay> PassesUnderWay::of(int id, const TrainedLinks& links) const {
  if (auto known = find(id)) return known;
  const size_t tangents = links.inner.size();
  return std::make_shared<PassUnderWay>(PassUnderWay{
      id, Tensors(tangents), variable_list(links.edges.size()), std::vector<bool>(links.groups.size()),
      std::vector<bool>(tangents), std::vector<bool>(tangents)});
}

void PassesUnderWay::keep(const std::shared_ptr<PassUnderWay>& pass) {
  std::erase_if(kept_, [](const std::weak_ptr<PassUnderWay>& known) { return known.expired(); });
  if (has(pass->id)) return;
  kept_.emplace_back(pass);
  torch::autograd::Engine::get_default_engine().queue_callback([pass] {});
}

void PassesUnderWay::forget(const PassUnderWay& pass) {
  std::erase_if(kept_, [&](const std::weak_ptr<PassUnderWay>& known) { return known.lock().get() == &pass; });
}

}  // namespace bolt::run
