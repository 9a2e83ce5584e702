// codegen/cuda/lists.cpp
#include "codegen/cuda/lists.h"

#include <algorithm>

#include "codegen/cuda/emit.h"
#include "loops/normalise.h"

namespace bolt::codegen::cuda {

using loops::Kernel;

namespace {

/// A row is as long as an argument says, which is so many wide accesses.
constexpr int64_t kWide = 8;

/// The kernel for a row of any length, where it reduces one row and nothing else.
Kernel of_any_length(Kernel k, ListForm* form) {
  if (k.dims.size() != 1 || !k.dims[0].reduce || !k.dims[0].size.is_const()) return k;
  const int64_t length = k.dims[0].size.value();
  const bool wide = length % kWide == 0;
  const Sym symbol = Sym::symbol("length");
  form->symbols = {symbol};
  form->values = {wide ? length / kWide : length};
  k.dims[0].size = wide ? symbol * Sym(kWide) : symbol;
  k.symbols.push_back(symbol);
  return k;
}

int most_of(const Kernel& part) {
  const size_t arguments = part.buffers.size() + 1 + part.symbols.size();
  // The count, and room up to the next multiple of 8.
  return static_cast<int>((kArgumentBytes - 12) / (sizeof(uint32_t) + sizeof(uint64_t) * arguments));
}

}  // namespace

Sym ListForm::known(Sym size) const {
  return substitute(size, [&](Sym s) {
    for (size_t i = 0; i < symbols.size(); ++i)
      if (s == symbols[i]) return Sym(values[i]);
    return s;
  });
}

std::string ListForm::text(size_t part, const std::string& name, const std::vector<char>& numbers) const {
  const Part& p = parts.list[part];
  return emit_kernel(p.kernel, schedules[part], name, most[part], p.by_buffer(numbers));
}

std::optional<ListForm> list_form(const Kernel& kernel, ScheduleOptions options) {
  if (!refusal(kernel).empty() || kernel.has_checks()) return std::nullopt;
  ListForm form;
  const Kernel k = of_any_length(kernel, &form);
  if (!form.symbols.empty()) options.split = kernel.dims[0].size.value() >= kWorthElements;
  form.parts = parts(k, options);
  for (const Part& part : form.parts.list) {
    Schedule s = schedule(part.kernel, options);
    if (s.cluster > 1) return std::nullopt;
    form.schedules.push_back(std::move(s));
    form.most.push_back(most_of(part.kernel));
    if (form.most.back() < 2) return std::nullopt;
  }
  return form;
}

std::string list_key(const Kernel& kernel, const ScheduleOptions& options, const std::vector<char>& numbers) {
  const auto form = list_form(loops::normalise(kernel), options);
  std::string key;
  for (size_t i = 0; form && i < form->parts.list.size(); ++i) {
    const int64_t shared = shared_bytes(form->parts.list[i].kernel, form->schedules[i]);
    key += std::to_string(shared) + " " + form->text(i, "list", numbers);
  }
  return key;
}

}  // namespace bolt::codegen::cuda
