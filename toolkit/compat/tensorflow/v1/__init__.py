"""TensorFlow 1: graphs, placeholders, Sessions, Variables in collections.

All other names are from `toolkit.compat.tensorflow`: its functions also accept the
tensors of graphs.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from toolkit.compat.tensorflow.modes import executing_eagerly
from toolkit.compat.tensorflow.v1 import graph_initializers, recording
from toolkit.compat.tensorflow.v1.basics import (
    add_to_collection,
    add_to_collections,
    control_dependencies,
    disable_eager_execution,
    disable_v2_behavior,
    enable_eager_execution,
    enable_resource_variables,
    enable_v2_behavior,
    get_collection,
    get_collection_ref,
    global_variables,
    init_scope,
    local_variables,
    model_variables,
    moving_average_variables,
    name_scope,
    placeholder,
    placeholder_with_default,
    resource_variables_enabled,
    trainable_variables,
)
from toolkit.compat.tensorflow.v1.gradients import gradients
from toolkit.compat.tensorflow.v1.graph import (
    Graph,
    get_default_graph,
    reset_default_graph,
)
from toolkit.compat.tensorflow.v1.graph_initializers import (
    constant_initializer,
    glorot_normal_initializer,
    glorot_uniform_initializer,
    ones_initializer,
    orthogonal_initializer,
    random_normal_initializer,
    random_uniform_initializer,
    truncated_normal_initializer,
    variance_scaling_initializer,
    zeros_initializer,
)
from toolkit.compat.tensorflow.v1.operations import (
    assign,
    assign_add,
    assign_sub,
    global_variables_initializer,
    group,
    initialize_all_variables,
    is_variable_initialized,
    local_variables_initializer,
    no_op,
    py_func,
    report_uninitialized_variables,
    scatter_add,
    scatter_sub,
    scatter_update,
    set_random_seed,
    tables_initializer,
    variables_initializer,
)
from toolkit.compat.tensorflow.v1.plan import FailedPreconditionError
from toolkit.compat.tensorflow.v1.scopes import (
    AUTO_REUSE,
    VariableScope,
    get_local_variable,
    get_variable,
    get_variable_scope,
    variable_scope,
)
from toolkit.compat.tensorflow.v1.session import (
    InteractiveSession,
    Session,
    get_default_session,
)
from toolkit.compat.tensorflow.v1.settings import ConfigProto, GPUOptions, app, logging
from toolkit.compat.tensorflow.v1.tensors import (
    GraphOperation as Operation,
    GraphTensor as Tensor,
)
from toolkit.compat.tensorflow.v1.variables import GraphKeys

__all__ = [name for name in globals() if name[0] != "_" and name != "annotations"]


def __getattr__(name: str) -> Any:
    """Import a name on first use, or return the name of TensorFlow 2."""
    if name in ("data", "image", "layers", "losses", "metrics", "summary", "train"):
        return import_module(f"{__name__}.{name}")
    function = import_module(f"{__name__}.functions").FUNCTIONS.get(name)
    if function is None:
        function = import_module(f"{__name__}.files").FILES.get(name)
    if function is None:
        function = getattr(import_module("toolkit.compat.tensorflow"), name)
    return function


initializers: SimpleNamespace = SimpleNamespace(
    constant=constant_initializer,
    glorot_normal=glorot_normal_initializer,
    glorot_uniform=glorot_uniform_initializer,
    global_variables=global_variables_initializer,
    he_normal=graph_initializers.he_normal,
    he_uniform=graph_initializers.he_uniform,
    lecun_normal=graph_initializers.lecun_normal,
    lecun_uniform=graph_initializers.lecun_uniform,
    local_variables=local_variables_initializer,
    ones=ones_initializer,
    orthogonal=orthogonal_initializer,
    random_normal=random_normal_initializer,
    random_uniform=random_uniform_initializer,
    truncated_normal=truncated_normal_initializer,
    variables=variables_initializer,
    variance_scaling=variance_scaling_initializer,
    zeros=zeros_initializer,
)
