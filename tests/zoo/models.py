"""Every model that is watched, as data: ``ZOO`` has the entries by name, ``FAST`` one of each mechanism."""

import functools
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
from torch import nn

import sightline as sl
from tests.zoo.families import FAMILIES, NO_TEXT, SHARPNESS, TEXT, B, E, H, T, inputs_of
from tests.zoo.toys import REAL, TOYS
from tests.zoo.truth import set_attention

CUT = "cut into blocks"
NOT_BY_SOFTMAX = "no softmax over products of queries and keys"
# Of which not all attentions can be seen, and words of the reason.
UNSEEN = {
    "Longformer": CUT,
    "Big Bird, sparse": CUT,
    "LED": CUT,
    "Reformer": NOT_BY_SOFTMAX,
    "RWKV": NOT_BY_SOFTMAX,
    "Deformable DETR": NOT_BY_SOFTMAX,
}
SEEN_IN_PART = {"LED", "Deformable DETR"}  # of them
# Run without gradients: one takes those of whole chunks alone, the other rescales its weights in place.
UNTRAINED = {"Reformer", "RWKV"}
NEEDS = {"Gemma 3n, text": "torchvision"}
# Models that write: with a head for words, called with ``generate``.
WRITERS = {
    "GPT-2": ("GPT2LMHeadModel", {}),
    "Llama": ("LlamaForCausalLM", {}),
    "Mistral": ("MistralForCausalLM", {}),
    "Gemma 3": ("Gemma3ForCausalLM", {}),
    "T5": ("T5ForConditionalGeneration", {"decoder_start_token_id": 0}),
    "BART": ("BartForConditionalGeneration", {"decoder_start_token_id": 1, "forced_eos_token_id": None}),
}


@dataclass(frozen=True, eq=False)
class Entry:
    """A model of the zoo.

    Attributes:
        name: Which model.
        attention: Which implementation of attention it is asked for.
        build: Makes the model and what it is called with, from the random numbers of torch.
        kind: What it is called with, of Hugging Face's; "" for others.
        sharpness: What its weights are multiplied by: random models look everywhere alike.
        unseen: Words of the reason why some of its attentions can't be seen; "" where all are.
        weights: Its own oracle, a function of model and inputs, where there is one.
        real: Which tokens are not padding (B, T), where it packs its sequences.
        writes: Whether it has ``generate``.
        trains: Whether inputs such as these train it, in eval mode too.
        compiles: Whether torch.compile is in it.
        needs: The package that it needs in addition to transformers.
    """

    name: str
    attention: str
    build: Callable[[], tuple[nn.Module, dict[str, Any]]] = field(repr=False)
    kind: str = ""
    sharpness: float = 1.0
    unseen: str = ""
    weights: Callable[..., Any] | None = None
    real: torch.Tensor | None = None
    writes: bool = False
    trains: bool = True
    compiles: bool = False
    needs: str = ""

    def __str__(self):
        return f"{self.name}, {self.attention}"

    def make(self):
        """The model in eval mode, and its inputs: the same ones each time."""
        np.random.seed(0)  # noqa: NPY002 (what transformers draws from)
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, inputs = self.build()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.data.mul_(self.sharpness)
        set_attention(model, self.attention)
        return model.eval(), inputs

    @property
    def is_hugging_face(self):
        return bool(self.kind)


def hugging_face():
    """Two entries for each architecture: its fused kernels, if it has such, and eager attention."""
    for name, model, config, settings, kind in FAMILIES:
        is_composed = "text_config" in settings or "encoder" in settings
        settings = ({} if kind in NO_TEXT or is_composed else TEXT) | settings  # noqa: PLW2901
        known = {
            "kind": kind,
            "sharpness": SHARPNESS.get(name, 3.0),
            "unseen": UNSEEN.get(name, ""),
            "trains": name not in UNTRAINED,
            "needs": NEEDS.get(name, ""),
        }
        for attention in ("sdpa", "eager"):
            if attention == "eager" or name not in EAGER_ALONE:
                yield Entry(
                    name, attention, functools.partial(_built, model, config, settings, kind), **known
                )
        if name in WRITERS:
            model, own = WRITERS[name]  # noqa: PLW2901
            build = functools.partial(_built, model, config, settings | own, kind)
            yield Entry(f"{name}, writing", "sdpa", build, writes=True, **known)


