// loops/together.cpp
#include "loops/together.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "graph/device_facts.h"
#include "loops/in_place.h"

namespace bolt::loops {
namespace {

constexpr int64_t kSmallBytes = 4096;
/// Of temporaries that are made earlier than they are read, in one list: at most, and of all that the program
/// has in memory. A launch costs as much as a few megabytes.
constexpr int64_t kEarlyBytes = int64_t{32} << 20, kOfAll = 64;

class Together {
 public:
  Together(Plan& plan, const PlanOptions& options) : p_(plan), options_(options) {}

  void run() {
    if (!find_keys()) return;
    find_edges();
    early_ = bytes_made_early();
    done_.assign(p_.steps.size(), 0);
    for (size_t i = 0; i < p_.steps.size(); ++i)
      if (!done_[i]) take_with_list(i);
    std::vector<Step> ordered;
    for (size_t i : order_) ordered.push_back(std::move(p_.steps[i]));
    p_.steps = std::move(ordered);
  }

 private:
  const Step& step(size_t i) const { return p_.steps[i]; }
  const PlanBuffer& buffer(int b) const { return p_.buffers[b]; }
  /// The buffer whose memory it is.
  int memory(int b) const {
    while (buffer(b).kind == BufferKind::Alias || buffer(b).over >= 0)
      b = buffer(b).kind == BufferKind::Alias ? buffer(b).source : buffer(b).over;
    return b;
  }
  bool writes(const Step& s, size_t slot) const { return slot >= static_cast<size_t>(s.operand_count); }

  /// Steps of which there are several that do the same, whatever the sizes: of those alone a key is asked
  /// for.
  std::vector<char> are_alike() const {
    std::unordered_map<uint64_t, int> count;
    std::vector<uint64_t> work(p_.steps.size());
    for (size_t i = 0; i < p_.steps.size(); ++i)
      if (step(i).kind == StepKind::Kernel) ++count[work[i] = work_of(p_.kernels[step(i).kernel])];
    std::vector<char> alike(p_.steps.size());
    for (size_t i = 0; i < p_.steps.size(); ++i)
      alike[i] = step(i).kind == StepKind::Kernel && count[work[i]] > 1;
    return alike;
  }
  static uint64_t work_of(const Kernel& k) {
    uint64_t h = k.stores.size();
    auto mix = [&](uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15u + (h >> 29); };
    for (const Buffer& b : k.buffers)
      mix(static_cast<uint64_t>(b.dtype) << 8 | static_cast<uint64_t>(b.role));
    for (const Expr& e : k.exprs) mix(static_cast<uint64_t>(e.kind) << 8 | static_cast<uint64_t>(e.op));
    return h;
  }

  /// False: nothing here can be launched together.
  bool find_keys() {
    keys_.assign(p_.steps.size(), -1);
    if (!options_.list_key) return false;
    const std::vector<char> alike = are_alike();
    std::unordered_map<std::string, int> numbers;
    std::unordered_map<int, int> of_kernel;
    std::vector<int> members;
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      const Step& s = step(i);
      if (!alike[i] || !is_movable(s)) continue;
      const auto [known, fresh] = of_kernel.try_emplace(s.kernel, -1);
      if (fresh) {
        const std::string key = options_.list_key(p_.kernels[s.kernel], numbers_of(p_, s), s.device);
        if (!key.empty())
          known->second =
              numbers.try_emplace(graph::str(s.device) + key, static_cast<int>(numbers.size())).first->second;
      }
      keys_[i] = known->second;
      if (keys_[i] < 0) continue;
      members.resize(std::max(members.size(), static_cast<size_t>(keys_[i]) + 1));
      ++members[keys_[i]];
    }
    return std::any_of(members.begin(), members.end(), [](int n) { return n > 1; });
  }

  /// Of known sizes, and what it makes is small, lies in memory that is there in any case, or may be made as
  /// early as anybody likes.
  bool is_movable(const Step& s) const {
    bool early = true;
    for (size_t k = 0; k < s.buffers.size(); ++k) {
      const PlanBuffer& b = buffer(memory(s.buffers[k]));
      if (has_data_sizes(buffer(s.buffers[k])) || has_data_sizes(b)) return false;
      early &= writes(s, k) || b.kind == BufferKind::Input;
    }
    const int64_t bytes = temporary_bytes(s);
    return bytes >= 0 && (early || bytes <= kSmallBytes);
  }
  /// Of all temporaries that it makes; -1: that is not known.
  int64_t temporary_bytes(const Step& s) const {
    int64_t bytes = 0;
    for (size_t k = static_cast<size_t>(s.operand_count); k < s.buffers.size(); ++k) {
      const PlanBuffer& b = buffer(memory(s.buffers[k]));
      if (b.kind == BufferKind::Input || b.kind == BufferKind::Output || buffer(s.buffers[k]).over >= 0)
        continue;
      const Sym count = b.type.numel();
      if (!count.is_const()) return -1;
      bytes += count.value() * dtype_bytes(b.type.dtype);
    }
    return bytes;
  }
  int64_t bytes_made_early() const {
    int64_t all = 0;
    for (const PlanBuffer& b : p_.buffers)
      if (const Sym count = b.type.numel(); b.kind != BufferKind::Alias && count.is_const())
        all += count.value() * dtype_bytes(b.type.dtype);
    return std::min(kEarlyBytes, all / kOfAll);
  }
  /// The processor gives the launches, so what it computes itself is done when the list begins.
  bool is_small_on_the_processor(const Step& s) const {
    return s.kind == StepKind::Kernel && graph::is_processor(s.device) && is_movable(s) &&
           std::all_of(s.buffers.begin(), s.buffers.end(), [&](int b) {
             const Sym count = buffer(b).type.numel();
             return count.is_const() && count.value() * dtype_bytes(buffer(b).type.dtype) <= kSmallBytes;
           });
  }
  bool changes_inputs(const Step& s) const {
    for (size_t k = 0; k < s.buffers.size(); ++k)
      if (writes(s, k) && buffer(memory(s.buffers[k])).kind == BufferKind::Input) return true;
    return false;
  }

