// codegen/cpu/emit_memory.cpp
// Loads and stores of the emitter: contiguous vectors, broadcast scalars, gathers, squares turned in
// registers; under the tail's lane mask and the kernel's own masks. An address under a false mask is never
// touched.

#include <algorithm>

#include "codegen/cpu/emitter.h"

namespace bolt::codegen::cpu {

// The pointer for sub-vector (0, 0), shared by all; the others are at constant distances where the index is
// linear.
Emitter::Placed Emitter::base_pointer(int buffer, Sym position, Sub s) {
  const Key key{KeyKind::Pointer, position.node(), position.is_const() ? position.value() : 0, s.v,
                s.t | buffer << 16};
  if (auto known = find(key)) return *known;
  Placed i = index(position, s, false);
  at(i.depth);
  const DType t = k_.buffers[buffer].dtype;
  Value p = b_.CreateInBoundsGEP(ops_.memory_type(t, 1), buffers_[buffer], i.value);
  return remember(key, p, i.depth);
}

Emitter::Placed Emitter::gather_sum(const std::vector<loops::GatherTerm>& gather, Sub s, bool want_wide) {
  Placed sum{want_wide ? ops_.splat(constant(0), static_cast<unsigned>(s_.lanes)) : constant(0), 0};
  for (const loops::GatherTerm& g : gather) {
    Placed v = eval(g.value, s), c = index(g.coef, s, false);
    if (want_wide) v = wide(v, s_.lanes), c = wide(c, s_.lanes);
    const int d = std::max({sum.depth, v.depth, c.depth});
    at(d);
    sum = {b_.CreateAdd(sum.value, b_.CreateMul(v.value, c.value)), d};
  }
  return sum;
}

Emitter::Address Emitter::address(int buffer, Sym position, const std::vector<loops::GatherTerm>& gather,
                                  Sub s, bool vector) {
  llvm::Type* element = ops_.memory_type(k_.buffers[buffer].dtype, 1);
  const LinearIn along = s_.vec_dim >= 0 ? linear_in(position, loops::Kernel::dim(s_.vec_dim)) : LinearIn{};
  const bool gathered_lanes = std::any_of(gather.begin(), gather.end(), [&](const loops::GatherTerm& g) {
    return is_vector(expr(g.value).dims);
  });
  if (vector && (gathered_lanes || !along.linear)) {
    Placed i = wide(index(position, s, true), s_.lanes), g = gather_sum(gather, s, true);
    const int d = std::max(i.depth, g.depth);
    at(d);
    return {buffers_[buffer], d, b_.CreateAdd(i.value, g.value)};
  }
  int64_t offset = 0;
  Sub base = s;
  if (s.v && along.linear && along.coef.is_const()) {
    offset += along.coef.value() * s.v * s_.lanes;
    base.v = 0;
  }
  if (s.t) {
    const LinearIn across = linear_in(position, loops::Kernel::dim(tile_dim_));
    if (across.linear && across.coef.is_const()) offset += across.coef.value() * s.t, base.t = 0;
  }
  Placed p = base_pointer(buffer, position, normal(dims_of(position), base));
  if (!gather.empty()) {
    Placed g = gather_sum(gather, s, false);
    p.depth = std::max(p.depth, g.depth);
    at(p.depth);
    p.value = b_.CreateInBoundsGEP(element, p.value, g.value);
  }
  at(p.depth);
  if (offset) p.value = b_.CreateInBoundsGEP(element, p.value, constant(offset));
  if (!vector || along.coef.is_const(1)) return {p.value, p.depth};
  const Placed apart = lanes_apart(along.coef);
  return {p.value, std::max(p.depth, apart.depth), apart.value, along.coef.value_or(0)};
}

// How far each lane is from lane 0, in elements: a constant as a rule, so that a gather is one pointer and a
// vector of 32-bit constants.
Emitter::Placed Emitter::lanes_apart(Sym stride) {
  std::vector<llvm::Constant*> numbers;
  const int64_t factor = stride.is_const() ? stride.value() : 1;
  for (int i = 0; i < s_.lanes; ++i) numbers.push_back(b_.getInt64(static_cast<uint64_t>(i * factor)));
  Value apart = llvm::ConstantVector::get(numbers);
  if (stride.is_const()) return {apart, 0};
  Placed by = wide(index(stride, {}, false), s_.lanes);
  at(by.depth);
  return {b_.CreateMul(apart, by.value), by.depth};
}

// LLVM sees what the pointers have in common where they are made beside their only user.
Emitter::Value Emitter::pointers(const Address& a, DType t) {
  return b_.CreateGEP(ops_.memory_type(t, 1), a.pointer, a.apart);
}

// The smaller of the index and the last one, unsigned, is always inside and differs from the index just when
// that is not: one operation to be safe, two to note it, no branch. What is noted is reported once at the
// end.
Emitter::Placed Emitter::check(const loops::Expr& e, Sub s) {
  const bool vector = is_vector(e.dims);
  const int lanes = vector ? s_.lanes : 1;
  Placed value = eval(e.args[0], s), size = eval(e.args[1], s), mask;
  if (e.mask != loops::kNone) mask = eval(e.mask, s);
  const int deepest = vector ? open_[s_.vec_dim].depth : 0;
  const int d = std::max({value.depth, size.depth, mask.depth, deepest});
  value = wide(value, lanes), size = wide(size, lanes);
  if (mask.value) mask = wide(mask, lanes);
  auto it = misses_.find(lanes);
  llvm::Type* type = ops_.type(DType::I64, static_cast<unsigned>(lanes));
  if (it == misses_.end()) {
    it = misses_.emplace(lanes, slot(type)).first;
    at(0);
    b_.CreateStore(llvm::Constant::getNullValue(type), it->second);
  }
  at(d);
  Value last = b_.CreateAdd(size.value, llvm::Constant::getAllOnesValue(type));
  Value inside = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, value.value, last);
  Value miss = b_.CreateXor(value.value, inside);
  Value counted = vector ? mask_of(s) : nullptr;
  if (mask.value) counted = counted ? b_.CreateAnd(counted, mask.value) : mask.value;
  if (counted) miss = b_.CreateSelect(counted, miss, llvm::Constant::getNullValue(type));
  b_.CreateStore(b_.CreateOr(b_.CreateLoad(type, it->second), miss), it->second);
  return {inside, d};
}

