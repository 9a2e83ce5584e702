// graph/device_facts.cpp
// The rows of device_facts.h.
#include "graph/device_facts.h"

namespace bolt::graph {
namespace {

constexpr DeviceFacts kCpu = {
    .speed = {.bytes_per_ns = 32, .instructions_per_ns = 48, .multiply_adds_per_ns = 192, .start_ns = 200},
    .scans_by_blocks = false,
    .scatters_in_order = true,
    .takes_numbers = false,
    .reads_anywhere = false,
    .splits_sums = false,
    .sums_in_memory_order = true,
    .sums_products = true,
    .pools_in_kernels = false,
    .bands = {.least = 0, .most = 0},
    .pads_channels = false,
    .adds_bias_apart = false,
    .needs_aligned_rows = false,
    .reads_turned_matrices = false,
    .products_add_in_place = false,
    .likes_channels_last = false,
    .group_widths = {.least = 0, .least_backward = 0, .most = 0},
    .convolves_in_any_order = true,
    .lays_heads_beside = false,
    .has_several_ways = false,
};
constexpr DeviceFacts kCuda = {
    .speed = {.bytes_per_ns = 3000,
              .instructions_per_ns = 25000,
              .multiply_adds_per_ns = 300000,
              .start_ns = 2000},
    .scans_by_blocks = true,
    .scatters_in_order = false,
    .takes_numbers = true,
    .reads_anywhere = true,
    .splits_sums = true,
    .sums_in_memory_order = false,
    .sums_products = false,
    .pools_in_kernels = true,
    // A band is two launches and has the weights read again. On an H200, GPT-2's head of 393 MiB takes 2 % of
    // the model's time longer in four bands, 5 % in eight; this makes five.
    .bands = {.least = int64_t{32} << 20, .most = int64_t{88} << 20},
    .pads_channels = true,
    .adds_bias_apart = true,
    .needs_aligned_rows = true,
    .reads_turned_matrices = true,
    .products_add_in_place = true,
    .likes_channels_last = true,
    // Measured on an H200, 3x3 and bfloat16: half of the time that images in planes take, which cuDNN turns
    // round, and a third of it where groups are not as wide and it adds zeros as well. Channels-last other
    // widths take twice to twenty times as long, weights' gradients of 4 and of more than 128 also.
    .group_widths = {.least = 4, .least_backward = 8, .most = 128},
    .convolves_in_any_order = false,
    .lays_heads_beside = true,
    .has_several_ways = true,
};

}  // namespace

// Nothing is compiled for other devices, whose calls stay eager's: for them nothing is better than as it is.
const DeviceFacts& facts_of(Device device) { return device.kind == DeviceKind::CUDA ? kCuda : kCpu; }

}  // namespace bolt::graph
