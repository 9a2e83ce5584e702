# torchbolt/stand_ins/parameters.py
"""Parameters found by an index or a key that differs between calls."""

from __future__ import annotations


def _parameter(module, name):
    """A name that differs between calls says which parameter is meant, if it is not looked for as attributes are."""
    return module._parameters[name] if name in module._parameters else getattr(module, name)


def parameter_by_index(parameters, index):
    if not isinstance(index, slice):
        return _parameter(parameters, parameters._get_abs_string_index(index))
    some = parameters.__class__()
    for i in range(*index.indices(len(parameters))):
        some.append(parameters[i])
    return some


def parameter_by_key(parameters, key):
    return _parameter(parameters, parameters._key_to_attr(key))


#: By module and qualified name.
FUNCTIONS = {
    "torch.nn.modules.container.ParameterList.__getitem__": parameter_by_index,
    "torch.nn.modules.container.ParameterDict.__getitem__": parameter_by_key,
}