// Several threads may set the report at once, all to the same value.
void Emitter::report_misses() {
  if (misses_.empty()) return;
  at_current();
  Value any = constant(0);
  for (auto [lanes, cell] : misses_) {
    Value noted = b_.CreateLoad(cell->getAllocatedType(), cell);
    any = b_.CreateOr(any, lanes > 1 ? b_.CreateOrReduce(noted) : noted);
  }
  Value report = b_.CreateLoad(
      b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), fn_->getArg(0), k_.buffers.size()));
  Value place = b_.CreateSelect(b_.CreateICmpNE(any, constant(0)), report, slot(b_.getInt64Ty()));
  b_.CreateAlignedStore(constant(1), place, llvm::Align(8))->setAtomic(llvm::AtomicOrdering::Monotonic);
}

Emitter::Placed Emitter::load(const loops::Expr& e, Sub s) {
  const bool vector = is_vector(e.dims);
  Placed mask;
  if (e.mask != loops::kNone) mask = eval(e.mask, s);
  Address a = address(e.buffer, e.index, e.gather, s, vector);
  a.depth = std::max(a.depth, mask.depth);
  Placed p = vector ? load_vector(e, a, mask, s) : load_scalar(e, a, mask);
  at(p.depth);
  p.value = ops_.from_memory(p.value, e.dtype);
  return p;
}

// What a load gives where its mask says no.
Emitter::Value Emitter::fill_of(const loops::Expr& load, int lanes) {
  const Value one = ops_.constant(load.dtype, load.fill, static_cast<int64_t>(load.fill));
  const Value stored = ops_.to_memory(one, load.dtype);
  return lanes > 1 ? ops_.splat(stored, static_cast<unsigned>(lanes)) : stored;
}

// The constant in memory on the stack, once for each.
llvm::AllocaInst* Emitter::fill_slot(Value constant) {
  llvm::AllocaInst*& known = fills_[constant];
  if (known) return known;
  known = slot(constant->getType());
  at(0);
  b_.CreateStore(constant, known);
  return known;
}

