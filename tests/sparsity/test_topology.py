import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freetickets.sparsity.topology import digest, pack_mask, random_mask, select_top, unpack_mask

from .training import generator, properties


@pytest.mark.parametrize("count", [0, 1, 7, 24])
def test_a_random_mask_has_exactly_its_count(count):
    mask = random_mask(torch.Size([2, 3, 4]), count, generator())
    assert mask.shape == (2, 3, 4)
    assert mask.sum() == count


def test_a_random_mask_reaches_every_entry_alike():
    source = generator()
    hits = sum(random_mask(torch.Size([40]), 10, source).int() for _ in range(2000))
    assert hits.min() > 400
    assert hits.max() < 600


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


def test_selection_follows_the_entries_whatever_the_memory_layout():
    values = torch.randperm(2 * 8 * 3 * 3, generator=generator()).float().view(2, 8, 3, 3)
    values[0, 0] = 0.0  # ties
    candidates = torch.ones_like(values, dtype=torch.bool)
    expected = select_top(values, 141, candidates, generator(1))
    channels_last = values.to(memory_format=torch.channels_last)
    for mask in (candidates, candidates.to(memory_format=torch.channels_last)):
        assert torch.equal(select_top(channels_last, 141, mask, generator(1)), expected)
    assert expected.sum() == 141
    transposed = values.transpose(0, 3)
    chosen = select_top(transposed, 30, candidates.transpose(0, 3), generator())
    assert chosen.shape == transposed.shape
    assert transposed[chosen].sum() == values.flatten().topk(30).values.sum()


def test_ties_are_broken_at_random_and_by_the_generator_alone():
    zeros, everywhere = torch.zeros(40), torch.ones(40, dtype=torch.bool)
    source = generator()
    hits = sum(select_top(zeros, 10, everywhere, source).int() for _ in range(2000))
    assert hits.min() > 400
    assert hits.max() < 600
    again = [select_top(zeros, 10, everywhere, generator(3)) for _ in range(2)]
    assert torch.equal(*again)


def test_selection_leaves_the_scores_alone():
    values = torch.tensor([1.0, 2.0, 3.0])
    select_top(values, 1, torch.tensor([True, True, False]), generator())
    assert values.tolist() == [1, 2, 3]


@pytest.mark.parametrize("shape", [(1,), (8,), (9,), (3, 5), (4, 3, 3, 3)])
def test_masks_are_packed_to_bits_and_back(shape):
    mask = torch.rand(shape, generator=generator()) < 0.5
    packed = pack_mask(mask)
    assert packed.numel() == math.ceil(mask.numel() / 8)
    assert packed.dtype == torch.uint8
    assert torch.equal(unpack_mask(packed, mask.shape), mask)


def test_packing_follows_the_entries_whatever_the_memory_layout():
    mask = torch.rand(2, 8, 3, 3, generator=generator()) < 0.5
    assert torch.equal(pack_mask(mask), pack_mask(mask.to(memory_format=torch.channels_last)))


def test_the_digest_tells_topologies_apart():
    mask = torch.rand(6, 4, generator=generator()) < 0.5
    other = mask.clone()
    other[0, 0] ^= True
    topologies = [{"a": mask}, {"a": other}, {"b": mask}, {"a": mask.view(4, 6)}, {}]
    assert len({digest(topology) for topology in topologies}) == len(topologies)
    assert digest({"a": mask}) == digest({"a": mask.clone()})
