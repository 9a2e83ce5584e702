// tests/graph/text_test.cpp
// Printer, parser and verifier: what is printed is read back, faults name their
// line.
#include <gtest/gtest.h>

#include "graph/ir.h"
#include "graph/verify.h"
#include "support/error.h"

namespace bolt::graph {
namespace {

constexpr const char* kBlock =
    R"(graph @forward(%x: f32[2, 128, 256], %w: f32[256, 256] param, %m: b8[s0, 1] cuda:1) {
  %0: f32[2, 128, 256] = linear(%x, %w)                         # model.py:12 in forward
  %1: f32[2, 128, 256] = gelu(%0) {approximate="tanh"}
  %2: f32[2, 256, 128]{32768, 1, 256} = permute(%1) {dims=[0, 2, 1]}
  %3: f32[2, 10, 128]{32768, 1, 256} = slice(%2) {dim=1, length=10, start=4, step=1}
  %4: f32[] = scalar() {dtype=f32, value=0.5}
  %5: f32[2, 10, 128]{1280, 1, 10} = mul(%3, %4)
  %6: b8[s0, 1] cuda:1 = logical_not(%m)
  %7: f32[2, 4], %8: i64[2] = extern_call(%x, %w) {call=3, name="aten::topk"}
  return %1, %5
  write %x <- %1
  return %6, part %7, %8
}
)";

TEST(GraphText, RoundTrip) {
  auto g = parse(kBlock);
  EXPECT_EQ(print(*g), kBlock);
  EXPECT_EQ(print(*clone(*g)), kBlock);
  EXPECT_EQ(g->inputs[1].kind, InputKind::Param);
  EXPECT_EQ(g->nodes.front()->loc.line, 12);
  EXPECT_EQ(std::string_view(g->nodes.front()->loc.function), "forward");
  EXPECT_EQ(g->outputs[2].write_to, 0);
}

TEST(GraphText, TypesMayBeLeftOut) {
  auto g = parse(
      "graph @g(%x: f32[2, 3], %y: f32[3]) {\n  %a = add(%x, %y)  ; a comment\n  %b = sum(%a) {dims=[1]}\n  "
      "return %b\n}");
  EXPECT_EQ(g->outputs[0].value->type.str(), "f32[2]");
  EXPECT_FALSE(g->outputs[0].value->def->attr<bool>("keepdim"));
}

std::string fault(const std::string& body) {
  try {
    parse("graph @g(%x: f32[2, 3], %i: i64[4]) {\n" + body + "\n  return %x\n}");
  } catch (const Error& e) {
    return e.kind() == ErrorKind::User ? e.what() : std::string("another kind of error: ") + e.what();
  }
  return "no fault";
}

TEST(GraphText, Faults) {
  struct {
    const char *body, *message;
  } const cases[] = {
      {"  %a = ad(%x, %x)", "line 2: no operation 'ad'; did you mean 'add'?"},
      {"  %a = add(%x, %y)", "line 2: %y is not defined here"},
      {"  %a: f32[2, 4] = neg(%x)", "line 2: the result is f32[2, 3], not f32[2, 4]"},
      {"\n  %a = add(%x)", "line 3: add with 1 operands"},
      {"  %a = add(%x, %i)", "line 2: add of f32 and i64"},
      {"  %a = sqrt(%i)", "line 2: sqrt of i64"},
      {"  %a = sum(%x)", "line 2: sum needs the attribute dims"},
      {"  %a = sum(%x) {dims=[2]}", "line 2: sum: dims [2] of [2, 3]"},
      {"  %a = neg(%x) {dim=1}", "line 2: neg has no attribute 'dim'"},
      {"  %a = reshape(%x) {sizes=[7]}", "line 2: reshape of [2, 3] to [7]"},
      {"  %a = slice(%x) {dim=1, start=2, length=2}", "line 2: slice of [2, 3] at 2, 2 long"},
      {"  %a = permute(%x) {dims=[0, 0]}", "line 2: permute by [0, 0]"},
      {"  %x = neg(%x)", "line 2: %x is defined twice"},
      {"  write %i <- %x", "a write of f32[2, 3] into i64[4]"},
      {"  %a = matmul(%x, %x)", "line 2: matmul of [2, 3] and [2, 3]"},
  };
  for (const auto& c : cases)
    EXPECT_NE(fault(c.body).find(c.message), std::string::npos) << c.body << "\n" << fault(c.body);
  EXPECT_THROW(parse("graph @g() {"), Error);
  EXPECT_THROW(parse(""), Error);
}

TEST(GraphOps, WhoseMemoryAResultIsStandsInItsRow) {
  for (Op op : {Op::matmul, Op::linear, Op::linears, Op::conv, Op::sdpa})
    EXPECT_TRUE(op_info(op).gives_fresh_memory) << op_info(op).name;
  for (Op op : {Op::transfer, Op::joined, Op::keep, Op::add, Op::extern_call})
    EXPECT_FALSE(op_info(op).gives_fresh_memory) << op_info(op).name;
  EXPECT_EQ(op_info(Op::sdpa).kind, OpKind::Library);
}

