"""Which of a network's weights can be sparse."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrize import is_parametrized
from torch.optim import Optimizer

from ..errors import FreeTicketsError, UnknownNameError
from ..kernels.layers import SparseLayer
from .distribution import matches

Selector = str | type[nn.Module]
Selectors = Selector | Sequence[Selector]

_PLAIN = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def select_weights(
    model: nn.Module, *, include: Selectors | None = None, exclude: Selectors = (),
    embeddings: bool = False,
) -> dict[str, nn.Parameter]:  # fmt: skip
    """Returns the weights that can be sparse, by name, in the network's own order.

    These are the weights of linear layers, convolutions (transposed ones too), recurrent layers and
    attention projections. Biases and norms never are, frozen weights are left alone, and a weight
    that several modules share counts once (one that is also an embedding table counts as a table).

    Args:
        model: Any network; names are those of the bare network inside wrappers.
        include: If given, only weights that fit one of these: glob patterns over the names of
            weights or modules ("block1.*", "fc"), or module types.
        exclude: Weights that fit one of these stay dense.
        embeddings: Whether embedding tables may be sparse.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
        >>> list(select_weights(net, exclude=["2"]))
        ['0.weight']
    """
    model, exclude = bare(model), _as_list(exclude)
    include = _as_list(nn.Module if include is None else include)
    known = [name for name, _ in model.named_parameters()]
    found: dict[str, nn.Parameter] = {}
    selected: set[str] = set()
    tables = () if embeddings else (m for m in model.modules() if isinstance(m, _EMBEDDINGS))
    seen = {id(table.weight) for table in tables}
    for module_name, module in model.named_modules():
        for own_name in _weight_names(module, embeddings):
            weight = module._parameters.get(own_name)
            name = f"{module_name}.{own_name}" if module_name else own_name
            if _fits(name, module, include) and not _fits(name, module, exclude):
                _check_holdable(name, module, own_name)
                selected.add(name)
            known.append(name)  # also if it is no parameter, so that it can be excluded
            if weight is None or not weight.requires_grad or id(weight) in seen:
                continue
            if isinstance(weight, UninitializedParameter):
                raise FreeTicketsError(
                    f"weight {name!r} has no shape yet: run one batch through the network first"
                )
            if isinstance(module, _EMBEDDINGS) and module.sparse:
                raise FreeTicketsError(
                    f"embedding {name!r} has sparse gradients: build it with sparse=False"
                )
            seen.add(id(weight))
            found[name] = weight
    for selector in [*include, *exclude]:
        if isinstance(selector, str) and not any(matches(name, selector) for name in known):
            raise UnknownNameError("layer", selector, found)
    return {name: weight for name, weight in found.items() if name in selected}


def inner_optimizer(optimizer: Optimizer) -> Optimizer:
    """The `torch.optim` one inside wrappers, whose hooks see every step that any of them takes."""
    while isinstance(inside := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inside
    if not isinstance(getattr(optimizer, "_optimizer_step_pre_hooks", None), dict):
        raise FreeTicketsError(
            f"a {type(optimizer).__name__} is not a torch.optim optimizer, nor is its 'optimizer' "
            "one: pass the one that takes its steps"
        )
    return optimizer


def bare(model: nn.Module) -> nn.Module:
    """The network inside the wrappers that would put their own names before its own."""
    # torch.compile's, Fabric's, and PyTorch's own data-parallel wrappers.
    is_parallel = isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel))
    for name in ("_orig_mod", "_forward_module", *(["module"] if is_parallel else [])):
        inside = model._modules.get(name)
        if inside is not None:
            return bare(inside)
    return model


def _as_list(selectors: Selectors) -> list[Selector]:
    return [selectors] if isinstance(selectors, (str, type)) else list(selectors)


def _weight_names(module: nn.Module, embeddings: bool) -> list[str]:
    if isinstance(module, _PLAIN) or (embeddings and isinstance(module, _EMBEDDINGS)):
        return ["weight"]
    if isinstance(module, nn.RNNBase):
        return [name for name in module._flat_weights_names if name.startswith("weight_")]
    if isinstance(module, nn.RNNCellBase):
        return ["weight_ih", "weight_hh"]
    if isinstance(module, nn.MultiheadAttention):
        return ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"]
    return []


def _check_holdable(name: str, module: nn.Module, own_name: str) -> None:
    if isinstance(module, SparseLayer):
        raise FreeTicketsError(f"another sparsifier holds {name!r} already: detach() it first")
    weight = getattr(module, own_name, None)
    # A DTensor, or what the older FSDP leaves of a weight.
    if hasattr(weight, "placements") or "_fsdp_wrapped_module" in name:
        raise FreeTicketsError(
            f"weight {name!r} is sharded over processes (FSDP), but a topology needs it whole: "
            "use DistributedDataParallel instead"
        )
    is_plain_tensor = own_name not in module._parameters and isinstance(weight, Tensor)
    if is_parametrized(module, own_name) or is_plain_tensor:
        raise FreeTicketsError(
            f"weight {name!r} is computed from others (weight_norm, prune and the like), so it "
            f"can't be held at zero: undo that first (remove_parametrizations, remove_weight_norm, "
            f"prune.remove), or leave it dense with exclude=[{name!r}]"
        )


def _fits(name: str, owner: nn.Module, selectors: Sequence[Selector]) -> bool:
    return any(
        matches(name, selector) if isinstance(selector, str) else isinstance(owner, selector)
        for selector in selectors
    )
