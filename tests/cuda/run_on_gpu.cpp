// tests/cuda/run_on_gpu.cpp
// Graphs and kernels (*.ir) -> their kernels run on this machine's CUDA device, compared with the references.
//
//   run_on_gpu [--nvrtc=PATH] FILE...           results: one line a file, "ok" or what differs
//   run_on_gpu [--nvrtc=PATH] --compile FILE... only compiles, for sm_80 and sm_90: needs no device
//   run_on_gpu [--nvrtc=PATH] --time FILE...    device time of each kernel, beside a copy of as many bytes
//   run_on_gpu [--nvrtc=PATH] --fuzz=SEED:COUNT random graphs of tests/fuzz; with --compile only compiled
//   run_on_gpu --emulate=PATH FILE...           results, on the processor (PATH: of tests/cuda/emulate)
//   ... --sizes=7,36,1000                       of what has no size known, one run for each
//
// A graph is planned with and without fusion, and every kernel of the plan runs on the device while the other
// steps run as in tests/loops (plan_runner.h). What a file says in its head (`; ints: 7`, `; s0 = 5`,
// `; tolerance: 1e-2`, `; numerics: eager`) means what it means there.
//
// The emulator runs each plan in several ways (kWays): all code that the product may choose, with memory that
// ends or begins where nobody may read, and what runs at once on a device one way round and the other.

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "tests/cuda/gpu/gpu.h"

namespace bolt::gpu {
namespace {

/// Kernels that know their sizes are run at the first one only.
std::string case_differs(const Tool& tool, const Case& c) {
  if (std::vector<loops::Kernel> kernels = read_kernels(c.text); !kernels.empty()) {
    if (!tool.at_first_size) std::erase_if(kernels, [](const loops::Kernel& k) { return k.symbols.empty(); });
    return kernels_differ(tool, kernels, c);
  }
  const std::string wrong = graph_differs(tool, c, true);
  return wrong.empty() && tool.at_first_size ? graph_differs(tool, c, false) : wrong;
}

bool has_unknown_sizes(const Case& c) {
  const std::vector<loops::Kernel> kernels = read_kernels(c.text);
  if (!kernels.empty())
    return std::ranges::any_of(kernels, [](const loops::Kernel& k) { return !k.symbols.empty(); });
  const std::unique_ptr<graph::Graph> g = graph::parse(c.text);
  return std::ranges::any_of(g->inputs, [&](const graph::Input& in) {
    return std::ranges::any_of(in.value->type.sizes, [&](Sym s) {
      return !s.is_const() && s.node()->op == SymOp::Symbol && !c.sizes.count(s.node()->name);
    });
  });
}

/// What cannot be read or planned is met again, and told, where it is used.
void make_ready(Tool& tool, const std::vector<std::string>& files) {
  std::vector<Wanted> all;
  for (const std::string& file : files) try {
      const Case c = read_case(file);
      if (std::vector<loops::Kernel> kernels = read_kernels(c.text); !kernels.empty())
        all.push_back({Kernels(std::move(kernels)), tool.ways()});
      else
        for (bool fuse : {true, false})
          all.push_back({Kernels(plan_of(c, fuse)), fuse ? tool.ways() : std::vector<Way>{kUsual}});
    } catch (const std::exception&) {
    }
  make_ready(tool, all);
}

void run_file(Tool& tool, const std::string& file) {
  std::string wrong;
  try {
    Case c = read_case(file);
    const bool any_size = has_unknown_sizes(c);
    for (size_t i = 0; i < (any_size ? tool.sizes.size() : 1) && wrong.empty(); ++i) {
      c.other_sizes = tool.sizes[i];
      tool.at_first_size = i == 0;
      wrong = case_differs(tool, c);
      if (!wrong.empty() && any_size) wrong += ", of size " + std::to_string(tool.sizes[i]);
    }
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  tool.at_first_size = true;
  say(tool, file, wrong);
}

void compile_file(Tool& tool, const std::string& file) {
  std::string wrong;
  try {
    const Case c = read_case(file);
    std::vector<loops::Kernel> kernels = read_kernels(c.text);
    for (bool fuse : {true, false}) {
      loops::PlanOptions options;
      options.fuse = fuse;
      if (c.text.find("\ngraph @") == c.text.npos && c.text.rfind("graph @", 0) != 0) break;
      for (loops::Kernel& k : loops::plan(graph::parse(c.text), options).kernels)
        kernels.push_back(std::move(k));
    }
    for (int capability : {80, 90, 0}) {
      CudaTarget target = tool.target;
      target.capability = capability ? capability : 90;
      if (!capability) target.options.aligned = target.options.narrow = false;
      if (!target.nvrtc->knows(target.capability)) continue;
      for (const KernelLaunches& k : codegen::cuda::compile(kernels, target).kernels)
        if (!k.refused.empty()) wrong = k.name + " is refused: " + k.refused;
    }
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  say(tool, file, wrong);
}

std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) numbers.push_back(std::stoll(one));
  return numbers;
}

int main_of(int argc, char** argv) {
  std::vector<std::string> paths, files;
  std::string mode = "run", seeds, emulator;
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--nvrtc=", 0) == 0)
      paths.push_back(arg.substr(8));
    else if (arg.rfind("--emulate=", 0) == 0)
      emulator = arg.substr(10);
    else if (arg.rfind("--sizes=", 0) == 0)
      sizes = numbers_in(arg.substr(8));
    else if (arg.rfind("--fuzz=", 0) == 0)
      seeds = arg.substr(7);
    else if (arg == "--compile" || arg == "--time")
      mode = arg.substr(2);
    else
      files.push_back(arg);
  }
  Tool tool;
  if (!emulator.empty()) {
    // As the driver that the loader then finds under its name.
    void* library = ::dlopen(emulator.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(::dlerror());
    tool.emulator.as = reinterpret_cast<void (*)(int, int)>(::dlsym(library, "emulate_as"));
    if (!tool.emulator.as) throw std::runtime_error(emulator + " is no emulator");
    paths = {emulator};
  }
  std::string why;
  tool.target.nvrtc = codegen::cuda::Nvrtc::open(paths, &why);
  if (!tool.target.nvrtc) throw std::runtime_error(why);
  if (!sizes.empty()) tool.sizes = sizes;
  if (mode != "compile") {
    tool.device = std::make_unique<Device>(tool.emulator.as ? &tool.emulator : nullptr);
    tool.target.capability = driver::capability(0);
    char name[256] = "";
    driver::get().cuDeviceGetName(name, sizeof name, 0);
    std::printf("%s, NVRTC %s\n", name, tool.target.nvrtc->version().c_str());
  }
  if (tool.emulator.as && mode == "run") make_ready(tool, files);
  for (const std::string& file : files) {
    if (mode == "compile") compile_file(tool, file);
    if (mode == "run") run_file(tool, file);
    if (mode == "time") time_file(tool, file);
  }
  if (!seeds.empty()) fuzz_seeds(tool, seeds);
  return tool.ok ? 0 : 1;
}

}  // namespace
}  // namespace bolt::gpu

int main(int argc, char** argv) {
  try {
    return bolt::gpu::main_of(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "run_on_gpu: %s\n", e.what());
    return 2;
  }
}
