// codegen/cuda/compile_plan.cpp
// See compile_plan.h.

#include "codegen/cuda/compile_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/indices.h"
#include "codegen/cuda/lists.h"
#include "codegen/cuda/prelude.h"
#include "loops/normalise.h"
#include "support/error.h"
#include "support/log.h"

namespace bolt::codegen::cuda {
namespace {

/// Stands for the function's name in texts that are compared.
constexpr const char* kAnyName = "bolt_kernel";

/// Readable in a profile; what is behind the last _ tells functions of one cubin apart.
std::string function_name(const std::string& kernel, const std::string& name) {
  return "bolt_" + identifier(kernel) + "_" + name;
}

}  // namespace

class Compilation::Texts {
 public:
  explicit Texts(const CudaTarget& target)
      : target_(target),
        options_(target.options),
        target_key_("cuda sm_" + std::to_string(target.capability) + " nvrtc " + nvrtc(target).version() +
                    "\n") {
    options_.capability = target.capability;
  }

  void add(const loops::Kernel& kernel, bool listed, const std::vector<char>& numbers, int schedule) {
    const loops::Kernel k = loops::normalise(kernel);
    KernelLaunches& c = code_.kernels.emplace_back();
    c.name = kernel.name;
    c.symbols = k.symbols;
    c.buffers = k.buffers.size();
    c.number_bytes.resize(c.buffers);
    for (size_t b = 0; b < numbers.size(); ++b)
      if (numbers[b]) c.number_bytes[b] = static_cast<char>(dtype_bytes(k.buffers[b].dtype));
    c.reports = k.has_checks();
    c.refused = refusal(k);
    std::vector<size_t>& units = unit_of_.emplace_back();
    if (!c.refused.empty()) return;
    if (auto form = listed ? list_form(k, options_) : std::nullopt) return add_list(c, *form, numbers, units);
    ScheduleOptions options = options_;
    options.wider = kWider[schedule];
    Parts all = parts(k, options);
    c.scratch = std::move(all.scratch);
    c.scratch_bytes = all.scratch_bytes;
    for (Part& part : all.list) {
      const Schedule s = codegen::cuda::schedule(part.kernel, options);
      units.push_back(
          add_launch(c, part, s, emit_kernel(part.kernel, s, kAnyName, 0, part.by_buffer(numbers))));
    }
  }

  /// No more are added.
  void close() {
    batch_.emplace(
        std::move(units_),
        Compiler{target_key_, [this](const std::vector<NamedUnit>& share) { return cubin_of(share); },
                 [](const std::string& object) { return std::shared_ptr<MachineCode>(new Cubin(object)); }});
  }
  const std::vector<KernelLaunches>& kernels() const { return code_.kernels; }

  PlanLaunches finish() {
    code_.from_cache = batch_->compile();
    for (size_t i = 0; i < code_.kernels.size(); ++i)
      for (size_t j = 0; j < unit_of_[i].size(); ++j) {
        const BatchUnit& u = batch_->units()[unit_of_[i][j]];
        GridLaunch& launch = code_.kernels[i].launches[j];
        launch.code = std::static_pointer_cast<const Cubin>(u.code);
        launch.function = *static_cast<const std::string*>(u.function);
      }
    count_bytes();
    return std::move(code_);
  }

 private:
  static const Nvrtc& nvrtc(const CudaTarget& target) {
    BOLT_CHECK(target.nvrtc, "a CUDA target without a compiler");
    return *target.nvrtc;
  }

  void add_list(KernelLaunches& c, ListForm& form, const std::vector<char>& numbers,
                std::vector<size_t>& units) {
    c.values = form.values;
    c.scratch = std::move(form.parts.scratch);
    for (Scratch& s : c.scratch) s.offset = form.known(s.offset);
    c.scratch_bytes = form.known(form.parts.scratch_bytes);
    for (size_t i = 0; i < form.parts.list.size(); ++i) {
      units.push_back(add_launch(c, form.parts.list[i], form.schedules[i], form.text(i, kAnyName, numbers)));
      GridLaunch& launch = c.launches.back();
      launch.most = form.most[i];
      launch.count = form.known(launch.count);
      launch.blocks = form.known(launch.blocks);
      launch.points = form.known(launch.points);
    }
  }

