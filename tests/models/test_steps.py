import pytest
import torch
from torch import nn

import sightline as sl
from sightline.attention.from_torch import mask_from_torch
from sightline.models.steps import advance, begin, padding_bias

B, T, S, E, H = 3, 5, 7, 12, 2
EDITS = {
    "zero": {"heads": [1], "ablate": "zero"},
    "uniform": {"ablate": "uniform"},
    "temperature": {"layers": "layers.1", "heads": [0], "temperature": 2.5},
    "scale": {"layers": "*self_attn", "scale": 0.5},
    "forbid": {"layers": "*multihead_attn", "forbid": [(None, [2, 5])]},
}

ATTENTIONS = [f"layers.{i}.{kind}" for i in range(2) for kind in ("self_attn", "multihead_attn")]
CHANGED = {
    "zero": ATTENTIONS,
    "uniform": ATTENTIONS,
    "temperature": ATTENTIONS[2:],
    "scale": ATTENTIONS[::2],
    "forbid": ATTENTIONS[1::2],
}


def decoder_and_inputs() -> tuple[nn.TransformerDecoder, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(E, H, 11, batch_first=True, norm_first=True)
    decoder = nn.TransformerDecoder(layer, 2).eval()
    for p in decoder.parameters():
        nn.init.normal_(p, std=0.4)
    real = torch.arange(S) < torch.tensor([[S], [6], [4]])
    return decoder, torch.randn(B, T, E), torch.randn(B, S, E), real


def step_through(
    decoder: nn.TransformerDecoder, x: torch.Tensor, memory: torch.Tensor, real: torch.Tensor, width: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of all steps and the last layer's weights over the memory."""
    state = begin(decoder, memory, real, look=(-1,)).branch(width)
    outputs, weights = [], []
    for t in range(x.size(1)):
        y, state = advance(decoder, x[:, t].repeat_interleave(width, 0), state)
        assert state.attention_weights is not None
        outputs.append(y[::width])
        weights.append(state.attention_weights[::width])
    return torch.stack(outputs, 1), torch.stack(weights, 2)


@torch.no_grad()
@pytest.mark.parametrize("name", EDITS)
def test_steps_are_edited_as_a_whole_pass_is(name: str) -> None:
    decoder, x, memory, real = decoder_and_inputs()
    causal = nn.Transformer.generate_square_subsequent_mask(T)
    options = {"tgt_mask": causal, "tgt_is_causal": True, "memory_key_padding_mask": ~real}
    plain = step_through(decoder, x, memory, real)[0]
    with sl.edit(decoder, **EDITS[name]), sl.watch(decoder, keep=True) as seen:
        whole = decoder(x, memory, **options)
    assert not whole.allclose(plain, atol=1e-3)
    for width in (1, 3):
        with sl.edit(decoder, **EDITS[name]) as edit:
            steps, weights = step_through(decoder, x, memory, real, width)
        torch.testing.assert_close(steps, whole, atol=1e-5, rtol=1e-5)
        assert edit.changed == CHANGED[name]
        if name in ("uniform", "forbid"):
            expected = seen["layers.1.multihead_attn"].rows(list(range(T)))
            torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(step_through(decoder, x, memory, real)[0], plain, atol=0, rtol=0)


@torch.no_grad()
@pytest.mark.bad_input
def test_pairs_among_the_beams_of_a_search_are_refused() -> None:
    decoder, x, memory, real = decoder_and_inputs()
    edit = sl.edit(decoder, layers="*self_attn", forbid=[(None, [0])])
    with pytest.raises(ValueError, match=r"layers\.0\.self_attn the beams .* search with beam=1"), edit:
        step_through(decoder, x, memory, real, width=3)


@torch.no_grad()
@pytest.mark.bad_input
@pytest.mark.parametrize("queries", [[-1], slice(0, 1)])
def test_a_beam_is_not_taken_for_a_query(queries) -> None:
    decoder, x, memory, real = decoder_and_inputs()
    options = {"layers": "*multihead_attn", "forbid": [(queries, [0])]}
    sentence = r"layers\.0\.multihead_attn the queries of a step are the 3 beams .* \(None, keys\), or search"
    with pytest.raises(ValueError, match=sentence), sl.edit(decoder, **options):
        step_through(decoder, x, memory, real, width=3)
    with sl.edit(decoder, **options):
        one = step_through(decoder, x, memory, real, width=1)[0]
    with sl.edit(decoder, **options | {"forbid": [(None, [0])]}):
        torch.testing.assert_close(step_through(decoder, x, memory, real, width=3)[0], one)


def test_what_hides_padding_keeps_its_rows_where_a_gpu_wants_them() -> None:
    real = torch.arange(7) < torch.tensor([[3], [7], [1]])
    bias = padding_bias(real, torch.bfloat16)
    assert bias.dtype == torch.bfloat16
    assert torch.equal(bias == 0, real)
    assert torch.equal(bias == -torch.inf, ~real)
    (mask,) = mask_from_torch(None, bias, n_heads=2).added
    assert mask.shape == (3, 1, 1, 7)
    assert all(stride % 8 == 0 for stride in mask.stride()[:-1])
    assert torch.equal(mask[:, 0, 0], bias)
