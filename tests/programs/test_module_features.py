# tests/programs/test_module_features.py
"""torch.nn.Module: hooks of all kinds, containers, parametrizations, buffers and attributes that change, copies."""

import copy
from collections import OrderedDict

import pytest
import torch
from rows import HIT, MISS, Rows, ints, randn
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import torchbolt

ROWS = Rows()


# -- Hooks -------------------------------------------------------------------------------------------------------------
def hooked(register):
    """A row whose module is Linear -> ReLU after register(model)."""

    def make():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        register(model)
        return model

    return make


def row(**facts):
    return lambda register: ROWS.add(register.__name__, hooked(register), (randn(2, 4),), facts)


@row()
def forward_hook_that_only_looks(model):
    seen = []
    model[0].register_forward_hook(lambda m, args, out: seen.append(out.shape) if len(seen) > 99 else None)


@row()
def forward_hook_that_replaces_the_output(model):
    model[0].register_forward_hook(lambda m, args, out: out * 2)


@row()
def forward_hook_with_keywords(model):
    model[0].register_forward_hook(lambda m, args, kwargs, out: out + len(kwargs), with_kwargs=True)


@row()
def forward_pre_hook(model):
    model[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))


@row()
def forward_pre_hook_that_gives_one_tensor(model):
    model[0].register_forward_pre_hook(lambda m, args: args[0] * 3)


@row()
def forward_pre_hook_with_keywords(model):
    model[0].register_forward_pre_hook(lambda m, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True)


@row()
def hooks_in_their_order(model):
    model[0].register_forward_hook(lambda m, args, out: out + 1)
    model[0].register_forward_hook(lambda m, args, out: out * 2)
    model[0].register_forward_hook(lambda m, args, out: out - 3, prepend=True)


@row()
def hook_that_is_always_called(model):
    model[0].register_forward_hook(lambda m, args, out: out * 2, always_call=True)


@row()
def hook_that_was_removed(model):
    model[0].register_forward_hook(lambda m, args, out: out * 2).remove()


@row()
def hook_that_keeps_an_activation(model):
    model.kept = {}
    model[0].register_forward_hook(lambda m, args, out: model.kept.__setitem__("linear", out))
    model.register_forward_hook(lambda m, args, out: (out, model.kept["linear"]))


@row()
def hook_that_is_a_method(model):
    class Scale:
        def __init__(self, by):
            self.by = by

        def hook(self, module, args, out):
            return out * self.by

    model[1].register_forward_hook(Scale(3.0).hook)


@row()
def hook_that_is_an_object(model):
    class Scale(nn.Module):
        def forward(self, module, args, out):
            return out * 3

    model[1].register_forward_hook(Scale())


@row()
def hook_that_writes_into_the_output(model):
    model[0].register_forward_hook(lambda m, args, out: out.mul_(2))


@row()
def hook_on_the_compiled_module(model):
    model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model.register_forward_hook(lambda m, args, out: out + 1)


@row()
def state_dict_hooks_do_not_matter(model):
    model.register_state_dict_post_hook(lambda m, state, prefix, meta: None)
    model.register_load_state_dict_pre_hook(lambda *args: None)
    model.register_state_dict_pre_hook(lambda m, prefix, keep: None)


@row(grad=True, ends="", regions=2)
def full_backward_hook(model):
    model[0].register_full_backward_hook(lambda m, gin, gout: None)


@row(grad=True, ends="", regions=2)
def full_backward_pre_hook(model):
    model[0].register_full_backward_pre_hook(lambda m, gout: (gout[0] * 2,))


@row()
def full_backward_hook_in_inference(model):
    model[0].register_full_backward_hook(lambda m, gin, gout: None)


# -- Containers --------------------------------------------------------------------------------------------------------
class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.extra = nn.ModuleList()
        self.extra.append(nn.Tanh())
        self.extra.extend([nn.ReLU(), nn.Linear(4, 2)])
        self.table = nn.ModuleDict({"relu": nn.ReLU(), "linear": nn.Linear(4, 4)})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4) * i) for i in range(3)])
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.ones(4)), "b": nn.Parameter(torch.zeros(4))})
        self.plain = [nn.Linear(4, 4)]  # not registered
        self.pairs = {"one": (nn.Linear(4, 4), nn.ReLU())}
        self.sequence = nn.Sequential(OrderedDict(first=nn.Linear(4, 4), second=nn.ReLU(), third=nn.Linear(4, 2)))


def of_lists(body):
    """A row of a Lists module with that forward."""
    cls = type(body.__name__, (Lists,), {"forward": body})
    return ROWS.add(body.__name__, cls, (randn(2, 4),), {})


