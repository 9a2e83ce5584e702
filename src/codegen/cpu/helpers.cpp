// codegen/cpu/helpers.cpp
// Name -> address of the few functions that emitted code may call. They stand on cold paths (trigonometry of
// huge arguments) or stand in for instructions that a small machine lacks (rounding and fma without SSE4.1
// and FMA; block moves that LLVM's code generator may ask for).

#include <cmath>
#include <cstring>

#include "codegen/cpu/machine.h"

namespace bolt::codegen::cpu {
namespace {

// In place over `count` values: a vector that has a lane outside the inline reduction's range is spilled,
// done here, and read again.
template <typename T, T (*Function)(T)>
void each(T* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = Function(values[i]);
}

double sin_any(double x) { return std::sin(x); }
double cos_any(double x) { return std::cos(x); }
double tan_any(double x) { return std::tan(x); }
// Through double: one rounding, so the error stays at half an ulp.
float sin_any(float x) { return static_cast<float>(std::sin(static_cast<double>(x))); }
float cos_any(float x) { return static_cast<float>(std::cos(static_cast<double>(x))); }
float tan_any(float x) { return static_cast<float>(std::tan(static_cast<double>(x))); }

struct Helper {
  std::string_view name;
  void* address;
};

template <typename R, typename... A>
void* address_of(R (*function)(A...)) {
  return reinterpret_cast<void*>(function);
}

template <typename T>
constexpr auto kSin = each<T, static_cast<T (*)(T)>(sin_any)>;
template <typename T>
constexpr auto kCos = each<T, static_cast<T (*)(T)>(cos_any)>;
template <typename T>
constexpr auto kTan = each<T, static_cast<T (*)(T)>(tan_any)>;

const Helper kHelpers[] = {
    {"bolt_sin_f32", address_of(kSin<float>)},
    {"bolt_cos_f32", address_of(kCos<float>)},
    {"bolt_tan_f32", address_of(kTan<float>)},
    {"bolt_sin_f64", address_of(kSin<double>)},
    {"bolt_cos_f64", address_of(kCos<double>)},
    {"bolt_tan_f64", address_of(kTan<double>)},
    {"fmaf", address_of<float, float, float, float>(::fmaf)},
    {"fma", address_of<double, double, double, double>(::fma)},
    {"floorf", address_of<float, float>(::floorf)},
    {"floor", address_of<double, double>(::floor)},
    {"ceilf", address_of<float, float>(::ceilf)},
    {"ceil", address_of<double, double>(::ceil)},
    {"truncf", address_of<float, float>(::truncf)},
    {"trunc", address_of<double, double>(::trunc)},
    {"rintf", address_of<float, float>(::rintf)},
    {"rint", address_of<double, double>(::rint)},
    {"fmodf", address_of<float, float, float>(::fmodf)},
    {"fmod", address_of<double, double, double>(::fmod)},
    {"memcpy", address_of<void*, void*, const void*, size_t>(::memcpy)},
    {"memmove", address_of<void*, void*, const void*, size_t>(::memmove)},
    {"memset", address_of<void*, void*, int, size_t>(::memset)},
};

}  // namespace

void* helper_address(std::string_view name) {
  for (const Helper& helper : kHelpers)
    if (helper.name == name) return helper.address;
  return nullptr;
}

}  // namespace bolt::codegen::cpu
