"""The attentions of a translator while it reads and writes, and those that a look asked for."""

from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from sightline.cli.layer_names import matches
from sightline.cli.translate_run import TranslateRun
from sightline.data.tokens import BOS
from sightline.decode.translations import Translation
from sightline.look.watch import watch
from sightline.models.translator import Translator
from sightline.shapes import Float
from sightline.show.alignment import alignment, head_grid

__all__ = ["Layer", "asked_for", "layers_of", "whole"]

CROSS, SELF, CAUSAL = "cross-attention", "self-attention", "causal self-attention"


@dataclass(frozen=True)
class Layer:
    """The weights of an attention, and the words on its sides.

    Attributes:
        name: Of the module.
        kind: Who looks at whom.
        weights: Of its heads, or of those that are shown.
        queries: The words that look.
        keys: The words that are looked at.
        said: What of it is shown, in words: the name, and a head if there is one alone.
    """

    name: str
    kind: str
    weights: Float[Tensor, "H T S"]
    queries: list[str]
    keys: list[str]
    said: str

    def only(self, head: int) -> "Layer":
        """One head of it.

        Raises:
            ValueError: If there is no such head.
        """
        check_head(head, self.weights.size(0), self.name)
        return replace(self, weights=self.weights[head : head + 1], said=f"{self.name}, head {head}")

    def drawn(self, title: str) -> Figure:
        """Its picture: one map of words against words, or a panel for each head."""
        if self.kind == CROSS and self.weights.size(0) == 1:
            return alignment(self.weights[0], self.keys, self.queries, title=title)
        return head_grid(self.weights, self.queries, self.keys, title=title)


def check_head(head: int, n: int, where: str) -> None:
    """Refuse a head that is not there."""
    if n == 1 and head != 0:
        raise ValueError(f"{where} has one head, number 0, got --head {head}; leave --head out")
    if not 0 <= head < n:
        raise ValueError(f"--head must be between 0 and {n - 1}, the heads of {where}, got {head}")


def layers_of(run: TranslateRun, one: Translation) -> list[Layer]:
    """Every attention of a Transformer while it reads and writes; a recurrent model has the one it showed."""
    assert one.weights is not None  # noqa: S101  whoever shows has asked to look
    model = run.model
    if not isinstance(model, Translator):
        return [Layer("attention", CROSS, one.weights, one.written, one.read, "attention")]
    tokens, device = run.tokens, next(model.parameters()).device
    source = torch.tensor([tokens.read(one.source)], device=device)
    steps = [*one.written, "<eos>"] if one.ended else one.written
    begun = ["<bos>", *one.written][: len(steps)]
    ids = [BOS, *(tokens.target.inner.token_to_id(word) for word in begun[1:])]
    with torch.no_grad(), watch(model, keep=True) as seen:
        model(source, torch.tensor([ids], device=device))
    found = []
    for name in seen.names():
        sight = seen.calls(name)[0]
        weights = sight.rows(list(range(sight.t)))[0].cpu()  # (H, T, S)
        if name.startswith("encoder"):
            found.append(Layer(name, SELF, weights, one.read, one.read, name))
        elif name.endswith("multihead_attn"):  # step t has read word t - 1 and writes word t
            found.append(Layer(name, CROSS, weights, steps, one.read, name))
        else:
            found.append(Layer(name, CAUSAL, weights, begun, begun, name))
    return found


def whole(run: TranslateRun, one: Translation) -> Layer:
    """What each written word looked at, the mean of all heads of all layers."""
    assert one.weights is not None  # noqa: S101  whoever shows has asked to look
    heads, layers = one.weights.size(0), 1 if run.is_recurrent else run.model.config.n_layers
    said = "" if heads == 1 else f"the mean of {heads} heads, {heads // layers} of each layer"
    return Layer("", CROSS, one.weights.mean(0, keepdim=True), one.written, one.read, said)


def asked_for(run: TranslateRun, layers: list[Layer], pattern: str | None, head: int | None) -> list[Layer]:
    """Those that a pattern means, one head of each if a head is named.

    A number alone means the decoder's look at the source in that layer. Without a pattern heads are counted
    through the layers of the decoder.

    Raises:
        ValueError: If nothing fits.
    """
    across = [layer for layer in layers if layer.kind == CROSS]
    if pattern is None:
        if head is None:
            return layers
        n = across[0].weights.size(0)
        check_head(head, n * len(across), "all layers" if len(across) > 1 else "this model")
        return [across[head // n].only(head % n)]
    if pattern.isdecimal():
        found = across[int(pattern) :][:1]
    else:
        found = [layer for layer in layers if matches(layer.name, pattern)]
    if not found:
        if run.is_recurrent:
            raise ValueError(
                f"a recurrent translator has one attention, layer 0, got --layer {pattern!r}; leave it out"
            )
        names = ", ".join(layer.name for layer in layers)
        raise ValueError(f"no layer of {str(run.folder)!r} matches {pattern!r}; it has {names}")
    return found if head is None else [layer.only(head) for layer in found]