def _built(model, config, settings, kind):
    import transformers

    made = getattr(transformers, model)(getattr(transformers, config)(**settings))
    return made, inputs_of(kind)


# Architectures that Hugging Face has no fused attention for.
EAGER_ALONE = {
    "Big Bird, sparse", "BLOOM", "CodeGen", "ConvBERT", "DeBERTa", "DeBERTa-v2", "Flaubert", "FSMT",
    "Funnel", "gpt-oss", "GPT-J", "GPT-Neo", "Hiera", "LED", "Longformer", "MPNet", "MPT", "Nystromformer",
    "Perceiver", "ProphetNet", "Reformer", "RemBERT", "RoFormer", "RWKV", "SqueezeBERT",
    "Switch Transformers", "Time series", "ViLT", "WavLM", "XLM", "XLNet",
}  # fmt: skip


def layers():
    """Torch's own layers and ours, with their weights asked for and without."""
    for library, package in (("torch.nn", nn), ("sl.nn", sl.nn)):
        for attention, need_weights in (("fused", False), ("need_weights", True)):
            build = functools.partial(_multihead, package, need_weights=need_weights)
            yield Entry(f"{library} MultiheadAttention", attention, build)
        for nested in (False, True):
            attention = "nested tensors" if nested else "fused"
            build = functools.partial(_encoder, package, nested=nested)
            yield Entry(f"{library} TransformerEncoder", attention, build, real=REAL if nested else None)
        yield Entry(f"{library} Transformer", "fused", functools.partial(_transformer, package))


def _multihead(package, *, need_weights):
    x = torch.randn(B, T, E)
    called = {"query": x, "key": x, "value": x, "need_weights": need_weights}
    return package.MultiheadAttention(E, H, batch_first=True), called


def _encoder(package, *, nested):
    layer = package.TransformerEncoderLayer(E, H, 20, batch_first=True)
    padding = {"src_key_padding_mask": ~REAL} if nested else {}
    model = package.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
    return model, {"src": torch.randn(B, T, E)} | padding


def _transformer(package):
    model = package.Transformer(E, H, 2, 2, 20, batch_first=True)
    return model, {"src": torch.randn(B, T, E), "tgt": torch.randn(B, 7, E)}


def toys():
    """Every way to attend by itself."""
    for name, toy in TOYS.items():
        real = REAL if toy.is_packed else None
        known = {"unseen": toy.unseen, "real": real, "compiles": bool(toy.compiles)}
        weights = None if toy.unseen else toy.weights
        yield Entry(name, "toy", toy.make, sharpness=3.0, weights=weights, **known)


ZOO = {str(entry): entry for entry in (*layers(), *toys(), *hugging_face())}
# One entry of each mechanism; the others run in `make test-long`.
FAST = {
    "a fused kernel, padding": "BERT, sdpa",
    "causal, grouped heads, a cache, writing": "Llama, writing, sdpa",
    "by hand": "GPT-2, eager",
    "an encoder and a decoder": "T5, writing, sdpa",
    "an image": "ViT, sdpa",
    "text and an image": "LLaVA, sdpa",
    "sinks, a window": "gpt-oss, eager",
    "sparse, which is named": "Longformer, eager",
    "without a softmax, which is named": "linear attention, toy",
    "flash-attn": "flash-attn, toy",
    "packed sequences": "flash-attn, packed, toy",
    "FlexAttention": "FlexAttention, toy",
    "FlexAttention that is compiled": "FlexAttention, compiled, toy",
    "torch's layer, its fast path": "torch.nn TransformerEncoder, fused",
    "torch's layer, its weights": "torch.nn MultiheadAttention, need_weights",
    "ours, an additive score": "sl.attention, additive, toy",
}
