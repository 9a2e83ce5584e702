// session/alike_places.h
// Places of numbers that differ between calls -> places that are one of those but for an index.
//
//   batch[2][4], batch[7][4]  =>  batch[*][4]
//
// Samples of a batch, groups of parameters: where two of them differ so do the others, sooner or later, and
// each would be found out by a recording of its own. One alone says nothing.
#pragma once

#include <set>
#include <string>

namespace bolt::session {

class AlikePlaces {
 public:
  /// Is the place like two of those that differ, of which there are more and more?
  bool hold(const std::set<std::string>& differ, const std::string& place);
  /// Is anything within the place?
  bool may_lie_within(const std::set<std::string>& differ, const std::string& place);

 private:
  void learn(const std::set<std::string>& differ);

  std::set<std::string> patterns_;
  size_t known_ = 0;  ///< how many places the patterns are of
};

}  // namespace bolt::session
