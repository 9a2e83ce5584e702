// opt/opt.cpp
#include "opt/opt.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "codegen/cpu/compile_plan.h"
#include "codegen/cpu/schedule.h"
#include "codegen/cuda/emit.h"
#include "codegen/cuda/lists.h"
#include "graph/passes/passes.h"
#include "loops/cost.h"
#include "loops/kernel_text.h"
#include "loops/layout.h"
#include "loops/library_layout.h"
#include "loops/normalise.h"
#include "loops/plan.h"
#include "support/error.h"
#include "support/text.h"
#include "support/text_reader.h"

namespace bolt::opt {
namespace {

using codegen::cpu::Target;
using loops::Kernel;

/// One row per option: what it sets, and what the help says of it.
struct OptionRow {
  std::string_view name;
  std::string OptOptions::* text;
  bool OptOptions::* flag;
  std::string_view value, meaning;
};
constexpr OptionRow kRows[] = {
    {"emit", &OptOptions::emit, nullptr, "STAGE",
     "what to print, one of those below; otherwise what was read"},
    {"passes", &OptOptions::passes, nullptr, "a,b", "passes over the graph, or: standard"},
    {"target", &OptOptions::target, nullptr, "cpu|cuda",
     "plan as for CUDA wherever tensors lie (as --emit=cuda does)"},
    {"fuel", &OptOptions::fuel, nullptr, "N", "at most so many fusions, to find the one that is wrong"},
    {"apart", &OptOptions::apart, nullptr, "BYTES",
     "temporaries of so many bytes have memory of their own, as those of training steps do (2097152)"},
    {"numerics", &OptOptions::numerics, nullptr, "fast|eager",
     "round halves as eager does, within kernels too"},
    {"free", &OptOptions::free, nullptr, "0,2",
     "results that may lie in any order of memory (dumps of plans name them)"},
    {"no-fuse", nullptr, &OptOptions::no_fuse, "", "every operation is a kernel"},
    {"verify-each", nullptr, &OptOptions::verify_each, "", "verify the graph after each pass"},
    {"time", nullptr, &OptOptions::time, "", "say on standard error what each pass took"},
    {"list", nullptr, &OptOptions::list, "", "list the passes"},
    {"help", nullptr, &OptOptions::help, "", "this"},
};

std::string left_out(const Kernel& k) { return "; @" + k.name + " ends a contraction\n"; }
bool is_epilogue(const Kernel& k) {
  return std::any_of(k.exprs.begin(), k.exprs.end(),
                     [](const loops::Expr& e) { return e.kind == loops::ExprKind::Acc; });
}

/// What `emit` makes of each kernel by itself. Those that end contractions are part of their code.
template <class Emit>
std::string of_each(const std::vector<Kernel>& kernels, Emit emit) {
  std::string out;
  for (const Kernel& k : kernels) out += is_epilogue(k) ? left_out(k) : emit(k);
  return out;
}

std::string kernels_text(const std::vector<Kernel>& kernels) {
  std::string out;
  for (const Kernel& k : kernels) out += loops::print(k);
  return out;
}
std::string schedule_text(const std::vector<Kernel>& kernels) {
  return of_each(kernels, [](const Kernel& k) {
    return "@" + k.name + ": " + print(codegen::cpu::schedule(loops::normalise(k), Target::host())) + "\n";
  });
}
std::string llvm_text(const std::vector<Kernel>& kernels) {
  return of_each(kernels, [](const Kernel& k) { return codegen::cpu::emit_text(k, Target::host(), true); });
}
std::string asm_text(const std::vector<Kernel>& kernels) {
  std::vector<Kernel> alone;
  std::string out = of_each(kernels, [&](const Kernel& k) { return alone.push_back(k), ""; });
  return alone.empty() ? out : out + codegen::cpu::assemble(alone, Target::host()).text;
}
std::string asm_of_plan(const loops::Plan& plan) { return codegen::cpu::assemble(plan, Target::host()).text; }
std::string cuda_text(const std::vector<Kernel>& kernels) { return codegen::cuda::emit(kernels).text; }

/// The stages in their order. Of those behind the plan: what makes their text of its kernels, or of all of
/// it, contractions included.
struct Stage {
  std::string_view name, first_word;
  std::string (*of_kernels)(const std::vector<Kernel>&);
  std::string (*of_plan)(const loops::Plan&);
  std::string_view meaning;
};
constexpr Stage kStages[] = {
    {"tape", "tape", nullptr, nullptr, "recorded operators (python -m torchbolt.opt)"},
    {"graph", "graph", nullptr, nullptr, "functional operations on tensors"},
    {"plan", "plan", nullptr, loops::print, "steps, buffers and memory, with the kernels"},
    {"costs", "", nullptr, loops::print_costs, "what the model of costs says of each kernel of a plan"},
    {"kernels", "kernel", kernels_text, nullptr, "the kernels alone"},
    {"schedule", "", schedule_text, nullptr, "how the CPU goes through each kernel"},
    {"llvm", "", llvm_text, nullptr, "LLVM IR of each kernel"},
    {"asm", "", asm_text, asm_of_plan, "the CPU's instructions"},
    {"cuda", "", cuda_text, nullptr, "CUDA C++ of the kernels"},
};

const Stage& find_stage(std::string_view name) {
  for (const Stage& s : kStages)
    if (s.name == name) return s;
  std::string all;
  for (const Stage& s : kStages) all += (all.empty() ? "" : ", ") + std::string(s.name);
  throw_user("there is no stage '", name, "'; there are: ", all);
}

/// Is what is asked for made of what was read?
void check_order(std::string_view from, const OptOptions& o) {
  if (!o.emit.empty() && &find_stage(o.emit) < &find_stage(from))
    throw_user("the text is of the stage ", from, ", and ", o.emit, " comes before it");
  if (from != "graph" && !(o.passes.empty() && o.fuel.empty() && !o.no_fuse && o.target.empty() &&
                           o.numerics.empty() && o.free.empty()))
    throw_user(
        "--passes, --target, --fuel, --free, --no-fuse and --numerics are for graphs; the text is of the "
        "stage ",
        from);
}

/// Contractions of tensors on the CPU are generated, others are a library's.
loops::PlanOptions where_it_lies() {
  loops::PlanOptions options = codegen::cpu::options_that_generate();
  options.generates = [cpu = options.generates](const loops::PlannedContraction& call) {
    const bool here = call.node.out()->type.device.kind == graph::DeviceKind::CPU;
    return here ? cpu(call) : std::nullopt;
  };
  return options;
}

template <typename T>
void read_number(const std::string& text, std::string_view what, T* number) {
  if (text.empty()) return;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, *number).ptr != end || *number < 0) throw_user(what, ", not ", text);
}

