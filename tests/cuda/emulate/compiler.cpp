// tests/cuda/emulate/compiler.cpp
// An NVRTC that has the system's C++ compiler make the text a library of this processor. The text is what it
// is; behind it stands a table of its functions, found by how the emitter begins them.
//
// Its version is a number made of what stands around the text, so nothing that a disk cache holds of other
// versions, or of NVIDIA's, is taken for its work.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace {

namespace fs = std::filesystem;

constexpr int kFailed = 6, kInvalidOption = 5;

// Signed numbers wrap and words are read as other types, as NVRTC lets them. Faults are those of the checks
// in cuda.h.
constexpr const char* kFlags =
    "-std=c++17 -O1 -fPIC -w -fmax-errors=5 -fvisibility=hidden -fno-strict-aliasing -fwrapv -fno-math-errno "
    "-fno-trapping-math -ffp-contract=off -fno-exceptions -fno-rtti -fno-extern-tls-init "
    "-fsanitize=bounds-strict,object-size,alignment,null -fno-sanitize-recover=all";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Program {
  std::string text, log, code;
};

std::string table_of(const std::string& text) {
  constexpr const char* kBegin = "extern \"C\" __global__ void __launch_bounds__(";
  constexpr const char* kCluster = "__cluster_dims__(";
  std::string table = "\nnamespace emulated {\nextern \"C\" {\n";
  for (size_t at = text.find(kBegin); at != std::string::npos; at = text.find(kBegin, at + 1)) {
    const size_t name = text.find('\n', at) + 1, end = text.find('(', name);
    const std::string head = text.substr(at, name - at), function = text.substr(name, end - name);
    const size_t cluster = head.find(kCluster);
    table += "extern const Kernel kernel_" + function +
             " __attribute__((visibility(\"default\"))) = {&Call<" + function + ">::run, Call<" + function +
             ">::count, Call<" + function + ">::bytes, " +
             std::to_string(std::atoi(head.c_str() + std::strlen(kBegin))) + ", " +
             (cluster == std::string::npos
                  ? "1"
                  : std::to_string(std::atoi(head.c_str() + cluster + std::strlen(kCluster)))) +
             "};\n";
  }
  return table + "}\n}\n";
}

/// The command's exit status; what it says goes into `log`.
bool succeeds(const std::string& command, const fs::path& log) {
  const int status = std::system((command + " >>" + log.string() + " 2>&1").c_str());
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool compile(Program& p, const std::string& architecture) {
  std::string folder = (fs::temp_directory_path() / "emulated-XXXXXX").string();
  if (!mkdtemp(folder.data())) return false;
  const fs::path at = folder, text = at / "kernels.cu", object = at / "kernels.o",
                 library = at / "kernels.so";
  std::ofstream(text) << p.text << table_of(p.text);
  std::string options =
      std::string(kFlags) + " -D__CUDA_ARCH__=" + architecture + "0 -include " BOLT_EMULATE_DIR "/cuda.h";
  if (p.text.find("extern __shared__") != std::string::npos) options += " -DBOLT_DYNAMIC_SHARED";
  const std::string compiler = BOLT_EMULATE_COMPILER;
  const bool good =
      succeeds(compiler + " " + options + " -x c++ -c " + text.string() + " -o " + object.string(),
               at / "log") &&
      succeeds(compiler + " -shared -s " + object.string() + " -o " + library.string() + " -lm", at / "log");
  p.log = read(at / "log");
  if (good) p.code = read(library);
  std::error_code ignored;
  fs::remove_all(at, ignored);
  return good;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  const std::string around =
      read(BOLT_EMULATE_DIR "/cuda.h") + read(BOLT_EMULATE_DIR "/interface.h") + kFlags;
  *major = 0;
  *minor = static_cast<int>(std::hash<std::string>()(around) % 1000000);
  return 0;
}
const char* nvrtcGetErrorString(int) { return "the processor's compiler failed"; }
int nvrtcGetNumSupportedArchs(int* count) { return *count = 3, 0; }
int nvrtcGetSupportedArchs(int* all) { return all[0] = 75, all[1] = 80, all[2] = 90, 0; }

int nvrtcCreateProgram(Program** program, const char* text, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{text, "", ""};
  return 0;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}
int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  constexpr const char* kArchitecture = "--gpu-architecture=sm_";
  for (int i = 0; i < count; ++i)
    if (std::strncmp(options[i], kArchitecture, std::strlen(kArchitecture)) == 0)
      return compile(*program, options[i] + std::strlen(kArchitecture)) ? 0 : kFailed;
  return kInvalidOption;
}
int nvrtcGetCUBINSize(Program* program, size_t* size) { return *size = program->code.size(), 0; }
int nvrtcGetCUBIN(Program* program, char* to) { return program->code.copy(to, program->code.size()), 0; }
int nvrtcGetProgramLogSize(Program* program, size_t* size) { return *size = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program* program, char* to) {
  to[program->log.copy(to, program->log.size())] = 0;
  return 0;
}
}
