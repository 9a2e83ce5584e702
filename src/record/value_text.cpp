// record/value_text.cpp
#include "record/value_text.h"

#include <ATen/Context.h>

#include <algorithm>
#include <bit>
#include <sstream>

#include "record/convert.h"
#include "support/text.h"

namespace bolt::record {
namespace {

/// Enumerations that operators are given as ints: what torch calls each value.
template <class Enum>
std::string name_of(Enum value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
template <class Enum>
c10::IValue read_name(TextReader& in) {
  const std::string_view place = in.place(), word = in.name();
  for (int i = 0; i < static_cast<int>(Enum::NumOptions); ++i)
    if (name_of(static_cast<Enum>(i)) == word) return i;
  in.go_to(place);
  in.fail("unknown name");
}

std::string complex_text(c10::complex<double> c) {
  return "complex(" + number(c.real()) + ", " + number(c.imag()) + ")";
}
c10::Device read_device(TextReader& in) {
  const std::optional<c10::Device> device = accept_device(in);
  if (!device) in.fail("expected a device");
  return *device;
}

c10::IValue read_complex(TextReader& in) {
  in.expect("(");
  const double real = in.number();
  in.expect(",");
  const double imaginary = in.number();
  in.expect(")");
  return c10::complex<double>(real, imaginary);
}

std::string int_text(int64_t value, const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::ScalarTypeType: return dtype_text(static_cast<c10::ScalarType>(value));
    case c10::TypeKind::LayoutType: return name_of(static_cast<c10::Layout>(value));
    case c10::TypeKind::MemoryFormatType: return name_of(static_cast<c10::MemoryFormat>(value));
    default: return std::to_string(value);
  }
}

}  // namespace

const c10::Type& needed_type(const c10::Type& type) {
  if (type.kind() != c10::TypeKind::OptionalType) return type;
  return *type.castRaw<c10::OptionalType>()->getElementType();
}

const c10::Type& element_type(const c10::Type& type) {
  if (type.kind() != c10::TypeKind::ListType) return type;
  return needed_type(*type.castRaw<c10::ListType>()->getElementType());
}

Sym own_number(const c10::IValue& v) {
  return v.isInt() ? v.toInt() : v.isDouble() ? std::bit_cast<int64_t>(v.toDouble()) : 0;
}

Dims contiguous(const Dims& sizes) {
  Dims strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(sizes[d], 1)) strides[d] = stride;
  return strides;
}

std::string dtype_text(c10::ScalarType dtype) {
  if (const auto ours = to_bolt(dtype)) return std::string(dtype_name(*ours));
  return c10::toString(dtype);
}

c10::ScalarType read_torch_dtype(TextReader& in) {
  const std::string_view word = in.name();
  if (const auto ours = dtype_from_name(word)) return to_torch(*ours);
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i)
    if (const auto t = static_cast<c10::ScalarType>(i); c10::toString(t) == word) return t;
  in.fail("'" + std::string(word) + "' is no element type");
}

std::optional<c10::Device> accept_device(TextReader& in) {
  for (int i = 0; i < c10::COMPILE_TIME_MAX_DEVICE_TYPES; ++i) {
    const auto type = static_cast<c10::DeviceType>(i);
    if (!in.accept(c10::DeviceTypeName(type, true))) continue;
    return c10::Device(type, static_cast<c10::DeviceIndex>(in.accept(":") ? in.integer() : -1));
  }
  return std::nullopt;
}

std::string ValueWriter::text(const c10::IValue& v, const c10::Type& type) {
  if (v.isNone()) return "None";
  if (v.isBool()) return v.toBool() ? "true" : "false";
  if (v.isInt()) return int_text(v.toInt(), type);
  if (v.isDouble()) return number(v.toDouble());
  if (v.isComplexDouble()) return complex_text(v.toComplexDouble());
  if (v.isString()) return bolt::quoted(v.toStringRef());
  if (v.isDevice()) return v.toDevice().str();
  if (!v.isGenerator()) return "<" + v.tagKind() + ">";
  const at::Generator generator = v.toGenerator();
  auto at = std::find(generators_.begin(), generators_.end(), generator);
  if (at == generators_.end()) at = generators_.insert(at, generator);
  return "generator(" + std::to_string(at - generators_.begin()) + ", " + generator.device().str() + ")";
}

c10::IValue ValueReader::generator() {
  const auto id = static_cast<size_t>(in_.number_after("("));
  in_.expect(",");
  const c10::Device device = read_device(in_);
  in_.expect(")");
  if (id > generators_.size()) in_.fail("generators are numbered as they come");
  if (id == generators_.size()) generators_.push_back(at::globalContext().defaultGenerator(device).clone());
  return generators_[id];
}

c10::IValue ValueReader::value(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::ScalarTypeType: return static_cast<int64_t>(read_torch_dtype(in_));
    case c10::TypeKind::LayoutType: return read_name<c10::Layout>(in_);
    case c10::TypeKind::MemoryFormatType: return read_name<c10::MemoryFormat>(in_);
    case c10::TypeKind::DeviceObjType: return read_device(in_);
    default: break;
  }
  if (in_.sees("\"")) return in_.string();
  if (in_.accept("true")) return true;
  if (in_.accept("false")) return false;
  if (in_.accept("complex")) return read_complex(in_);
  if (in_.accept("generator")) return generator();
  if (in_.sees("<")) in_.fail("a value that no text can hold");
  if (type.kind() == c10::TypeKind::FloatType) return in_.number();
  if (const std::optional<double> real = in_.real()) return *real;
  return in_.integer();
}

}  // namespace bolt::record
