"""Every warning: its words, its category, the caller's line that it points at, and once for a line."""

import functools
import linecache
import warnings

import matplotlib as mpl
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sightline as sl

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

B, H, T, D = 2, 3, 5, 7
E = H * D
X, Q = torch.randn(B, T, E), torch.randn(B, H, T, D)
ONES, NOTHING = torch.ones(T, T).tril(), torch.zeros(T, T, dtype=torch.bool)


class Fused(nn.Module):
    """Attends by torch's function."""

    def forward(self, q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, mask)  # here, where the warning is about one call


class LinearAttention(nn.Module):
    """Attends, and has no weights to see."""

    def forward(self, q, k, v):
        return q @ (k.mT @ v)


def masked(**options):
    attention = sl.nn.MultiheadAttention(E, H, batch_first=True)
    attention(X, X, X, **options)  # here


def a_mask_of_ones():
    masked(attn_mask=ONES)


def a_mask_that_hides_a_row():
    masked(attn_mask=~NOTHING)


def padding_of_ones():
    masked(key_padding_mask=torch.tensor([[1.0, 1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0, 0.0]]))


def padding_that_marks_the_real_keys():
    masked(key_padding_mask=torch.arange(T) < torch.tensor([[3], [4]]))


def the_former_name_of_num_heads():
    sl.nn.MultiHeadSelfAttention(E, E, E, n_heads=H)  # here


def a_model_that_did_not_run():
    with sl.watch(nn.MultiheadAttention(E, H)):  # here
        pass


def more_than_the_limit():
    model = Fused()
    with sl.watch(model, limit=0):  # here
        model(Q, Q, Q)
        model(Q, Q, Q)


def what_can_not_be_seen():
    model = LinearAttention()
    with sl.watch(model):  # here
        model(Q, Q, Q)


def padding_that_fits_nothing():
    model = Fused()
    with sl.watch(model, lengths=[3, T + 1]):  # here
        model(Q, Q, Q)


def an_edit_of_nothing():
    model = nn.Linear(E, E)
    with sl.edit(model, scale=2.0):  # here
        model(X)


def an_edit_of_no_layer():
    model = Fused()
    with sl.edit(model, layers="no such", scale=2.0):  # here
        model(Q, Q, Q)


def an_edit_that_leaves_nothing():
    model, alone = Fused(), torch.eye(T).bool()
    with sl.edit(model, forbid=[([3], [3])]):
        model(Q, Q, Q, alone)


def the_mean_of_one_output():
    model = Fused()
    with sl.edit(model, ablate="mean"):
        model(Q[:1, :, :1], Q[:1], Q[:1])


def a_figure_without_a_window():
    drawn().show()  # here


@functools.cache
def drawn():
    """A figure; what draws it resets which warnings Python has shown."""
    mpl.use("agg")
    return sl.show.positions(sl.positions.sinusoidal(8, 6))


WARNINGS = {
    a_mask_of_ones: "attn_mask holds only ones and zeros",
    a_mask_that_hides_a_row: "attn_mask hides every key of a row, which comes out as zeros",
    padding_of_ones: "key_padding_mask holds only ones and zeros",
    padding_that_marks_the_real_keys: "key_padding_mask hides the first key of every row and shows the last",
    the_former_name_of_num_heads: "n_heads is num_heads now, as in torch",
    a_model_that_did_not_run: "nothing was seen because the model has not run yet",
    more_than_the_limit: "sights of more than 0 bytes were collected",
    what_can_not_be_seen: "an attention of LinearAttention ran and could not be read: the model itself",
    padding_that_fits_nothing: "watch(lengths) is of B=2 and at least T=6, and no attention",
    an_edit_of_nothing: "the edit changed nothing: no fused attention ran",
    an_edit_of_no_layer: "the edit changed nothing: layers= chose none of the modules that attended",
    an_edit_that_leaves_nothing: "forbid leaves 6 queries of the model itself nothing to look at",
    the_mean_of_one_output: "ablate='mean' changes nothing in the model itself",
    a_figure_without_a_window: "no window can be opened here, matplotlib's backend is 'agg'",
}


@pytest.mark.parametrize("call", WARNINGS, ids=lambda call: call.__name__)
def test_a_warning(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # once for a line and a text
        for _ in range(3):
            call()
    assert len(caught) == 1, [str(x.message) for x in caught]
    (warning,), sentence = caught, str(caught[0].message)
    assert sentence.startswith(WARNINGS[call])
    assert "\n" not in sentence
    assert not sentence.endswith(".")
    assert warning.category is (DeprecationWarning if "n_heads" in sentence else UserWarning)
    line = linecache.getline(warning.filename, warning.lineno)
    assert (warning.filename, "# here" in line) == (__file__, True), f"{warning.filename}: {line}"