loops::PlanOptions options_of(const OptOptions& o) {
  const std::string target = o.target.empty() && o.emit == "cuda" ? "cuda" : o.target;
  if (!target.empty() && target != "cpu" && target != "cuda")
    throw_user("--target is cpu or cuda, not ", target);
  loops::PlanOptions options;
  if (target != "cuda") options = where_it_lies();
  options.list_key = [](const Kernel& kernel, const std::vector<char>& numbers, graph::Device on) {
    return on.kind == graph::DeviceKind::CUDA ? codegen::cuda::list_key(kernel, {}, numbers) : std::string();
  };
  options.ends_in = [](const graph::Node& call, graph::Op ending) {
    const graph::Type& type = call.out()->type;
    return type.device.kind == graph::DeviceKind::CUDA && is_half(type.dtype) &&
           loops::ends_in_library(call, ending);
  };
  options.ends_in_float = [](const graph::Node& product) {
    return product.out()->type.device.kind == graph::DeviceKind::CUDA;
  };
  options.fuse = !o.no_fuse;
  if (!o.numerics.empty() && o.numerics != "fast" && o.numerics != "eager")
    throw_user("--numerics is fast or eager, not ", o.numerics);
  options.rounds_as_eager = o.numerics == "eager";
  read_number(o.fuel, "--fuel is a number of fusions", &options.fuel);
  read_number(o.apart, "--apart is a number of bytes", &options.bytes_apart);
  return options;
}

std::vector<int> free_outputs(const OptOptions& o) {
  std::vector<int> out;
  if (o.free.empty()) return out;
  for (std::string_view number : split(o.free, ','))
    read_number(std::string(number), "--free is numbers of results, with commas", &out.emplace_back(0));
  return out;
}

std::string emit(const loops::Plan& p, const OptOptions& o) {
  const Stage& to = find_stage(o.emit.empty() ? "plan" : o.emit);
  return to.of_plan ? to.of_plan(p) : to.of_kernels(p.kernels);
}

