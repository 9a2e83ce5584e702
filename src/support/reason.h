// support/reason.h
// Why something was not done, as a value: a row of reasons.def and what its text names.
//
// Code asks for the row (`why`); text is made when somebody is to read it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/export.h"

namespace bolt {

enum class Why : uint8_t {
#define REASON(id, text, hint) id,
#define REASON_OF(id, text, hint) id,
#include "support/reasons.def"
};

struct BOLT_API Reason {
  /// As many arguments as the row's text has places.
  template <class... Said>
  Reason(Why row, Said&&... arguments) : why(row), said{std::string(std::forward<Said>(arguments))...} {}

  /// This reason, told of an instruction that led to Python in which no region can end.
  Reason within_instruction() const;
  /// This reason, found where a region ends for `end`. Where `end` has been found so itself, it is told what
  /// began that.
  Reason where_it_ends(const Reason& end) const;

  /// The row's name in reasons.def.
  const char* id() const;
  std::string text() const;
  /// What can be done about it; may be empty.
  const char* hint() const;

  Why why;
  std::vector<std::string> said;
  bool within = false;                ///< an instruction that runs Python
  std::shared_ptr<const Reason> end;  ///< for which the region ends where this was found; null: none
};

}  // namespace bolt