TEST(GraphVerify, NoticesBrokenGraphs) {
  auto broken = [](auto&& damage) {
    auto g = parse("graph @g(%x: f32[2, 3]) {\n  %a = neg(%x)\n  %b = abs(%a)\n  return %b\n}");
    damage(*g);
    try {
      verify(*g);
    } catch (const Error& e) {
      return e.kind() == ErrorKind::Internal;
    }
    return false;
  };
  EXPECT_FALSE(broken([](Graph&) {}));
  EXPECT_TRUE(broken([](Graph& g) { std::swap(g.nodes.front(), g.nodes.back()); }));
  EXPECT_TRUE(broken([](Graph& g) { g.nodes.front()->out()->type.sizes[0] = 5; }));
  EXPECT_TRUE(broken([](Graph& g) { g.nodes.front()->operands.clear(); }));
  EXPECT_TRUE(broken([](Graph& g) { g.nodes.front()->attrs["dim"] = int64_t{1}; }));
  EXPECT_TRUE(broken([](Graph& g) { g.outputs[0].value = nullptr; }));
  EXPECT_TRUE(broken([](Graph& g) { g.outputs.push_back({g.outputs[0].value, 4}); }));
}

std::string result_type(const std::string& header, const std::string& op) {
  return parse("graph @g(" + header + ") {\n  %r = " + op + "\n  return %r\n}")->outputs[0].value->type.str();
}

TEST(GraphShapes, Rules) {
  struct {
    const char *header, *op, *type;
  } const cases[] = {
      {"%a: f32[2, 1, 4], %b: f32[3, 1]", "add(%a, %b)", "f32[2, 3, 4]"},
      {"%a: f32[s0, 1], %b: f32[s1]", "mul(%a, %b)", "f32[s0, s1]"},
      {"%a: f32[s0, 8]", "sum(%a) {dims=[1], keepdim=true}", "f32[s0, 1]"},
      {"%a: f32[s0, 8]", "reshape(%a) {sizes=[8*s0]}", "f32[8*s0]"},
      {"%a: f32[2, 3]", "argmax(%a) {dims=[0]}", "i64[3]"},
      {"%a: f32[2, 3], %b: f32[2, 5]", "cat(%a, %b) {dim=1}", "f32[2, 8]"},
      {"%a: f32[2, 3]", "pad(%a) {low=[0, 1], high=[-1, 2]}", "f32[1, 6]"},
      {"%w: f32[10, 4], %i: i64[2, s0]", "embedding(%w, %i)", "f32[2, s0, 4]"},
      {"%a: f32[2, 3, 4], %b: f32[4, 5]", "matmul(%a, %b)", "f32[2, 3, 5]"},
      {"%a: f32[4, s0, 8], %w: f32[16, 8], %b: f32[16]", "linear(%a, %w, %b)", "f32[4, s0, 16]"},
      {"%x: f32[1, 3, 224, 224], %w: f32[64, 3, 7, 7]",
       "conv(%x, %w) {stride=[2, 2], padding=[3, 3], dilation=[1, 1], output_padding=[0, 0]}",
       "f32[1, 64, 112, 112]"},
      {"%x: f32[1, 8, 5, 5], %w: f32[8, 4, 3, 3]",
       "conv(%x, %w) {stride=[2, 2], padding=[1, 1], dilation=[1, 1], output_padding=[1, 1], "
       "transposed=true}",
       "f32[1, 4, 10, 10]"},
      {"%x: f32[1, 8, 112, 112]{100352, 1, 896, 8}",
       "max_pool(%x) {kernel=[3, 3], stride=[2, 2], padding=[1, 1], dilation=[1, 1]}",
       "f32[1, 8, 56, 56]{25088, 1, 448, 8}"},
      {"%x: f32[1, 8, 6]", "avg_pool(%x) {kernel=[3], stride=[2], padding=[0], ceil=true}", "f32[1, 8, 3]"},
      {"%q: f32[2, 8, 5, 16], %k: f32[2, 2, 7, 16], %v: f32[2, 2, 7, 12]",
       "sdpa(%q, %k, %v) {enable_gqa=true}", "f32[2, 8, 5, 12]"},
      {"%c: b8[2], %a: i64[2], %b: i64[]", "where(%c, %a, %b)", "i64[2]"},
      {"%a: f32[6]", "as_strided(%a) {sizes=[2, 2], strides=[1, 3], offset=1}", "f32[2, 2]{1, 3}"},
      {"%a: f32[1, 3]", "expand(%a) {sizes=[4, 2, 3]}", "f32[4, 2, 3]{0, 0, 1}"},
  };
  for (const auto& c : cases) EXPECT_EQ(result_type(c.header, c.op), c.type) << c.op;
}

}  // namespace
}  // namespace bolt::graph
