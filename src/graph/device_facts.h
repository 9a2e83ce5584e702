// graph/device_facts.h
// A kind of device -> what passes and the planner have to know of it, one row each (device_facts.cpp).
//
// Whoever decides something by where a value lies asks here for the reason, not for the name of the device,
// so that another one is another row. Two things are told apart by name, and right so: what eager itself does
// differently on the processor and elsewhere, which is torch's to say (c10::Device), and who compiles,
// allocates and launches (device/device.h).
#pragma once

#include "graph/ir.h"

namespace bolt::graph {

struct MachineSpeed {
  double bytes_per_ns;
  double instructions_per_ns;   ///< of one element each
  double multiply_adds_per_ns;  ///< of products of matrices in half types
  double start_ns;              ///< of a kernel
};

/// Of convolutions of groups: channels a group, powers of two from the least to the most, for which there are
/// kernels that read channels which lie next to each other. `most` 0: for none.
struct GroupWidths {
  int least, least_backward, most;
};

/// Of what a product gives and one kernel reads row by row, so much is there at once (loops/in_bands.h).
/// `most` 0: all of it. Of less than four times `least` it is, too.
struct BandBytes {
  int64_t least, most;
};

struct DeviceFacts {
  MachineSpeed speed;

  // ---- kernels of ours
  /// A row is scanned by one block of threads, which combine neighbours again and again.
  bool scans_by_blocks;
  /// What meets at one place is combined in the order of the elements. Else threads meet there in any order.
  bool scatters_in_order;
  /// A launch is given the value of a number that lies on the processor.
  bool takes_numbers;
  /// Elements at computed places are read about as quickly as rows, which vectors of a processor need.
  bool reads_anywhere;
  /// Rows are cut into chunks that are summed side by side, however few columns there are. Else one thread
  /// sums a column, and what else it does for each row nobody else does.
  bool splits_sums;
  /// A sum over channels and pixels is slow where these lie in another order than they were recorded in.
  bool sums_in_memory_order;
  /// A product of a matrix and a vector takes no longer as the sums of products that it is.
  bool sums_products;
  /// Pools of small windows are computed by kernels that read each element of a window.
  bool pools_in_kernels;

  BandBytes bands;

  // ---- its libraries
  /// Convolutions of a few channels pad them to eight, which copies the image.
  bool pads_channels;
  /// The bias of a convolution is added by a pass of its own.
  bool adds_bias_apart;
  /// Products of half precision are slow where rows do not begin at multiples of 16 bytes, and masks of
  /// attention are copied. See aligned_row.
  bool needs_aligned_rows;
  /// Products read a matrix that lies turned round as quickly, and add a bias to it as well.
  bool reads_turned_matrices;
  /// Convolutions of single pixels are multiplications that add to an image, which may lie in the result's
  /// place.
  bool products_add_in_place;
  /// Convolutions read channels that lie next to each other, and turn other images round.
  bool likes_channels_last;
  GroupWidths group_widths;
  /// Convolutions may be given their images in any order. Elsewhere some orders are slow: groups in cuDNN.
  bool convolves_in_any_order;
  /// Attention without a mask gives heads that lie beside each other.
  bool lays_heads_beside;
  /// Attention, and products of one operand, are computed in several ways, of which only measuring tells the
  /// best.
  bool has_several_ways;
};

BOLT_API const DeviceFacts& facts_of(Device device);

/// The length of rows of so many elements where each begins at a multiple of what is read at once.
constexpr int64_t kAlignedElements = 8;
constexpr int64_t aligned_row(int64_t elements) {
  return (elements + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
}

/// Does the host itself compute there? Numbers may lie there whatever else an operator is given, as in eager.
inline bool is_processor(Device device) { return device.kind == DeviceKind::CPU; }

}  // namespace bolt::graph
