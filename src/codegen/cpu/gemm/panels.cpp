// codegen/cpu/gemm/panels.cpp
#include "codegen/cpu/gemm/panels.h"

#include "codegen/cpu/gemm/emit_util.h"

namespace bolt::codegen::cpu::gemm {

using llvm::Value;

Indices part_of(llvm::IRBuilder<>& b, Value* index, int64_t size, Value* count) {
  Value* first = b.CreateMul(index, i64(b, size));
  return {first, minimum(b, b.CreateAdd(first, i64(b, size)), count)};
}

PackedPanels::PackedPanels(llvm::IRBuilder<>& b, const TileSchedule& schedule, DType weights, int64_t k)
    : b_(b), s_(schedule), weights_(weights), k_(k) {
  if (s_.widened) scratch_ = reserve_floats(b_, s_.widened * k_ * s_.width());
}

void PackedPanels::widen(const Indices& panels) {
  if (!s_.widened) return;
  first_widened_ = panels.first;
  emit_widened_copy(b_, weights_, s_.lanes, scratch_,
                    number_at(b_, weights_, packed_, numbers_of(panels.first)),
                    numbers_of(b_.CreateSub(panels.last, panels.first)));
}

Value* PackedPanels::at(Value* panel) const {
  if (s_.widened) return float_at(b_, scratch_, numbers_of(b_.CreateSub(panel, first_widened_)));
  return number_at(b_, weights_, packed_, numbers_of(panel));
}

Value* PackedPanels::numbers_of(Value* panels) const {
  return b_.CreateMul(panels, i64(b_, k_ * s_.width()));
}

void emit_task_loops(llvm::IRBuilder<>& b, const TileSchedule& schedule, PackedPanels& packed,
                     const Indices& panels, const TaskLoops& task) {
  if (schedule.rows_inside) {
    emit_for(b, panels.first, panels.last, 1, [&](Value* panel) {
      packed.widen({panel, b.CreateAdd(panel, i64(b, 1))});
      Value* numbers = task.panel_at(panel);
      task.tiles([&](const TileAt& tile) { task.one(tile, panel, numbers); });
    });
    return;
  }
  packed.widen(panels);
  task.tiles([&](const TileAt& tile) {
    emit_for(b, panels.first, panels.last, 1,
             [&](Value* panel) { task.one(tile, panel, task.panel_at(panel)); });
  });
}

}  // namespace bolt::codegen::cpu::gemm