// Under a mask the address is replaced by that of a constant on the stack: no branch, and nothing foreign is
// read.
Emitter::Placed Emitter::load_scalar(const loops::Expr& e, const Address& a, Placed mask) {
  llvm::Type* type = ops_.memory_type(e.dtype, 1);
  Value pointer = a.pointer;
  if (mask.value) {
    llvm::AllocaInst* fill = fill_slot(fill_of(e, 1));
    at(a.depth);
    pointer = b_.CreateSelect(mask.value, pointer, fill);
  }
  at(a.depth);
  return {b_.CreateAlignedLoad(type, pointer, alignment(e.dtype)), a.depth};
}

// Lanes a few elements apart, from whole vectors that follow each other. The last of them ends with the last
// lane's element: no byte is read that does not lie between two lanes.
Emitter::Value Emitter::near_lanes(llvm::Type* type, DType t, const Address& a) {
  const int lanes = s_.lanes, step = static_cast<int>(std::abs(a.step)), span = (lanes - 1) * step + 1;
  Value pointer = a.pointer, all = nullptr;
  llvm::Type* element = ops_.memory_type(t, 1);
  if (a.step < 0) pointer = b_.CreateInBoundsGEP(element, pointer, constant(1 - span));
  llvm::SmallVector<int, 64> order(static_cast<size_t>(lanes));
  for (int begin = 0; begin < span; begin += lanes) {
    const int from = std::min(begin, span - lanes);
    Value part =
        b_.CreateAlignedLoad(type, b_.CreateInBoundsGEP(element, pointer, constant(from)), alignment(t));
    for (int lane = 0; lane < lanes; ++lane) {
      const int at = (a.step < 0 ? lanes - 1 - lane : lane) * step;
      order[lane] = at < begin || at >= begin + lanes ? lane : (all ? lanes : 0) + at - from;
    }
    all = b_.CreateShuffleVector(all ? all : part, part, order);
  }
  return all;
}

// A mask that is one for all lanes chooses the address, as for scalars: machines take hundreds of cycles over
// a masked load whose masked-off page is not there.
Emitter::Placed Emitter::load_vector(const loops::Expr& e, const Address& a, Placed mask, Sub s) {
  const unsigned lanes = static_cast<unsigned>(s_.lanes);
  llvm::Type* type = ops_.memory_type(e.dtype, lanes);
  const int d = std::max(a.depth, open_[s_.vec_dim].depth);
  const bool one_for_all = mask.value && !a.apart && !mask.value->getType()->isVectorTy();
  Value wanted = mask_of(s), pointer = a.pointer, fill = llvm::Constant::getNullValue(type);
  if (mask.value) fill = fill_of(e, s_.lanes);
  if (one_for_all) {
    llvm::AllocaInst* nothing = fill_slot(fill);
    at(d);
    pointer = b_.CreateSelect(mask.value, pointer, nothing);
  } else if (mask.value) {
    Value m = wide(mask, s_.lanes).value;
    at(d);
    wanted = wanted ? b_.CreateAnd(wanted, m) : m;
  }
  at(d);
  if (a.apart && !wanted && is_near(a.step)) return {near_lanes(type, e.dtype, a), d};
  if (a.apart) {
    if (!wanted) wanted = llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), lanes));
    return {b_.CreateMaskedGather(type, pointers(a, e.dtype), alignment(e.dtype), wanted, fill), d};
  }
  if (wanted) return {b_.CreateMaskedLoad(type, pointer, alignment(e.dtype), wanted, fill), d};
  return {b_.CreateAlignedLoad(type, pointer, alignment(e.dtype)), d};
}

namespace {

/// Rows of a square -> its columns, with shuffles that have their order in the instruction: within lanes of
/// 128 bits by interleaving ever larger granules, then whole lanes by taking even and odd ones apart.
/// (Shuffles across lanes by a register of indices take twice as long or more.)
class SquareTurn {
 public:
  SquareTurn(Builder& b, std::vector<llvm::Value*>& rows)
      : b_(b), rows_(rows), n_(static_cast<int>(rows.size())) {
    const int bits = static_cast<int>(rows[0]->getType()->getScalarSizeInBits());
    lane_ = std::min(n_, std::max(1, 128 / bits));
  }
  void run() {
    std::vector<Values> by_column(
        static_cast<size_t>(lane_));  // of its lane; one value for each group of rows
    for (int g = 0; g < n_; g += lane_)
      within(Values(rows_.begin() + g, rows_.begin() + g + lane_), 0, lane_, by_column);
    for (int e = 0; e < lane_; ++e) across(by_column[e], e, lane_);
  }

