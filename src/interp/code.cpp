// interp/code.cpp
// PyCodeObject -> Code; see code.h. Also the place where our opcode tables are checked against CPython's
// header.

#include "interp/code.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string_view>

namespace bolt::interp {

namespace {

struct OpcodeInfo {
  const char* name = nullptr;
  uint8_t caches = 0;
};

constexpr std::array<OpcodeInfo, 256> make_opcode_table() {
  std::array<OpcodeInfo, 256> table{};
#define OPCODE(name, number, caches) table[number] = {#name, caches};
#include "interp/opcodes.def"
#undef OPCODE
  return table;
}

constexpr std::array<OpcodeInfo, 256> opcode_table = make_opcode_table();

Py_ssize_t code_slot = -1;

void release_code(void* code) { delete static_cast<Code*>(code); }

/// co_linetable, see CPython's Objects/locations.md: an entry begins with a byte that has the highest bit
/// set, says of what kind it is and for how many code units, and goes on with bytes that do not.
std::vector<int> decode_lines(const PyCodeObject* code, size_t units) {
  constexpr int kNone = 15, kLong = 14, kNoColumns = 13, kOneLine = 10;
  const auto* at = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(code->co_linetable));
  const auto* end = at + PyBytes_GET_SIZE(code->co_linetable);
  std::vector<int> lines;
  lines.reserve(units);
  int line = code->co_firstlineno;
  while (at < end) {
    const int kind = *at >> 3 & 15;
    const size_t length = (*at++ & 7u) + 1;
    if (kind == kLong || kind == kNoColumns) {  // a number of 6 bits a byte, the lowest its sign
      unsigned number = 0;
      const uint8_t* next = at;
      for (int shift = 0; next < end; shift += 6) {
        number |= (*next & 63u) << shift;
        if (!(*next++ & 64)) break;
      }
      line += number & 1 ? -static_cast<int>(number >> 1) : static_cast<int>(number >> 1);
    } else if (kind >= kOneLine && kind != kNone) {
      line += kind - kOneLine;
    }
    lines.insert(lines.end(), length, kind == kNone ? -1 : line);
    while (at < end && !(*at & 128)) ++at;
  }
  return lines;
}

/// Reads the variable-length numbers of co_exceptiontable: 6 bits a byte, bit 6 = more follow.
class TableReader {
 public:
  explicit TableReader(PyObject* table)
      : at_(reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(table))),
        end_(at_ + PyBytes_GET_SIZE(table)) {}
  bool done() const { return at_ >= end_; }
  int32_t next() {
    int32_t value = *at_ & 63;
    while (*at_++ & 64) value = (value << 6) | (*at_ & 63);
    return value;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

void decode_handlers(PyObject* table, std::vector<ExceptionRange>& handlers) {
  TableReader reader(table);
  while (!reader.done()) {
    const int32_t start = reader.next();
    const int32_t size = reader.next();
    const int32_t target = reader.next();
    const int32_t depth_lasti = reader.next();
    handlers.push_back({start, start + size, target, depth_lasti >> 1, (depth_lasti & 1) != 0});
  }
}

void decode_instrs(const uint8_t* bytes, size_t units, std::vector<Instr>& instrs) {
  instrs.resize(units);
  int32_t extended = 0;
  for (size_t i = 0; i < units;) {
    const uint8_t number = bytes[2 * i];
    const uint8_t length = 1 + opcode_table[number].caches;
    const int32_t arg = extended | bytes[2 * i + 1];
    instrs[i] = {number, length, 0, arg};
    extended = number == op::EXTENDED_ARG ? arg << 8 : 0;
    i += length;
  }
}

std::unique_ptr<Code> decode(PyCodeObject* code) {
  // PyCode_GetCode undoes CPython's in-place specialisation.
  PyObject* bytes = PyCode_GetCode(code);
  if (!bytes) return nullptr;
  auto result = std::make_unique<Code>();
  decode_instrs(reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes)),
                static_cast<size_t>(PyBytes_GET_SIZE(bytes)) / sizeof(CodeUnit), result->instrs);
  Py_DECREF(bytes);
  decode_handlers(code->co_exceptiontable, result->handlers);
  result->nlocalsplus = code->co_nlocalsplus;
  result->stack_size = code->co_stacksize;
  result->makes_generator = (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
  return result;
}

}  // namespace

bool Code::handles_at(int pc) const {
  const ExceptionRange* range = find_handler(pc);
  while (range) {
    const std::string_view first = opcode_name(instrs[range->target].op);
    if (first != "CALL_INTRINSIC_1" && first != "CLEANUP_THROW" && first != "END_ASYNC_FOR") return true;
    range = find_handler(range->target);
  }
  return false;
}

const ExceptionRange* Code::find_handler(int pc) const {
  auto after = std::upper_bound(handlers.begin(), handlers.end(), pc,
                                [](int offset, const ExceptionRange& range) { return offset < range.start; });
  if (after == handlers.begin()) return nullptr;
  const ExceptionRange& range = *(after - 1);
  return pc < range.end ? &range : nullptr;
}

int Code::line_at(const PyCodeObject* code, int pc) const {
  if (pc < 0) return code->co_firstlineno;
  if (lines.empty()) lines = decode_lines(code, instrs.size());
  const auto at = static_cast<size_t>(pc);
  return at < lines.size() ? lines[at] : -1;
}

const Code* prepare(PyCodeObject* code) {
  if (code_slot < 0) code_slot = request_code_slot(release_code);
  if (code_slot < 0) {
    PyErr_SetString(PyExc_SystemError, "torchbolt: CPython has no free per-code slot");
    return nullptr;
  }
  auto* object = reinterpret_cast<PyObject*>(code);
  void* found = nullptr;
  if (get_code_slot(object, code_slot, &found) < 0) return nullptr;
  if (found) return static_cast<const Code*>(found);
  try {
    std::unique_ptr<Code> fresh = decode(code);
    if (!fresh || set_code_slot(object, code_slot, fresh.get()) < 0) return nullptr;
    return fresh.release();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return nullptr;
  }
}

const char* opcode_name(int op) {
  const char* name = op >= 0 && op < 256 ? opcode_table[static_cast<size_t>(op)].name : nullptr;
  return name ? name : "<unknown>";
}

}  // namespace bolt::interp

// The table against CPython's own header. Its macros have the opcodes' names, so it comes last.
namespace bolt::interp::check {
enum : int {
#define OPCODE(name, number, caches) ours_##name = number,
#include "interp/opcodes.def"
#undef OPCODE
};
}  // namespace bolt::interp::check

#include <opcode.h>

namespace bolt::interp::check {
#define BINARY(name, cpython_name, number, stem, function, slot, symbol) \
  static_assert(NB_##cpython_name == number && NB_INPLACE_##cpython_name == number + 13);
#include "python/binary_ops.def"
#undef BINARY
#define OPCODE(name, number, caches) static_assert(ours_##name == (name), "differs from <opcode.h>: " #name);
#include "interp/opcodes.def"
#undef OPCODE
}  // namespace bolt::interp::check
