// guard/tensor_images.h
// Tensors that matched once, as they lie in memory: comparing a tensor with its image is one pass over a few
// words instead of a dozen questions, some of them calls into libraries. A model has hundreds of weights that
// look like few: they are compared image by image, so that what is expected stays in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "guard/tensors.h"

namespace bolt::guard {

class TensorImages {
 public:
  TensorImages();
  TensorImages(TensorImages&&) noexcept;
  ~TensorImages();

  /// Forgets all. `gradients`: whether it matters who requires them.
  void reset(size_t slots, bool gradients);
  /// The slots whose tensors do not look like their images, or have none. `impls`: their implementations as
  /// they were; those of other slots are as they were still.
  const std::vector<uint32_t>& unlike(PyObject* const* objects, c10::TensorImpl* const* impls);
  /// This tensor matched: what looks like it matches too.
  void remember(uint32_t slot, PyObject* object, const c10::TensorImpl& impl);

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace bolt::guard