  /// Which steps each waits for: what it reads was written, what it writes was read and written.
  void find_edges() {
    before_.assign(p_.steps.size(), {});
    failing_.assign(p_.steps.size() + 1, 0);
    std::vector<int> writer(p_.buffers.size(), -1);
    std::vector<std::vector<int>> readers(p_.buffers.size());
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      const Step& s = step(i);
      failing_[i + 1] = failing_[i] + can_fail(p_, s);
      const int now = static_cast<int>(i);
      auto wait = [&](int other) {
        if (other >= 0 && other != now) before_[i].push_back(other);
      };
      for (int b : s.buffers) wait(writer[memory(b)]);
      for (size_t k = 0; k < s.buffers.size(); ++k)
        if (writes(s, k))
          for (int r : readers[memory(s.buffers[k])]) wait(r);
      for (size_t k = 0; k < s.buffers.size(); ++k) {
        const auto m = static_cast<size_t>(memory(s.buffers[k]));
        if (!writes(s, k)) readers[m].push_back(now);
      }
      for (size_t k = 0; k < s.buffers.size(); ++k) {
        const auto m = static_cast<size_t>(memory(s.buffers[k]));
        if (!writes(s, k)) continue;
        writer[m] = now;
        readers[m].clear();
      }
    }
  }

  void take_with_list(size_t first) {
    std::vector<size_t> list{first};
    int64_t bytes = keys_[first] >= 0 ? temporary_bytes(step(first)) : 0;
    bool full = false;
    if (keys_[first] >= 0)
      for (size_t i = first + 1; i < p_.steps.size(); ++i) {
        if (done_[i] || keys_[i] != keys_[first]) continue;
        if (changes_inputs(step(i)) && failing_[i] > failing_[first]) continue;
        const int64_t more = temporary_bytes(step(i));
        full |= more > kSmallBytes && bytes + more > early_;
        if (more > kSmallBytes && full) continue;
        std::vector<size_t> helpers;
        if (!may_move(i, first, helpers)) continue;
        bytes += more;
        for (size_t h : helpers) take(h);
        list.push_back(i);
        done_[i] = 1;  // nothing else of the list may wait for it: see may_move
        in_list_.push_back(i);
      }
    in_list_.clear();
    done_[first] = 0;
    for (size_t i : list) {
      take(i);
      if (list.size() > 1) p_.steps[i].list = lists_;
    }
    lists_ += list.size() > 1;
  }

  /// Does step i wait for nothing that is still to come but small kernels on the processor, which do not
  /// either?
  bool may_move(size_t i, size_t first, std::vector<size_t>& helpers) const {
    for (int b : before_[i]) {
      const auto other = static_cast<size_t>(b);
      if (other == first || std::find(in_list_.begin(), in_list_.end(), other) != in_list_.end())
        return false;
      if (done_[other] || std::find(helpers.begin(), helpers.end(), other) != helpers.end()) continue;
      const Step& s = step(other);
      if (!is_small_on_the_processor(s) || !may_move(other, first, helpers)) return false;
      if (changes_inputs(s) && failing_[other] > failing_[first]) return false;
      helpers.push_back(other);
    }
    return true;
  }

  void take(size_t i) {
    done_[i] = 1;
    order_.push_back(i);
  }

  Plan& p_;
  const PlanOptions& options_;
  std::vector<int> keys_;  // by step: kernels of equal ones may be launched together; -1: by itself
  std::vector<std::vector<int>> before_;
  std::vector<int> failing_;  // steps in front of each that may fail
  std::vector<char> done_;
  std::vector<size_t> order_, in_list_;
  int64_t early_ = 0;  // bytes of temporaries that one list may make before they are read
  int lists_ = 0;
};

}  // namespace

void launch_together(Plan& plan, const PlanOptions& options) { Together(plan, options).run(); }

}  // namespace bolt::loops
