import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freetickets.sparsity.topology import digest, pack_mask, select_top, unpack_mask

from .training import generator, properties

# Few distinct values, so that ties are the rule; infinities, and types of all widths.
scores = st.lists(
    st.tuples(
        st.sampled_from([-math.inf, -1.0, 0.0, 0.1, 0.1 + 1e-9, 2.0, math.inf]), st.booleans()
    ),
    min_size=1,
    max_size=30,
)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])


@properties(200)
@given(scores, dtypes, st.data())
def test_the_best_candidates_are_selected_and_exactly_as_many_as_asked(entries, dtype, data):
    values = torch.tensor([value for value, _ in entries], dtype=dtype)
    candidates = torch.tensor([candidate for _, candidate in entries])
    count = data.draw(st.integers(0, int(candidates.sum())))
    chosen = select_top(values, count, candidates, generator())
    assert chosen.sum() == count
    assert not (chosen & ~candidates).any()
    best = sorted(values[candidates].tolist(), reverse=True)[:count]
    assert sorted(values[chosen].tolist(), reverse=True) == best


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_that_single_precision_cannot_tell_apart_are_selected_exactly(dtype):
    source = generator()
    for _ in range(100):
        values = torch.rand(50, dtype=dtype, generator=source)
        chosen = select_top(values, 20, torch.ones(50, dtype=torch.bool), source)
        assert set(chosen.nonzero().flatten().tolist()) == set(values.topk(20).indices.tolist())


def test_selection_follows_the_entries_and_the_digest_tells_topologies_apart():
    values = torch.randperm(2 * 8 * 3 * 3, generator=generator()).float().view(2, 8, 3, 3)
    transposed, before = values.transpose(0, 3), values.clone()
    chosen = select_top(transposed, 30, torch.ones_like(transposed) > 0, generator())
    assert chosen.shape == transposed.shape
    assert transposed[chosen].sum() == values.flatten().topk(30).values.sum()
    assert torch.equal(values, before)
    mask = torch.rand(6, 4, generator=generator()) < 0.5
    other = mask.clone()
    other[0, 0] ^= True
    topologies = [{"a": mask}, {"a": other}, {"b": mask}, {"a": mask.view(4, 6)}, {}]
    assert len({digest(topology) for topology in topologies}) == len(topologies)
    assert digest({"a": mask}) == digest({"a": mask.clone()})


@pytest.mark.parametrize("shape", [(1,), (8,), (9,), (3, 5), (4, 3, 3, 3)])
def test_masks_are_packed_to_bits_and_back(shape):
    mask = torch.rand(shape, generator=generator()) < 0.5
    packed = pack_mask(mask)
    assert (packed.numel(), packed.dtype) == (math.ceil(mask.numel() / 8), torch.uint8)
    assert torch.equal(unpack_mask(packed, mask.shape), mask)
    if mask.dim() == 4:  # in whatever layout
        assert torch.equal(pack_mask(mask.to(memory_format=torch.channels_last)), packed)
