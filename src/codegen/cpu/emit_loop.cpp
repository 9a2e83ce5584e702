// codegen/cpu/emit_loop.cpp
// Scopes and loops of the emitter. A loop's blocks are built whole and with terminators; the enclosing
// scope's insertion point is the branch in front of the loop while it is open, and the old terminator behind
// it afterwards.

#include <algorithm>
#include <utility>

#include "codegen/cpu/emitter.h"

namespace bolt::codegen::cpu {

std::optional<Emitter::Placed> Emitter::find(const Key& key) const {
  for (size_t d = scopes_.size(); d-- > 0;) {
    auto it = scopes_[d].values.find(key);
    if (it != scopes_[d].values.end()) return Placed{it->second, static_cast<int>(d)};
  }
  return std::nullopt;
}

Emitter::Placed Emitter::remember(const Key& key, Value value, int depth) {
  scopes_[depth].values[key] = value;
  return {value, depth};
}

void Emitter::with_open(int dim, Open open, const Body& body) {
  Open& slot = open_[dim];
  Open saved = std::exchange(slot, std::move(open));
  body();
  open_[dim] = std::move(saved);
}

namespace {

/// Rounds of a loop with known bounds, or -1.
int64_t rounds(llvm::Value* begin, llvm::Value* end, int64_t step) {
  auto* b = llvm::dyn_cast<llvm::ConstantInt>(begin);
  auto* e = llvm::dyn_cast<llvm::ConstantInt>(end);
  if (!b || !e) return -1;
  return std::max<int64_t>(0, (e->getSExtValue() - b->getSExtValue() + step - 1) / step);
}

}  // namespace

void Emitter::loop(Value begin, Value end, int64_t step, const std::function<void(Value)>& body) {
  const int64_t known = rounds(begin, end, step);
  if (known == 0) return;
  if (known == 1) {  // a scope without a loop
    scopes_.push_back({scopes_.back().at, {}});
    body(begin);
    scopes_.pop_back();
    return;
  }
  llvm::Instruction* after = scopes_.back().at;
  llvm::BasicBlock* before = after->getParent();
  llvm::BasicBlock* exit = before->splitBasicBlock(after, "exit");
  auto* header = llvm::BasicBlock::Create(context_, "loop", fn_, exit);
  before->getTerminator()->eraseFromParent();
  b_.SetInsertPoint(before);
  llvm::Instruction* guard =
      known > 0 ? b_.CreateBr(header) : b_.CreateCondBr(b_.CreateICmpSLT(begin, end), header, exit);
  b_.SetInsertPoint(header);
  llvm::PHINode* index = b_.CreatePHI(b_.getInt64Ty(), 2, "i");
  llvm::Instruction* latch = b_.CreateUnreachable();  // replaced when the body is done

  // A scope without a loop shares its insertion point with the one around it.
  auto move = [&](llvm::Instruction* from, llvm::Instruction* to) {
    for (Scope& s : scopes_)
      if (s.at == from) s.at = to;
  };
  move(after, guard);
  scopes_.push_back({latch, {}});
  body(index);
  scopes_.pop_back();
  move(guard, after);

  llvm::BasicBlock* last = latch->getParent();
  latch->eraseFromParent();
  b_.SetInsertPoint(last);
  Value next = b_.CreateAdd(index, constant(step), "next", /*HasNUW=*/true, /*HasNSW=*/true);
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), header, exit);
  index->addIncoming(begin, guard->getParent());  // what was hoisted may have split the block in front
  index->addIncoming(next, last);
  at_current();
}

int Emitter::lanes_now() const { return s_.vec_dim >= 0 && open_[s_.vec_dim].lanes ? s_.lanes : 1; }

bool Emitter::is_vector(uint32_t dims) const { return varies(dims, s_.vec_dim) && lanes_now() > 1; }

Emitter::Sub Emitter::normal(uint32_t dims, Sub s) const {
  if (!varies(dims, s_.vec_dim)) s.v = 0;
  if (!varies(dims, tile_dim_)) s.t = 0;
  return s;
}