std::vector<Kernel> read_kernels(std::string_view text) {
  TextReader in(text);
  std::vector<Kernel> kernels;
  try {
    while (!in.at_end()) {
      kernels.push_back(loops::read_kernel(in));
      loops::verify(kernels.back());
    }
  } catch (const Error& e) {
    in.rethrow(e);
  }
  return kernels;
}

std::string times_text(const std::vector<graph::PassTime>& times) {
  std::string out;
  for (const graph::PassTime& t : times) {
    char line[100];
    std::snprintf(line, sizeof line, "%-18s %9.1f us%s\n", std::string(t.name).c_str(), t.seconds * 1e6,
                  t.changed ? "  changed" : "");
    out += line;
  }
  return out;
}

}  // namespace

OptOptions read_options(const std::vector<std::string>& arguments) {
  OptOptions o;
  for (const std::string& argument : arguments) {
    if (!starts_with(argument, "--")) {
      if (!o.file.empty()) throw_user("two files: ", o.file, " and ", argument);
      o.file = argument;
      continue;
    }
    const size_t end = argument.find('=');
    const std::string name = argument.substr(2, end == std::string::npos ? end : end - 2);
    const auto* row =
        std::find_if(std::begin(kRows), std::end(kRows), [&](const OptionRow& r) { return r.name == name; });
    if (row == std::end(kRows) || (row->text != nullptr) != (end != std::string::npos))
      throw_user("unknown option ", argument, "\n", help());
    if (row->text)
      o.*row->text = argument.substr(end + 1);
    else
      o.*row->flag = true;
  }
  if (o.file.empty() && !o.list && !o.help) throw_user("which file?\n", help());
  if (!o.emit.empty()) find_stage(o.emit);
  return o;
}

std::string help() {
  std::string out = "usage: bolt-opt [OPTION ...] FILE        (-: standard input)\n";
  auto line = [&](std::string left, std::string_view right) {
    left.resize(std::max<size_t>(left.size() + 2, 22), ' ');
    out += "  " + left + std::string(right) + "\n";
  };
  for (const OptionRow& r : kRows)
    line("--" + std::string(r.name) + (r.value.empty() ? "" : "=" + std::string(r.value)), r.meaning);
  out += "stages:\n";
  for (const Stage& s : kStages) line(std::string(s.name), s.meaning);
  return out;
}

std::string list_of_passes() {
  std::string out;
  for (const graph::Pass& p : graph::passes()) {
    std::string name(p.name);
    name.resize(std::max<size_t>(name.size() + 1, 19), ' ');
    out += name + std::string(p.summary) + "\n";
  }
  return out;
}

std::string_view stage_of(std::string_view text) {
  TextReader in(text);
  in.at_end();  // skips comments
  const std::string_view start = in.place(), word = in.word();
  for (const Stage& s : kStages)
    if (!s.first_word.empty() && s.first_word == word) return s.name;
  in.go_to(start);
  in.fail("a text begins with tape, graph, plan or kernel");
}

OptResult run(std::unique_ptr<graph::Graph> graph, const OptOptions& o) {
  check_order("graph", o);
  OptResult result;
  const std::vector<std::string_view> passes =
      o.passes == "standard" ? graph::standard_passes() : split(o.passes, ',');
  const loops::PlanOptions options = options_of(o);
  const auto times = graph::run_passes(
      *graph, passes, o.verify_each, {.rounds_as_eager = options.rounds_as_eager, .widens = options.widens});
  if (o.time) result.report = times_text(times);
  if (const std::vector<int> free = free_outputs(o); !free.empty())
    loops::choose_layouts(*graph, options, free);
  if (o.emit.empty() || o.emit == "graph")
    result.text = graph::print(*graph);
  else
    result.text = emit(loops::plan(std::move(graph), options), o);
  return result;
}

OptResult run(std::string_view text, const OptOptions& o) {
  const std::string_view from = stage_of(text);
  if (from == "tape") throw_user("a tape is read by python -m torchbolt.opt, which knows ATen's operators");
  if (from == "graph") return run(graph::parse(text), o);
  check_order(from, o);
  if (from == "plan") return {emit(loops::parse_plan(text), o), ""};
  return {find_stage(o.emit.empty() ? "kernels" : o.emit).of_kernels(read_kernels(text)), ""};
}

}  // namespace bolt::opt