@of_lists
def loop_over_a_module_list(self, x):
    for layer in self.layers:
        x = layer(x)
    return x


@of_lists
def module_list_with_numbers_and_slices(self, x):
    for i, layer in enumerate(self.layers[1:]):
        x = layer(x) + i
    return self.layers[-1](x) * len(self.layers)


@of_lists
def module_lists_zipped_and_reversed(self, x):
    for layer, weight in zip(reversed(self.layers), self.weights):
        x = layer(x) * weight
    return x


@of_lists
def module_list_comprehension(self, x):
    return torch.stack([layer(x) for layer in self.layers if isinstance(layer, nn.Linear)])


@of_lists
def module_list_that_was_extended(self, x):
    for layer in self.extra:
        x = layer(x)
    return x


@of_lists
def module_dict_by_key(self, x):
    return self.table["relu"](self.table["linear"](x))


@of_lists
def module_dict_in_order(self, x):
    for name, layer in self.table.items():
        x = layer(x) * len(name)
    return x, list(self.table), "relu" in self.table


@of_lists
def parameter_list(self, x):
    return sum(x * w for w in self.weights) + self.weights[1] * len(self.weights)


@of_lists
def parameter_dict(self, x):
    return {name: x + p for name, p in self.named.items()}, self.named["a"] * x


@of_lists
def unregistered_modules(self, x):
    linear, relu = self.pairs["one"]
    return relu(linear(self.plain[0](x)))


@of_lists
def sequential_by_parts(self, x):
    return self.sequence(x) + self.sequence.third(self.sequence[0](x)) + self.sequence[:2](x).sum()


@of_lists
def named_modules_and_parameters(self, x):
    total = 0
    for name, module in self.named_children():
        total += len(name)
    for p in self.parameters():
        total = total + p.sum()
    return x * total


@of_lists
def modules_by_name(self, x):
    return getattr(self, "layers")[int("1")](x) + self.get_submodule("table.linear")(x) + self.get_parameter("named.a")


@of_lists
def forward_called_by_hand(self, x):
    return self.layers[0].forward(x) + nn.Linear.__call__(self.layers[1], x)


@of_lists
def apply_of_functions_of_modules(self, x):
    found = []
    self.apply(lambda m: found.append(type(m).__name__) if isinstance(m, nn.Linear) else None)
    return x * len(found), found


# -- Parametrizations --------------------------------------------------------------------------------------------------
class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, w):
        return w * self.scale


def parametrized(*changes, training=False):
    def make():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        for change in changes:
            change(model[0])
        return model.train(training)

    return make


for name, make in {
    "parametrization": parametrized(lambda m: parametrize.register_parametrization(m, "weight", Symmetric())),
    "two parametrizations": parametrized(
        lambda m: parametrize.register_parametrization(m, "weight", Symmetric()),
        lambda m: parametrize.register_parametrization(m, "weight", Scaled()),
    ),
    "parametrized bias": parametrized(lambda m: parametrize.register_parametrization(m, "bias", Scaled())),
    "parametrization that was removed": parametrized(
        lambda m: parametrize.register_parametrization(m, "weight", Symmetric()),
        lambda m: parametrize.remove_parametrizations(m, "weight"),
    ),
    "weight_norm": parametrized(parametrizations.weight_norm),
    "weight_norm of another dimension": parametrized(lambda m: parametrizations.weight_norm(m, dim=1)),
    "spectral_norm": parametrized(parametrizations.spectral_norm),
    "spectral_norm in training": parametrized(parametrizations.spectral_norm, training=True),
    "orthogonal": parametrized(lambda m: parametrizations.orthogonal(m)),
    "weight_norm of old": parametrized(lambda m: nn.utils.weight_norm(m)),
    "spectral_norm of old": parametrized(lambda m: nn.utils.spectral_norm(m)),
    "pruning": parametrized(lambda m: prune.l1_unstructured(m, "weight", 0.5)),
}.items():
    ROWS.add(name, make, (randn(2, 4),), {})


@ROWS.made(randn(2, 4))
def cached_parametrization():
    model = parametrized(lambda m: parametrize.register_parametrization(m, "weight", Symmetric()))()

    def run(x):
        with parametrize.cached():
            return model[0](x) + model[0](x)

    return run


# -- State that changes ------------------------------------------------------------------------------------------------
class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("absent", None)
        self.weight = nn.Parameter(torch.ones(4))
        self.last, self.history, self.cache = None, [], {}


def stateful(**facts):
    def add(body):
        cls = type(body.__name__, (Stateful,), {"forward": body})
        return ROWS.add(body.__name__, cls, (randn(2, 4),), facts)

    return add


