"""Advanced Data Analysis, week 8: torch's module by hand, and why positions are sinusoids."""

import math

import pytest
import torch
from torch import nn as torchs

import sightline as sl


@pytest.mark.parametrize("nn", [torchs, sl.nn], ids=["torch", "sightline"])
def test_scaled_dot_product_attention_the_manual_way(nn):
    F = torch.nn.functional
    d, B, T = 4, 1, 5
    Q, K, V = torch.randn(B, T, d), torch.randn(B, T, d), torch.randn(B, T, d)
    MHA = nn.MultiheadAttention(d, num_heads=1, bias=False, batch_first=True)
    Wi, Wo = MHA.in_proj_weight, MHA.out_proj.weight
    MHA_output, MHA_attention = MHA(Q, K, V)
    assert (MHA_output.shape, MHA_attention.shape) == ((B, T, d), (B, T, T))
    Wi_q, Wi_k, Wi_v = Wi.chunk(3)
    Q, K, V = Q.squeeze(0), K.squeeze(0), V.squeeze(0)
    Q_proj, K_proj, V_proj = Q @ Wi_q.T, K @ Wi_k.T, V @ Wi_v.T
    manual_attention = F.softmax(Q_proj @ K_proj.T / d**0.5, dim=-1)
    manual_output = manual_attention @ V_proj @ Wo.T
    assert torch.allclose(MHA_attention, manual_attention, atol=1e-6)  # the document prints True
    assert torch.allclose(MHA_output, manual_output, atol=1e-6)  # and True
    output, weights = sl.reference.scaled_dot_product_attention(Q_proj, K_proj, V_proj)
    torch.testing.assert_close(weights, MHA_attention[0])
    torch.testing.assert_close(output @ Wo.T, MHA_output[0])


@pytest.mark.parametrize("d_model", [8, 32])
def test_the_encoding_is_the_formula(d_model):
    table = sl.positions.sinusoidal(17, d_model, dtype=torch.float64)
    for pos in range(17):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_the_wavelengths_form_a_geometric_progression():
    d_model = 16
    first = sl.positions.sinusoidal(2, d_model, dtype=torch.float64)[1]  # sines and cosines of the rates
    rates = torch.atan2(first[0::2], first[1::2])
    wavelengths = 2 * math.pi / rates
    ratio = wavelengths[1:] / wavelengths[:-1]
    torch.testing.assert_close(ratio, torch.full_like(ratio, 10000 ** (2 / d_model)))
    assert wavelengths[0].item() == pytest.approx(2 * math.pi)


@pytest.mark.parametrize("k", [1, 7, -3])
def test_a_position_further_on_is_a_linear_function_of_the_position(k):
    table = sl.positions.sinusoidal(64, 32, dtype=torch.float64)
    pos = torch.arange(10, 40)
    matrix = sl.positions.shift_matrix(k, 32, dtype=torch.float64)
    torch.testing.assert_close(table[pos] @ matrix.T, table[pos + k], rtol=0, atol=1e-12)


def test_the_encoding_goes_on_beyond_any_length_that_was_trained():
    positions = sl.positions.SinusoidalPositions(32, max_length=16)
    longer = positions(torch.zeros(1, 1000, 32))
    torch.testing.assert_close(longer[0], sl.positions.sinusoidal(1000, 32))


def test_the_transformer_adds_it_to_the_input_of_both_stacks():
    """Figure 1: embeddings plus positions go into the encoder and into the decoder."""
    model = sl.models.Translator(
        sl.models.TranslatorConfig(source_vocab_size=11, vocab_size=13, d_model=8, n_heads=2, d_ff=16)
    ).eval()
    source, target = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[1, 5, 6, 7]])
    out = model(source, target)
    assert not torch.allclose(out, model(source.flip(1), target), atol=1e-4)  # order is known on either side
    assert not torch.allclose(out[:, -1], model(source, target[:, [0, 2, 1, 3]])[:, -1], atol=1e-4)
