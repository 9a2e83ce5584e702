// graph/convolution.h
// A convolution, or ATen's call of its backward pass -> its image, weights and groups, asked in one way by
// whoever changes how they lie or how wide they are.
#pragma once

#include <optional>

#include "graph/ir.h"

namespace bolt::graph {

/// So few that libraries pad them (DeviceFacts::pads_channels).
constexpr int64_t kFewChannels = 4;

struct Convolution {
  const Type* image;
  const Type* weight;
  /// Of the result.
  Sym channels;
  bool backward;

  /// Weights of a transposed one have the image's channels outermost. Of one that gives as many channels as
  /// it is given nothing tells; there it makes no difference.
  bool is_transposed() const { return weight->sizes[0] != channels; }
  Sym groups() const;
  /// Each channel is its own group.
  bool is_depthwise() const { return groups() == image->sizes[1]; }
};

BOLT_API std::optional<Convolution> convolution_of(const Node& call);

/// Are a library's convolutions on this device given images whose channels are innermost?
struct ChannelsLast {
  bool given = false;
  /// The environment says so (TORCHBOLT_CHANNELS_LAST), whatever the device would like.
  bool asked_for = false;
};
BOLT_API ChannelsLast channels_last_on(Device device);

/// So many channels a group, of input or result, that the device's library has kernels for which read them
/// where they lie: `width` or more, where zeros are worth being added. Nothing: it has none.
BOLT_API std::optional<int64_t> width_of_groups(const Convolution& call, int64_t width);

}  // namespace bolt::graph
