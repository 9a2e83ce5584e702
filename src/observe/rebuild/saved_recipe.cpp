// observe/rebuild/saved_recipe.cpp
#include "observe/rebuild/saved_recipe.h"

namespace bolt::observe {
namespace {

using Values = std::vector<int>;

/// A step of a recipe, a frame or a generator: the numbers in it, in one order for both ways.
template <class Field>
void fields(FillStep& s, const Field& field) {
  field(s.fill), field(s.container), field(s.key), field(s.value), field(s.number), field(s.after);
}
template <class Field>
void fields(EffectStep& s, const Field& field) {
  field(s.effect), field(s.target), field(s.key), field(s.value), field(s.number), field(s.parts);
}
template <class Field>
void fields(FrameRecipe& f, const Field& field) {
  field(f.function), field(f.generator), field(f.awaitable), field(f.handled), field(f.instance);
  field(f.namespace_dict), field(f.kw_names), field(f.pc), field(f.stays), field(f.return_to);
  field(f.locals), field(f.stack);
}
template <class Field>
void fields(GeneratorRecipe& g, const Field& field) {
  field(g.frame_state), field(g.asked), field(g.closed), field(g.running), field(g.pc), field(g.handled);
  field(g.locals), field(g.stack);
}

struct WriteField {
  ArchiveWriter& out;
  template <class T>
  void operator()(T& value) const {
    out.number(static_cast<int64_t>(value));
  }
  void operator()(Values& values) const { out.integers(values); }
};

struct ReadField {
  ArchiveReader& in;
  template <class T>
  void operator()(T& value) const {
    value = static_cast<T>(in.number());
  }
  void operator()(Values& values) const { values = in.integers<Values>(); }
};

template <class Items>
void write_all(ArchiveWriter& out, const Items& items) {
  out.list(items, [&](auto item) { fields(item, WriteField{out}); });
}
template <class Item>
std::vector<Item> read_all(ArchiveReader& in) {
  std::vector<Item> items;
  in.list([&] { fields(items.emplace_back(), ReadField{in}); });
  return items;
}

}  // namespace

void write_recipe(ArchiveWriter& out, const Recipe& recipe) {
  out.list(recipe.makes, [&](const MakeStep& step) {
    out.number(static_cast<int64_t>(step.make));
    out.object(step.object.get());
    out.number(step.number);
    out.integers(step.parts);
  });
  write_all(out, recipe.fills);
  write_all(out, recipe.effects);
  write_all(out, recipe.positions);
  out.number(recipe.result);
  write_all(out, recipe.frames);
  write_all(out, recipe.generators);
  out.list(recipe.call_sites, [&](const CallSite& site) {
    out.list(site, [&](const auto& call) { out.number(call.first), out.number(call.second); });
  });
}

Recipe read_recipe(ArchiveReader& in) {
  Recipe recipe;
  in.list([&] {
    MakeStep step{};
    step.make = static_cast<Make>(in.below(static_cast<size_t>(Make::iterator) + 1));
    step.object = in.object();
    step.number = static_cast<Py_ssize_t>(in.number());
    step.parts = in.integers<Values>();
    for (int part : step.parts)
      if (part >= static_cast<int>(recipe.makes.size())) ArchiveReader::fail();
    recipe.makes.push_back(std::move(step));
  });
  recipe.fills = read_all<FillStep>(in);
  recipe.effects = read_all<EffectStep>(in);
  recipe.positions = read_all<FillStep>(in);
  recipe.result = in.as<int>();
  recipe.frames = read_all<FrameRecipe>(in);
  recipe.generators = read_all<GeneratorRecipe>(in);
  in.list([&] {
    CallSite& site = recipe.call_sites.emplace_back();
    in.list([&] {
      const auto function = in.as<int>();
      site.emplace_back(function, in.as<int>());
    });
  });
  return recipe;
}

}  // namespace bolt::observe
