// record/value_text.h
// The parts of a tape's text (record/text.h) that torch has names for: element types, devices, and the
// arguments of an operator that are no tensors.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <optional>
#include <string>
#include <vector>

#include "record/tape.h"
#include "support/text_reader.h"

namespace bolt::record {

/// As in a graph's text (f32), or torch's own name of types that graphs do not have.
std::string dtype_text(c10::ScalarType dtype);
c10::ScalarType read_torch_dtype(TextReader& in);
/// Nothing where no device stands.
std::optional<c10::Device> accept_device(TextReader& in);

/// The type without Optional around it, and of a list that of its elements.
const c10::Type& needed_type(const c10::Type& type);
const c10::Type& element_type(const c10::Type& type);

/// What stands for a number in an argument with expressions where it is none.
Sym own_number(const c10::IValue& value);

/// Strides that a text leaves out.
Dims contiguous(const Dims& sizes);

/// Numbers, strings, dtypes, devices, generators, lists of them and None. The generators of a text are
/// counted as they come.
class ValueWriter {
 public:
  std::string text(const c10::IValue& value, const c10::Type& type);

 private:
  std::vector<at::Generator> generators_;
};
class ValueReader {
 public:
  explicit ValueReader(TextReader& in) : in_(in) {}
  /// One that is no list.
  c10::IValue value(const c10::Type& type);

 private:
  c10::IValue generator();
  TextReader& in_;
  std::vector<at::Generator> generators_;
};

}  // namespace bolt::record