@stateful()
def counter_in_a_buffer(self, x):
    self.count += 1
    return x * self.count


@stateful()
def running_mean(self, x):
    self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return x - self.mean


@stateful()
def buffer_that_is_replaced(self, x):
    self.mean = self.mean * 0.9 + x.mean(0) * 0.1
    return x - self.mean


@stateful()
def buffer_that_is_copied_into(self, x):
    self.mean.copy_(x.mean(0))
    return self.mean * 2


@stateful()
def buffer_that_is_absent(self, x):
    return x * 2 if self.absent is None else x + self.absent


@stateful(expect=(MISS, MISS, HIT, HIT), regions=2)
def tensor_kept_on_the_module(self, x):
    before = self.last
    self.last = x * 2
    return x if before is None else x + before


@stateful()
def parameter_updated_through_data(self, x):
    self.weight.data.mul_(0.5)
    return x * self.weight


@stateful(expect=(MISS, MISS, HIT, HIT), regions=2)
def cache_that_is_filled_once(self, x):
    if "mask" not in self.cache:
        self.cache["mask"] = torch.ones(4, 4).tril()
    return x @ self.cache["mask"]


class BatchNormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x).relu(), self.norm.num_batches_tracked, self.norm.running_mean


@ROWS.made(randn(8, 4))
def batch_norm_in_training():
    return BatchNormed()


@ROWS.made(randn(8, 4))
def batch_norm_in_evaluation():
    return BatchNormed().eval()


@ROWS.made(randn(8, 4))
def batch_norm_without_statistics():
    return nn.BatchNorm1d(4, track_running_stats=False)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight
        self.block = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([self.block, self.block])

    def forward(self, i):
        x = self.embed(i)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@ROWS.made(ints(2, 3, below=8))
def tied_weights_and_shared_blocks():
    return Shared()


@ROWS.made(randn(2, 4))
def deep_copy_of_a_module():
    return copy.deepcopy(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


@ROWS.made(randn(2, 4))
def module_converted_to_double():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double()
    return lambda x: model(x.double())


class Methods(nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = torch.relu

    @property
    def doubled(self):
        return self.linear.weight * 2

    @staticmethod
    def shift(x):
        return x + 1

    @classmethod
    def scaled(cls, x):
        return x * cls.scale

    def encode(self, x, *more, flag=True, **options):
        x = self.act(self.linear(x))
        return x if flag else -x

    def forward(self, x):
        x = self.scaled(self.shift(self.encode(x, 1, flag=False, other=2)))
        return torch.nn.functional.linear(x, self.doubled), super().extra_repr()


@ROWS.made(randn(2, 4))
def methods_of_all_kinds():
    return Methods()


@ROWS.made(randn(2, 4))
def a_method_that_is_not_forward():
    return Methods().encode


class Inherits(Methods):
    def encode(self, x, *args, **kwargs):
        return super().encode(x, *args, **kwargs) + 1


@ROWS.made(randn(2, 4))
def super_in_a_subclass():
    return Inherits()


class Dynamic(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def __getattr__(self, name):
        if name.startswith("times_"):
            return lambda x: x * int(name[6:])
        return super().__getattr__(name)

    def forward(self, x):
        return self.times_3(self.linear(x))


@ROWS.made(randn(2, 4))
def getattr_of_a_module():
    return Dynamic()


@ROWS.made(randn(2, 4))
def lazy_module():
    model = nn.LazyLinear(3)
    model(torch.zeros(2, 4))
    return model


LAYERS = {
    "Linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "Bilinear": (lambda: (lambda m: lambda x: m(x, x + 1))(nn.Bilinear(4, 4, 3)), (2, 4)),
    "Conv1d": (lambda: nn.Conv1d(4, 3, 3, padding=1), (2, 4, 8)),
    "Conv2d": (lambda: nn.Conv2d(4, 3, 3, padding="same"), (2, 4, 8, 8)),
    "Conv2d, circular": (lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="circular"), (2, 4, 8, 8)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), (2, 4, 4, 4)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 3, 8, 8)),
    "MaxPool2d with indices": (lambda: nn.MaxPool2d(2, return_indices=True), (2, 3, 8, 8)),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 2), (2, 3, 9)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((2, None)), (2, 3, 8, 8)),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(3), (2, 3, 9)),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), (2, 3, 8, 8)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (2, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (2, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 5, 5)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (2, 4, 5)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (2, 4, 5, 5)),
    "PReLU": (lambda: nn.PReLU(4), (2, 4)),
    "GLU": (lambda: nn.GLU(), (2, 4)),
    "Softmax2d": (lambda: nn.Softmax2d(), (2, 3, 4, 4)),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), (2, 4)),
    "Dropout in evaluation": (lambda: nn.Dropout(0.5).eval(), (2, 4)),
    "Flatten and Unflatten": (lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 6))), (2, 3, 4)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 4, 4)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), (1, 2, 4, 4)),
    "ZeroPad2d": (lambda: nn.ZeroPad2d((1, 2, 0, 1)), (1, 2, 4, 4)),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), (1, 4, 3, 3)),
    "Fold of Unfold": (lambda: nn.Sequential(nn.Unfold(2), nn.Fold((4, 4), 2)), (1, 2, 4, 4)),
    "CosineSimilarity with itself": (lambda: (lambda c: lambda x: c(x, x + 1))(nn.CosineSimilarity()), (3, 4)),
    "Transformer encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (2, 5, 8)),
    "Transformer encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval(),
        (2, 5, 8),
    ),
    "Transformer decoder layer": (
        lambda: (lambda m: lambda x: m(x, x))(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True).eval()),
        (2, 5, 8),
    ),
}
for name, (make, sizes) in LAYERS.items():
    ROWS.add(name, make, (randn(*sizes),), {})


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_module_features(row):
    row.check()


