// support/dtype.cpp
#include "support/dtype.h"

namespace bolt {
namespace {
struct DTypeFacts {
  std::string_view name;
  int bytes;
  bool is_float, is_signed;
};
constexpr DTypeFacts kFacts[] = {
#define X(name, text, bytes, fp, si) {text, bytes, fp, si},
    BOLT_FOR_EACH_DTYPE(X)
#undef X
};
const DTypeFacts& facts(DType t) { return kFacts[static_cast<int>(t)]; }
}  // namespace

std::string_view dtype_name(DType t) { return facts(t).name; }
int dtype_bytes(DType t) { return facts(t).bytes; }
bool is_float(DType t) { return facts(t).is_float; }
bool is_signed_int(DType t) { return facts(t).is_signed; }

std::optional<DType> dtype_from_name(std::string_view text) {
  for (int i = 0; i < static_cast<int>(std::size(kFacts)); ++i)
    if (kFacts[i].name == text) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace bolt
