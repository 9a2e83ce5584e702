// run/kept_plans.cpp
#include "run/kept_plans.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cache/disk_cache.h"
#include "cache/identity.h"
#include "device/device.h"
#include "loops/from_graph.h"
#include "support/knobs.h"
#include "support/log.h"
#include "support/text.h"
#include "support/text_reader.h"

namespace bolt::run {
namespace {

/// Of fewer nodes a plan is made sooner than a file is read.
constexpr size_t kNodes = 48;

/// Who is shown stages wants to see them run.
bool is_shown() {
  return !knob("TORCHBOLT_DUMP").empty() || log_wanted("post_grad_graphs") || log_wanted("fusion");
}

std::string builds() {
  static const std::string ids = cache::identity_of(reinterpret_cast<const void*>(&loops::from_graph)) + " " +
                                 cache::identity_of(reinterpret_cast<const void*>(&builds));
  return ids;
}

/// Every device that a value lies on, as it is now.
std::string devices_of(const graph::Graph& g) {
  std::vector<graph::Device> seen;
  std::string out;
  auto say = [&](const graph::Value& v) {
    const graph::Device device = v.type.device;
    if (std::ranges::find(seen, device) != seen.end()) return;
    seen.push_back(device);
    const device::DeviceInterface* driver = device::find(device.kind);
    out += graph::str(device) + " " + (driver ? driver->fingerprint(device::to_torch(device)) : "") + "\n";
  };
  for (const graph::Input& in : g.inputs) say(*in.value);
  for (const auto& node : g.nodes)
    for (const auto& output : node->outputs) say(*output);
  return out;
}

/// What a value is a view or a cast of: itself, where it is none.
const graph::Value* base_of(const graph::Value* v) {
  while (v->def && (graph::op_info(v->def->op).kind == graph::OpKind::View || v->def->op == graph::Op::cast))
    v = v->def->operands[0];
  return v;
}

/// Products of one operand by parameters are put together in the order in which these lie, and without a copy
/// where one begins at the other's end: so much of their addresses, which differ from process to process,
/// counts. What is run where they have moved since is slower and right.
std::string neighbours(const graph::Graph& g) {
  std::map<const graph::Value*, std::vector<int>> weights;  // by operand
  for (const auto& node : g.nodes) {
    if (!graph::is_contraction(node->op) || node->op == graph::Op::conv) continue;
    const graph::Value* weight = base_of(node->operands[1]);
    if (!weight->def && g.inputs[weight->index].address)
      weights[base_of(node->operands[0])].push_back(weight->index);
  }
  std::vector<int> order;
  for (const auto& [operand, of_it] : weights)
    if (of_it.size() > 1) order.insert(order.end(), of_it.begin(), of_it.end());
  std::ranges::sort(order, {}, [&](int i) { return std::pair(g.inputs[i].address, i); });
  order.erase(std::ranges::unique(order).begin(), order.end());
  std::string out;
  uintptr_t end = 0;
  for (const int i : order) {
    const graph::Type& type = g.inputs[i].value->type;
    out += (g.inputs[i].address == end ? "+" : " ") + std::to_string(i);
    end = g.inputs[i].address + static_cast<uintptr_t>(type.numel().value_or(0) * dtype_bytes(type.dtype));
  }
  return out;
}

/// By call the first one that is the same: such calls are planned alike where layers are.
std::string classes_of(const std::vector<lower::ExternCall>& calls) {
  std::vector<size_t> firsts;
  std::string out;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto same = std::ranges::find_if(firsts, [&](size_t first) { return calls[first] == calls[i]; });
    out += " " + std::to_string(same == firsts.end() ? i : *same);
    if (same == firsts.end()) firsts.push_back(i);
  }
  return out;
}

std::string text_of(const loops::PlanOptions& o, const std::vector<int>& free_outputs) {
  std::string out;
  for (const int64_t part : {int64_t{o.fuse}, int64_t{o.fuel}, int64_t{o.fold_params}, int64_t{o.repeats},
                             int64_t{o.rounds_as_eager}, o.bytes_apart, int64_t{o.apart_on != nullptr},
                             o.bands ? o.bands->least : -1, o.bands ? o.bands->most : -1})
    out += " " + std::to_string(part);
  out += " free";
  for (const int output : free_outputs) out += " " + std::to_string(output);
  return out;
}

// ---- the file: a line of lengths, the plan's text, the graph's, and by step what its text leaves out

std::string packed(const loops::Plan& plan) {
  const std::string text = loops::print(plan), graph = graph::print(*plan.graph);
  std::string out = std::to_string(text.size()) + " " + std::to_string(graph.size()) + "\n" + text + graph;
  for (const auto* list : {&plan.fold_steps, &plan.steps})
    for (const loops::Step& s : *list) out += std::to_string(s.node_count) + " " + number(s.alone) + "\n";
  return out;
}

/// Throws for what packed() does not give.
loops::Plan unpacked(const std::string& bytes) {
  const size_t line = bytes.find('\n');
  TextReader lengths(std::string_view(bytes).substr(0, line));
  const auto length = static_cast<size_t>(lengths.integer()), graph = static_cast<size_t>(lengths.integer());
  std::string_view rest = std::string_view(bytes).substr(line + 1);
  BOLT_CHECK(length <= rest.size() && graph <= rest.size() - length, "a plan on disk ends too early");
  loops::Plan plan = loops::parse_plan(rest.substr(0, length));
  plan.graph_text = rest.substr(length, graph);
  TextReader numbers(rest.substr(length + graph));
  for (auto* list : {&plan.fold_steps, &plan.steps})
    for (loops::Step& s : *list) {
      s.node_count = static_cast<int>(numbers.integer());
      s.alone = numbers.number();
    }
  return plan;
}

std::optional<loops::Plan> found(const cache::DiskCache& disk, const std::string& key) {
  const std::optional<std::string> bytes = disk.read(key);
  if (!bytes) return std::nullopt;
  try {
    return unpacked(*bytes);
  } catch (const Error& e) {
    log("cache", std::string("a plan on disk is planned again: ") + e.what());
    return std::nullopt;
  }
}

}  // namespace

loops::Plan planned(std::unique_ptr<graph::Graph> graph, const std::vector<lower::ExternCall>& calls,
                    const loops::PlanOptions& options, Stages& stages, const std::vector<int>& free_outputs,
                    bool may_be_kept) {
  const auto same_call = [&](int64_t a, int64_t b) { return calls[a] == calls[b]; };
  const bool is_worth_it = graph->nodes.size() >= kNodes && !cache::default_folder().empty();
  may_be_kept = may_be_kept && is_worth_it && !is_shown();
  if (!may_be_kept) return loops::from_graph(std::move(graph), same_call, options, stages, free_outputs);
  stages.enter("graph");
  const std::string key = "plan of " + builds() + "\n" + knobs_for_cache_key() + "\n" + devices_of(*graph) +
                          neighbours(*graph) + "\n" + classes_of(calls) + "\n" +
                          text_of(options, free_outputs) + "\n" + graph::print(*graph);
  const cache::DiskCache& disk = cache::DiskCache::global();
  stages.enter("loops");
  if (auto kept = found(disk, key)) {
    kept->graph->name = graph->name;
    log("cache", "the plan is from disk");
    return std::move(*kept);
  }
  loops::Plan plan = loops::from_graph(std::move(graph), same_call, options, stages, free_outputs);
  disk.write(key, packed(plan));
  return plan;
}

}  // namespace bolt::run