 private:
  using Values = std::vector<llvm::Value*>;
  using Order = llvm::SmallVector<int, 64>;

  /// `values`: rows in groups, each with columns [column, column + width) of its rows, a granule for each
  /// column.
  void within(const Values& values, int column, int width, std::vector<Values>& out) {
    if (width == 1) return out[column].push_back(values[0]);
    const int granule = lane_ / width;
    Order low, high;
    for (int at = 0; at < n_; at += lane_)
      for (int k = 0; k < lane_ / 2; k += granule)
        for (int source : {0, n_})
          for (int i = 0; i < granule; ++i) {
            low.push_back(source + at + k + i);
            high.push_back(source + at + lane_ / 2 + k + i);
          }
    within(pairwise(values, low), column, width / 2, out);
    within(pairwise(values, high), column + width / 2, width / 2, out);
  }

  /// Lane l of `values`, all of them, is column `column` + l * `stride`.
  void across(const Values& values, int column, int stride) {
    if (values.size() == 1) return void(rows_[column] = values[0]);
    Order even, odd;
    for (int source : {0, n_})
      for (int at = 0; at < n_; at += 2 * lane_)
        for (int i = 0; i < lane_; ++i)
          even.push_back(source + at + i), odd.push_back(source + at + lane_ + i);
    across(pairwise(values, even), column, 2 * stride);
    across(pairwise(values, odd), column + stride, 2 * stride);
  }

  Values pairwise(const Values& values, const Order& order) {
    Values out;
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      out.push_back(b_.CreateShuffleVector(values[i], values[i + 1], order));
    return out;
  }

  Builder& b_;
  Values& rows_;
  int n_, lane_;
};

}  // namespace

// Contiguous along the tile, strided along the lanes: one vector per lane, then turned. Rows beyond the tail
// repeat the last one inside. Under a mask that is one for the square, all rows are a constant's.
bool Emitter::load_square(ExprId id) {
  const loops::Expr& e = expr(id);
  if (tile_dim_ < 0 || !is_vector(e.dims) || !e.gather.empty()) return false;
  if (!is_one_mask(k_, e, s_.vec_dim, tile_dim_)) return false;
  const Open& vec = open_[s_.vec_dim];
  if (open_[tile_dim_].count != s_.lanes || vec.count != 1) return false;
  const LinearIn along = linear_in(e.index, loops::Kernel::dim(s_.vec_dim));
  const LinearIn across = linear_in(e.index, loops::Kernel::dim(tile_dim_));
  if (!along.linear || along.coef.is_const(1) || !across.linear || !across.coef.is_const(1)) return false;
  Placed base = base_pointer(e.buffer, e.index, {}), stride = index(along.coef, {}, false), mask;
  if (e.mask != loops::kNone) mask = eval(e.mask, {});
  const int d = std::max({base.depth, stride.depth, mask.depth, vec.depth, open_[tile_dim_].depth});
  at(d);
  llvm::Type* element = ops_.memory_type(e.dtype, 1);
  llvm::Type* row_type = ops_.memory_type(e.dtype, static_cast<unsigned>(s_.lanes));
  if (mask.value) {
    llvm::AllocaInst* nothing = fill_slot(fill_of(e, s_.lanes));
    at(d);
    base.value = b_.CreateSelect(mask.value, base.value, nothing);
    stride.value = b_.CreateSelect(mask.value, stride.value, constant(0));
  }
  std::vector<Value> rows;
  for (int i = 0; i < s_.lanes; ++i) {
    Value lane = constant(i);
    if (vec.last_lane) lane = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, lane, vec.last_lane);
    Value row = b_.CreateInBoundsGEP(element, base.value, b_.CreateMul(lane, stride.value));
    rows.push_back(b_.CreateAlignedLoad(row_type, row, alignment(e.dtype)));
  }
  SquareTurn(b_, rows).run();
  for (int t = 0; t < s_.lanes; ++t)
    remember({KeyKind::Expr, nullptr, id, 0, t}, ops_.from_memory(rows[t], e.dtype), d);
  return true;
}

