// run/trained/passes_under_way.h
// The backward passes over one run that are under way -> how far each has come.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

#include "run/trained/trained_links.h"

namespace bolt::run {

/// One backward pass, as far as it has come.
struct PassUnderWay {
  int id;
  Tensors tangents;                          ///< told of by results, and not used yet
  torch::autograd::variable_list gradients;  ///< by edge: not handed on yet
  std::vector<bool> handed_on;               ///< by group
  std::vector<bool> passed;                  ///< by tangent: the result's node has been called
  std::vector<bool> seen;  ///< by tangent: an inner result's whose gradient was handed to its node
};

class PassesUnderWay {
 public:
  /// The one of this number that is kept, or a new one.
  std::shared_ptr<PassUnderWay> of(int id, const TrainedLinks& links) const;
  /// The engine's task has it, with what else it has not handed on yet: it goes with the task, which ends
  /// where something raises, too.
  void keep(const std::shared_ptr<PassUnderWay>& pass);
  void forget(const PassUnderWay& pass);
  bool has(int id) const { return find(id) != nullptr; }

 private:
  std::shared_ptr<PassUnderWay> find(int id) const;

  std::vector<std::weak_ptr<PassUnderWay>> kept_;
};

}  // namespace bolt::run