  size_t add_launch(KernelLaunches& c, Part& part, const Schedule& s, std::string text) {
    GridLaunch& launch = c.launches.emplace_back();
    launch.buffers = std::move(part.buffers);
    launch.reports = part.kernel.has_checks();
    launch.narrow = s.narrow;
    launch.count = s.count;
    launch.blocks = s.blocks;
    launch.points = s.points;
    launch.threads = s.threads;
    launch.shared_bytes = shared_bytes(part.kernel, s);
    launch.cluster = s.cluster;
    BatchUnit unit{std::move(text), nullptr, nullptr};
    if (log_wanted("schedule")) log("schedule", c.name + ": " + print(s));
    if (log_wanted("output_code")) log("output_code", "// " + c.name + ": " + print(s) + "\n" + unit.key);
    const auto [it, fresh] = by_text_.try_emplace(unit.key, units_.size());
    if (fresh) {
      units_.push_back(std::move(unit));
      name_of_.push_back(c.name);
    }
    return it->second;
  }

  std::string cubin_of(const std::vector<NamedUnit>& share) const {
    std::string text(prelude());
    for (const NamedUnit& u : share) {
      std::string function = batch_->units()[u.unit].key;
      function.replace(function.find(kAnyName), std::strlen(kAnyName),
                       function_name(name_of_[u.unit], u.name));
      text += function;
    }
    return target_.nvrtc->compile(text, target_.capability);
  }

  void count_bytes() {
    std::vector<const MachineCode*> seen;
    for (const BatchUnit& u : batch_->units())
      if (std::find(seen.begin(), seen.end(), u.code.get()) == seen.end()) {
        seen.push_back(u.code.get());
        code_.code_bytes += u.code->bytes();
      }
  }

  const CudaTarget target_;
  ScheduleOptions options_;
  const std::string target_key_;
  PlanLaunches code_;
  std::vector<BatchUnit> units_;  // until they are a batch
  std::optional<Batch> batch_;
  std::vector<std::string> name_of_;  // by unit: the first kernel that is it
  std::map<std::string, size_t> by_text_;
  std::vector<std::vector<size_t>> unit_of_;  // by kernel and launch
};

/// Strings of the cubin end in it, some with a section's name before: `.text.bolt_softmax_0_k3`.
void* Cubin::address(const std::string& name) const {
  const std::string end = "_" + name + '\0';
  for (size_t at = image_.find(end); at != std::string::npos; at = image_.find(end, at + 1)) {
    const size_t begin = image_.find("bolt_", image_.rfind('\0', at) + 1);
    if (begin < at) return &(names_[name] = image_.substr(begin, at - begin) + "_" + name);
  }
  BOLT_CHECK(false, "a cubin without function ", name);
  return nullptr;
}

Syms KernelLaunches::extents() const {
  Syms all;
  for (const GridLaunch& l : launches) {
    all.push_back(l.blocks);
    all.push_back(l.count);
    all.push_back(l.points);
  }
  for (const Scratch& s : scratch) all.push_back(s.offset);
  all.push_back(scratch_bytes);
  return all;
}

Compilation::Compilation(const std::vector<loops::Kernel>& kernels, const CudaTarget& target,
                         const std::vector<char>& listed, const std::vector<std::vector<char>>& numbers,
                         const std::vector<int>& schedules)
    : texts_(std::make_unique<Texts>(target)) {
  for (size_t i = 0; i < kernels.size(); ++i)
    texts_->add(kernels[i], !listed.empty() && listed[i], numbers.empty() ? std::vector<char>() : numbers[i],
                schedules.empty() ? 0 : schedules[i]);
  texts_->close();
}

Compilation::~Compilation() = default;

const std::vector<KernelLaunches>& Compilation::kernels() const { return texts_->kernels(); }
PlanLaunches Compilation::finish() { return texts_->finish(); }

PlanLaunches compile(const std::vector<loops::Kernel>& kernels, const CudaTarget& target,
                     const std::vector<char>& listed, const std::vector<std::vector<char>>& numbers) {
  return Compilation(kernels, target, listed, numbers).finish();
}

}  // namespace bolt::codegen::cuda