void Emitter::prefetch(Value pointer) {
  b_.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {b_.getPtrTy()},
      {pointer, b_.getInt32(0), b_.getInt32(static_cast<uint32_t>(s_.ahead_locality)), b_.getInt32(1)});
}

// One line for each lane where the tile runs along memory, one for each of the tile's indices where the lanes
// do.
void Emitter::fetch_squares_ahead() {
  const Open &vec = open_[s_.vec_dim], &tile = open_[tile_dim_];
  if (tile.count != s_.tile || !vec.masks.empty()) return;
  for (ExprId id : s_.ahead) {
    const loops::Expr& e = expr(id);
    const int64_t along = linear_in(e.index, loops::Kernel::dim(s_.vec_dim)).coef.value();
    const int64_t across = linear_in(e.index, loops::Kernel::dim(tile_dim_)).coef.value();
    const int64_t step = along == 1 ? across : along;
    Value base = base_pointer(e.buffer, e.index, {}).value;
    at_current();
    for (int64_t i = 0; i < (along == 1 ? s_.tile : s_.lanes); ++i)
      prefetch(b_.CreateConstInBoundsGEP1_64(ops_.memory_type(e.dtype, 1), base,
                                             static_cast<uint64_t>(along * s_.ahead_distance + i * step)));
  }
}

uint32_t Emitter::address_dims(const loops::Store& st) const {
  if (st.scatters()) return k_.dims_of(st);
  uint32_t dims = dims_of(st.index);
  for (const loops::GatherTerm& g : st.gather) dims |= expr(g.value).dims;
  if (st.mask != loops::kNone) dims |= expr(st.mask).dims;
  return dims;
}

// `old` as it lies in memory, `value` as it is held.
Emitter::Value Emitter::combined(const loops::Store& st, Value old, Value value) const {
  const DType t = k_.buffers[st.buffer].dtype, c = compute_type(t);
  Value x = ops_.cast(ops_.from_memory(old, t), t, c);
  Value sum = ops_.combine(loops::combiner_of(st.into), c, x, ops_.cast(value, t, c));
  return ops_.to_memory(ops_.cast(sum, c, t), t);
}

void Emitter::combine_one(const loops::Store& st, Value pointer, Value value, Value mask) {
  const DType t = k_.buffers[st.buffer].dtype;
  llvm::Type* type = ops_.memory_type(t, 1);
  if (mask) {                                                             // elsewhere goes to a scratch slot
    llvm::AllocaInst* nowhere = fill_slot(llvm::PoisonValue::get(type));  // of no load
    at_current();
    pointer = b_.CreateSelect(mask, pointer, nowhere);
  }
  Value old = b_.CreateAlignedLoad(type, pointer, alignment(t));
  b_.CreateAlignedStore(combined(st, old, value), pointer, alignment(t));
}

// Lanes that may meet in one place go there one after the other.
void Emitter::combine(const loops::Store& st, const Address& a, Value value, Value mask) {
  auto* lanes = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  if (!lanes) return combine_one(st, a.pointer, value, mask);
  const DType t = k_.buffers[st.buffer].dtype;
  llvm::Type* type = ops_.memory_type(t, lanes->getNumElements());
  if (varies(k_.met_along(), s_.vec_dim)) {
    Value each = a.apart ? pointers(a, t) : nullptr;
    for (uint64_t lane = 0; lane < lanes->getNumElements(); ++lane) {
      Value pointer = each ? b_.CreateExtractElement(each, lane)
                           : b_.CreateConstInBoundsGEP1_64(ops_.memory_type(t, 1), a.pointer, lane);
      combine_one(st, pointer, b_.CreateExtractElement(value, lane),
                  mask ? b_.CreateExtractElement(mask, lane) : nullptr);
    }
    return;
  }
  Value wanted = mask ? mask
                      : llvm::Constant::getAllOnesValue(
                            llvm::FixedVectorType::get(b_.getInt1Ty(), lanes->getNumElements()));
  if (a.apart) {
    Value each = pointers(a, t), old = b_.CreateMaskedGather(type, each, alignment(t), wanted);
    b_.CreateMaskedScatter(combined(st, old, value), each, alignment(t), wanted);
  } else if (mask) {
    Value old = b_.CreateMaskedLoad(type, a.pointer, alignment(t), mask, llvm::Constant::getNullValue(type));
    b_.CreateMaskedStore(combined(st, old, value), a.pointer, alignment(t), mask);
  } else {
    Value old = b_.CreateAlignedLoad(type, a.pointer, alignment(t));
    b_.CreateAlignedStore(combined(st, old, value), a.pointer, alignment(t));
  }
}