# -- What tables of calls cannot say -----------------------------------------------------------------------------------
def both(model, x):
    """(the compiled module, a function that compares it with eager)."""
    torchbolt.reset()
    compiled = torchbolt.compile(model)

    def agree(recorded):
        before = torchbolt.stats()["regions"]
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
        assert (torchbolt.stats()["regions"] > before) == recorded, torchbolt.api.compiled_of(compiled)._recompiles()

    return agree


def test_what_changes_between_calls():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    agree = both(model, torch.randn(2, 4))
    agree(True), agree(False)
    handle = model[0].register_forward_hook(lambda m, args, out: out * 2)
    agree(True), agree(False)
    handle.remove()
    agree(False)
    model[0].weight = nn.Parameter(torch.ones(4, 4))
    agree(False)
    model[1] = nn.Tanh()
    agree(True)
    model.append(nn.Linear(4, 2))
    agree(True)
    del model[2]  # which makes an OrderedDict of the dict of modules
    agree(True)
    model[0].bias = None
    agree(True)
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    agree(True)


def test_global_hooks():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    agree = both(model, torch.randn(2, 4))
    agree(True)
    handles = [
        nn.modules.module.register_module_forward_hook(lambda m, args, out: out + 1),
        nn.modules.module.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,)),
    ]
    try:
        agree(True), agree(False)
    finally:
        for handle in handles:
            handle.remove()
    agree(False)


def test_an_always_called_hook_sees_a_failure():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    model, called = Fails(), []
    model.register_forward_hook(lambda m, args, out: called.append(out), always_call=True)
    compiled = torchbolt.compile(model)
    for expected in (1, 2):
        with pytest.raises(ValueError, match="no"):
            compiled(torch.ones(2))
        assert len(called) == expected


def test_training_and_evaluation():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    agree = both(model, torch.randn(3, 4))
    agree(True), agree(False)
    model.train()
    model[2].p = 0.0
    model[1].track_running_stats = False
    agree(True), agree(False)
    model.eval()
    model[2].p = 0.5
    model[1].track_running_stats = True
    agree(False)


def test_loaded_weights_are_seen():
    model = nn.Linear(4, 4)
    agree = both(model, torch.randn(2, 4))
    agree(True), agree(False)
    model.load_state_dict({"weight": torch.ones(4, 4), "bias": torch.zeros(4)})
    agree(False)
    model.load_state_dict({"weight": torch.zeros(4, 4), "bias": torch.ones(4)}, assign=True)
    agree(False)
    with torch.no_grad():
        model.weight.normal_()
    agree(False)
    model.weight.data = torch.full((4, 4), 2.0)
    agree(False)
    model.double().float()
    agree(False)


def test_a_graph_module_is_compiled_anew_through_what_stands_for_it():
    def doubled(x):
        return torch.relu(x) * 2

    graph_module = torch.fx.symbolic_trace(doubled)
    compiled = torchbolt.compile(graph_module)
    x = torch.randn(8)
    for function in (torch.relu, torch.tanh, torch.sin):
        for node in compiled.graph.nodes:
            if node.op == "call_function" and node.target.__name__ != "mul":
                node.target = function
        compiled.recompile()
        for _ in range(3):
            torch.testing.assert_close(compiled(x), function(x) * 2)
            torch.testing.assert_close(graph_module(x), function(x) * 2)