std::vector<Emitter::Sub> Emitter::subs(uint32_t dims) const {
  const int vectors = varies(dims, s_.vec_dim) ? open_[s_.vec_dim].count : 1;
  const int tiles = varies(dims, tile_dim_) ? open_[tile_dim_].count : 1;
  std::vector<Sub> result;
  for (int t = 0; t < tiles; ++t)
    for (int v = 0; v < vectors; ++v) result.push_back({v, t});
  return result;
}

Emitter::Value Emitter::mask_of(Sub s) const {
  if (s_.vec_dim < 0) return nullptr;
  const Open& open = open_[s_.vec_dim];
  return open.masks.empty() ? nullptr : open.masks[s.v];
}

Emitter::Value Emitter::lane_mask(Value remaining) {
  Value limit = b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, remaining, constant(s_.lanes)),
                               b_.getInt32Ty());
  std::vector<llvm::Constant*> numbers;
  for (int i = 0; i < s_.lanes; ++i) numbers.push_back(b_.getInt32(static_cast<uint32_t>(i)));
  return b_.CreateICmpULT(llvm::ConstantVector::get(numbers),
                          b_.CreateVectorSplat(static_cast<unsigned>(s_.lanes), limit));
}

void Emitter::split_loop(Value begin, Value count, int64_t step, int64_t rest_step,
                         const std::function<void(Value)>& main,
                         const std::function<void(Value, Value)>& rest) {
  at_current();
  auto* known = llvm::dyn_cast<llvm::ConstantInt>(count);
  Value whole = b_.CreateMul(b_.CreateUDiv(count, constant(step)), constant(step));
  Value middle = b_.CreateAdd(begin, whole), end = b_.CreateAdd(begin, count);
  if (!known || known->getSExtValue() >= step) loop(begin, middle, step, main);
  if (step == rest_step && rest_step == 1) return;
  if (known && known->getSExtValue() % step == 0) return;
  loop(middle, end, rest_step, [&](Value i) { rest(i, end); });
}

void Emitter::vector_loop(Value begin, Value count, const Body& body) {
  const int64_t step = static_cast<int64_t>(s_.lanes) * vectors_;
  auto main = [&](Value i) {
    with_open(s_.vec_dim, {.index = i, .depth = depth(), .count = vectors_, .lanes = true}, body);
  };
  auto rest = [&](Value i, Value end) {
    Open open{.index = i, .depth = depth(), .count = 1, .lanes = true};
    at_current();
    if (s_.lanes > 1) {
      Value remaining = b_.CreateSub(end, i);
      open.masks = {lane_mask(remaining)};
      Value inside = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, remaining, constant(s_.lanes));
      open.last_lane = b_.CreateSub(inside, constant(1));
    }
    with_open(s_.vec_dim, std::move(open), body);
  };
  split_loop(begin, count, step, s_.lanes, main, rest);
}

void Emitter::scalar_loop(int dim, Value begin, Value count, int step, const Body& body) {
  auto main = [&](Value i) { with_open(dim, {.index = i, .depth = depth(), .count = step}, body); };
  auto rest = [&](Value i, Value) { with_open(dim, {.index = i, .depth = depth(), .count = 1}, body); };
  split_loop(begin, count, step, 1, main, rest);
}

// The row's vectors are all in registers: no loop, and a constant mask on the last one.
void Emitter::open_whole_row() {
  const int64_t n = k_.dims[s_.vec_dim].size.value();
  Open open{.index = constant(0), .depth = depth(), .count = 0, .lanes = true};
  for (int64_t i = 0; i < n; i += s_.lanes) {
    at_current();
    open.masks.push_back(i + s_.lanes <= n ? nullptr : lane_mask(constant(n - i)));
    ++open.count;
  }
  open_[s_.vec_dim] = std::move(open);
}

}  // namespace bolt::codegen::cpu