bool Emitter::interleaves(const loops::Store& st) const {
  if (tile_dim_ < 0 || tile_dim_ != s_.tile_dim || lanes_now() == 1 || open_[tile_dim_].count != s_.tile)
    return false;
  return k_.dims[tile_dim_].size.is_const(s_.tile) && interleaves_along(k_, st, s_.vec_dim) == tile_dim_;
}

/// a0 a1 .., b0 b1 .. -> a0 b0 a1 b1 ..
static llvm::Value* interleaved(Builder& b, const std::vector<llvm::Value*>& parts) {
  if (parts.size() == 1) return parts[0];
  std::vector<llvm::Value*> even, odd;
  for (size_t i = 0; i < parts.size(); ++i) (i % 2 ? odd : even).push_back(parts[i]);
  llvm::Value *low = interleaved(b, even), *high = interleaved(b, odd);
  const int count = static_cast<int>(llvm::cast<llvm::FixedVectorType>(low->getType())->getNumElements());
  llvm::SmallVector<int, 64> order;
  for (int i = 0; i < count; ++i) order.append({i, count + i});
  return b.CreateShuffleVector(low, high, order);
}

// What the tile's vectors hold is one run of memory.
void Emitter::store_interleaved(const loops::Store& st, Sub s) {
  const DType t = k_.buffers[st.buffer].dtype;
  std::vector<Value> parts, masks(static_cast<size_t>(s_.tile), mask_of(s));
  for (int i = 0; i < s_.tile; ++i)
    parts.push_back(ops_.to_memory(wide(eval(st.value, {s.v, i}), s_.lanes).value, t));
  const Address a = address(st.buffer, st.index, st.gather, s, false);
  at_current();
  Value all = interleaved(b_, parts);
  if (masks[0])
    b_.CreateMaskedStore(all, a.pointer, alignment(t), interleaved(b_, masks));
  else
    b_.CreateAlignedStore(all, a.pointer, alignment(t));
}

void Emitter::store(const loops::Store& st, Sub s) {
  if (interleaves(st)) return s.t == 0 ? store_interleaved(st, s) : void();
  const DType t = k_.buffers[st.buffer].dtype;
  const bool vector = is_vector(address_dims(st));
  const int lanes = vector ? s_.lanes : 1;
  Value value = wide(eval(st.value, s), lanes).value;
  Value mask = vector ? mask_of(s) : nullptr;
  Value own = st.mask == loops::kNone ? nullptr : wide(eval(st.mask, s), lanes).value;
  const Address a = address(st.buffer, st.index, st.gather, s, vector);
  at_current();
  if (own) mask = mask ? b_.CreateAnd(mask, own) : own;
  if (st.combines()) return combine(st, a, value, mask);
  value = ops_.to_memory(value, t);
  if (!vector) {
    if (mask) {  // elsewhere goes to a scratch slot
      llvm::AllocaInst* nowhere = slot(value->getType());
      b_.CreateAlignedStore(value, b_.CreateSelect(mask, a.pointer, nowhere), alignment(t));
      return;
    }
    b_.CreateAlignedStore(value, a.pointer, alignment(t));
  } else if (a.apart) {
    b_.CreateMaskedScatter(value, pointers(a, t), alignment(t), mask);
  } else if (mask) {
    b_.CreateMaskedStore(value, a.pointer, alignment(t), mask);
  } else if (streaming_ && std::count(s_.streamed.begin(), s_.streamed.end(), st.buffer)) {
    const uint64_t bytes = static_cast<uint64_t>(lanes) * static_cast<uint64_t>(dtype_bytes(t));
    llvm::StoreInst* stored = b_.CreateAlignedStore(value, a.pointer, llvm::Align(bytes));
    llvm::Metadata* one = llvm::ConstantAsMetadata::get(b_.getInt32(1));
    stored->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(context_, {one}));
  } else {
    b_.CreateAlignedStore(value, a.pointer, alignment(t));
  }
}

}  // namespace bolt::codegen::cpu
