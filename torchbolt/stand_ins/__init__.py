# torchbolt/stand_ins/__init__.py
"""Python in place of functions that a recording cannot simply run: one file a family, one table of all.

The recorder runs these instead, so that what they call is part of the recording like any Python: native functions that
call Python back (given what they are bound to, if anything, then their arguments), and functions of torch whose own
road leads through torch.compile. What is not used as usual is left to the function itself, for its errors and its
warnings. observe/calls/controls.cpp reads both tables when a first call is recorded.
"""

from __future__ import annotations

from torchbolt.stand_ins import (
    averages,
    copies,
    devices,
    distributed,
    functions,
    gradients,
    higher_order,
    iterables,
    optimizers,
    parameters,
    recurrent,
    scaling,
    schedules,
    tensors,
    tools,
    versions,
)

#: In place of native functions, by their names in observe/calls/cfunctions.def.
NATIVES = {**iterables.NATIVES, **functions.NATIVES, **gradients.NATIVES, **tensors.NATIVES}

#: In place of functions of torch in Python, by module and qualified name.
FUNCTIONS = {
    **averages.FUNCTIONS,
    **higher_order.FUNCTIONS,
    **gradients.FUNCTIONS,
    **copies.FUNCTIONS,
    **distributed.FUNCTIONS,
    **optimizers.FUNCTIONS,
    **parameters.FUNCTIONS,
    **recurrent.FUNCTIONS,
    **scaling.FUNCTIONS,
    **schedules.FUNCTIONS,
    **tools.FUNCTIONS,
    **versions.FUNCTIONS,
}

devices.stand_in_where_there_are_any()
higher_order.let_higher_order_operators_through()
