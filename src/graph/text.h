// graph/text.h
// Parts of the graph's text form that other stages' texts hold too: types, attributes, places in the source.
// text.cpp writes them, parser.cpp reads them.
#pragma once

#include <string>
#include <string_view>

#include "graph/ir.h"
#include "support/text_reader.h"

namespace bolt::graph {

/// A name as the text has it: letters, digits, _ and . only, no digit in front; may be empty.
BOLT_API std::string identifier(std::string_view name);
/// ` {dim=1, keepdim=true}`, or nothing where there are none.
std::string attrs_text(const Node& node);
/// Fills `line` with blanks up to the column in which places in the source stand, and adds `# model.py:12 in
/// forward`. Nothing where the place is not known.
BOLT_API void append_loc(std::string& line, const Loc& loc);
/// ` param`, ` const` or nothing.
std::string_view kind_text(InputKind kind);

Device read_device(TextReader& in);
Type read_type(TextReader& in);
/// The name of an operation; a fault proposes the one that was meant.
Op read_op(TextReader& in);
Attrs read_attrs(TextReader& in, Op op);
BOLT_API Loc read_loc(TextReader& in);
InputKind read_kind(TextReader& in);

}  // namespace bolt::graph
