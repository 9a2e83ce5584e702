// support/size_demand.h
// What a stage throws that cannot go on while a size is a symbol, or while two sizes are different ones: what
// must be known, or be equal.
//
// Whoever began the stages answers by giving symbols up (guarding what they were in the recorded run) and
// begins again. So every stage may use symbols as far as it can, and none has to know how far the others can:
// Sym::value() of a size that is not known is such a demand.
#pragma once

#include "support/error.h"
#include "support/export.h"
#include "support/sym.h"

namespace bolt {

class BOLT_API SizeDemand : public Error {
 public:
  explicit SizeDemand(Sym known);
  SizeDemand(Sym a, Sym b);
  ~SizeDemand() override;
  Sym a, b;
  bool equal = false;  ///< a and b must be equal; else a must be known
  std::string where;   ///< the user's line, where a stage knows it
};

/// Are two sizes equal? SizeDemand when that is not known.
BOLT_API bool same_size(Sym a, Sym b);

}  // namespace bolt
