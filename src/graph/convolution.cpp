// graph/convolution.cpp
#include "graph/convolution.h"

#include <bit>
#include <string>

#include "graph/device_facts.h"
#include "support/knobs.h"

namespace bolt::graph {
namespace {

bool is_backward(const Node& n) {
  return n.op == Op::extern_call && n.attr<std::string>("name") == "aten::convolution_backward" &&
         n.operands.size() >= 3;
}

}  // namespace

Sym Convolution::groups() const {
  return is_transposed() ? floordiv(channels, weight->sizes[1]) : floordiv(image->sizes[1], weight->sizes[1]);
}

std::optional<Convolution> convolution_of(const Node& call) {
  if (call.outputs.empty()) return std::nullopt;
  const auto type = [&](size_t i) { return &call.operands[i]->type; };
  if (call.op == Op::conv) return Convolution{type(0), type(1), call.out()->type.sizes[1], false};
  if (!is_backward(call) || type(0)->rank() < 3) return std::nullopt;
  return Convolution{type(1), type(2), type(0)->sizes[1], true};
}

ChannelsLast channels_last_on(Device device) {
  if (knob("TORCHBOLT_CHANNELS_LAST") == "auto") return {facts_of(device).likes_channels_last, false};
  return {knob_bool("TORCHBOLT_CHANNELS_LAST"), true};
}

std::optional<int64_t> width_of_groups(const Convolution& call, int64_t width) {
  const GroupWidths& has = facts_of(call.image->device).group_widths;
  const auto wide = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(width)));
  const int64_t least = call.backward ? has.least_backward : has.least;
  const int64_t padded = std::max(wide, least);
  if (has.most == 0 || padded > has.most || padded > 2 * width) return std::nullopt;
  return padded;
}

}  // namespace bolt::graph
