"""Weights of a Vision Transformer trained elsewhere: timm's and Hugging Face's, by a map of their names.

    model = read_vit("google-vit-base")                        # a Hugging Face folder
    model = read_vit("vit_base.safetensors", n_heads=12)       # timm's, which don't say how many heads

Their class token has a position of its own; ours has none, so the two are added once, here. Pixels are
normalised to -1..1 as most of those models were trained with; a model that was trained with ImageNet's means
needs its own normalisation in front.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from sightline.models.vit import VisionTransformer, VisionTransformerConfig
from sightline.models.weights_file import read_weights
from sightline.untrusted import read_json

__all__ = ["config_from", "read_vit", "weights_from"]

# A pattern of their names on the left, ours on the right; {i} is the layer.
_TIMM = {
    r"cls_token": "token",
    r"pos_embed": "positions",
    r"patch_embed\.proj\.(weight|bias)": r"stem.\1",
    r"blocks\.(\d+)\.attn\.qkv\.(weight|bias)": r"layers.\1.self_attn.in_proj_\2",
    r"blocks\.(\d+)\.attn\.proj\.(weight|bias)": r"layers.\1.self_attn.out_proj.\2",
    r"blocks\.(\d+)\.mlp\.fc([12])\.(weight|bias)": r"layers.\1.linear\2.\3",
    r"blocks\.(\d+)\.norm([12])\.(weight|bias)": r"layers.\1.norm\2.\3",
    r"norm\.(weight|bias)": r"norm.\1",
    r"head\.(weight|bias)": r"head.\1",
}
_LAYER = r"(?:vit\.)?(?:encoder\.)?layers?\.(\d+)\."
_HUGGING_FACE = {
    r"(?:vit\.)?embeddings\.cls_token": "token",
    r"(?:vit\.)?embeddings\.position_embeddings": "positions",
    r"(?:vit\.)?embeddings\.patch_embeddings\.projection\.(weight|bias)": r"stem.\1",
    _LAYER + r"attention\.q_proj\.(weight|bias)": r"layers.\1.q.\2",
    _LAYER + r"attention\.k_proj\.(weight|bias)": r"layers.\1.k.\2",
    _LAYER + r"attention\.v_proj\.(weight|bias)": r"layers.\1.v.\2",
    _LAYER + r"attention\.o_proj\.(weight|bias)": r"layers.\1.self_attn.out_proj.\2",
    _LAYER + r"attention\.attention\.query\.(weight|bias)": r"layers.\1.q.\2",  # before transformers 5
    _LAYER + r"attention\.attention\.key\.(weight|bias)": r"layers.\1.k.\2",
    _LAYER + r"attention\.attention\.value\.(weight|bias)": r"layers.\1.v.\2",
    _LAYER + r"attention\.output\.dense\.(weight|bias)": r"layers.\1.self_attn.out_proj.\2",
    _LAYER + r"intermediate\.dense\.(weight|bias)": r"layers.\1.linear1.\2",
    _LAYER + r"output\.dense\.(weight|bias)": r"layers.\1.linear2.\2",
    _LAYER + r"mlp\.fc([12])\.(weight|bias)": r"layers.\1.linear\2.\3",
    _LAYER + r"layernorm_before\.(weight|bias)": r"layers.\1.norm1.\2",
    _LAYER + r"layernorm_after\.(weight|bias)": r"layers.\1.norm2.\2",
    r"(?:vit\.)?layernorm\.(weight|bias)": r"norm.\1",
    r"classifier\.(weight|bias)": r"head.\1",
    r"(?:vit\.)?pooler\..*": "",  # not used to classify
}


def weights_from(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under our names, whichever of the two libraries they came from.

    Raises:
        ValueError: If a name has no place in our model, or one that it needs is missing.
    """
    names = _TIMM if any(name.startswith("blocks.") for name in theirs) else _HUGGING_FACE
    ours: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        place = _renamed(name, names)
        if place is None:
            source = "timm" if names is _TIMM else "Hugging Face"
            raise ValueError(
                f"the {source} weight {name!r} {tuple(tensor.shape)} has no place in a plain Vision "
                "Transformer; layer scale, registers, distillation or another pooling can't be loaded"
            )
        if place:
            ours[place] = tensor
    return _with_grid_positions(_with_joined_heads(ours))


def config_from(
    weights: Mapping[str, Tensor], *, n_heads: int, norm_eps: float = 1e-6
) -> VisionTransformerConfig:
    """The settings that weights under our names tell by their shapes."""
    stem, grid = weights["stem.weight"], weights["positions"]
    if n_heads < 1 or stem.size(0) % n_heads:
        raise ValueError(f"n_heads must divide d_model, got n_heads={n_heads} for d_model={stem.size(0)}")
    return VisionTransformerConfig(
        n_classes=weights["head.weight"].size(0) if "head.weight" in weights else 1,
        channels=stem.size(1),
        patch=stem.size(2),
        image_size=grid.size(0) * stem.size(2),
        d_model=stem.size(0),
        n_heads=n_heads,
        n_layers=1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers.")),
        d_ff=weights["layers.0.linear1.weight"].size(0),
        pool="token" if "token" in weights else "mean",
        norm_eps=norm_eps,
    )


def read_vit(path: Path | str, *, n_heads: int | None = None) -> VisionTransformer:
    """A model with the weights of a Hugging Face folder, or of a file of timm's; in eval.

    Args:
        path: A folder with config.json and model.safetensors, a ``.safetensors``, or a file of
            ``torch.save`` that holds nothing but tensors.
        n_heads: Needed where there is no config.json to tell.

    Raises:
        ValueError: If it is not a plain Vision Transformer, or the number of heads is not known.
    """
    path = Path(path)
    norm_eps = 1e-6
    if path.is_dir():
        config = read_json(path / "config.json")
        if config.get("model_type") != "vit" or config.get("hidden_act", "gelu") != "gelu":
            raise ValueError(
                f"only a ViT with gelu can be read, {str(path)!r} is {config.get('model_type')!r} with "
                f"{config.get('hidden_act')!r}"
            )
        sides = config.get("image_size")
        if isinstance(sides, list) and len(set(sides)) > 1:
            size = " x ".join(map(str, sides))
            raise ValueError(f"only a ViT trained on squares can be read, {str(path)!r} is of {size} pixels")
        n_heads = n_heads or int(config["num_attention_heads"])
        norm_eps = float(config.get("layer_norm_eps", 1e-12))
        path = path / "model.safetensors"
    if n_heads is None:
        raise ValueError(f"{str(path)!r} does not say how many heads it has; give n_heads=, 12 for ViT-B")
    theirs = (
        read_weights(path)
        if path.suffix == ".safetensors"
        else torch.load(path, map_location="cpu", weights_only=True)
    )
    if not all(isinstance(tensor, Tensor) for tensor in theirs.values()):
        listed = ", ".join(map(repr, list(theirs)[:3]))
        raise ValueError(
            f"weights are tensors by name, {str(path)!r} holds {listed}; save the state_dict alone"
        )
    weights = weights_from(theirs)
    model = VisionTransformer(config_from(weights, n_heads=n_heads, norm_eps=norm_eps))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {"head.weight", "head.bias"}:
        raise ValueError(f"the weights in {str(path)!r} lack {', '.join(missing)}; is the file whole?")
    return model.eval()


def _renamed(name: str, names: Mapping[str, str]) -> str | None:
    for pattern, ours in names.items():
        found = re.fullmatch(pattern, name)
        if found:
            return found.expand(ours)
    return None


def _with_joined_heads(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values of a layer in one matrix, where they came apart."""
    joined = {name: x for name, x in weights.items() if not re.search(r"\.[qkv]\.(weight|bias)$", name)}
    for name in [x for x in weights if ".q." in x]:
        parts = [weights.get(name.replace(".q.", f".{part}.")) for part in "qkv"]
        if any(part is None for part in parts):
            raise ValueError(f"queries, keys and values come together, {name!r} lacks its keys or values")
        layer, kind = name.split(".q.")
        joined[f"{layer}.self_attn.in_proj_{kind}"] = torch.cat([x for x in parts if x is not None])
    return joined


def _with_grid_positions(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Positions as a grid; that of the class token is added to it."""
    for name in ("stem.weight", "positions", "layers.0.linear1.weight"):
        if name not in weights:
            raise ValueError(
                f"a Vision Transformer has {name!r}, these weights don't; are they another model's?"
            )
    table, token = weights["positions"].squeeze(0), weights.get("token")
    if token is not None:
        token = token.flatten()
        if math.isqrt(len(table)) ** 2 != len(table):  # one row more than a square: the class token's
            token, table = token + table[0], table[1:]
        weights["token"] = token
    side = math.isqrt(len(table))
    if side * side != len(table):
        raise ValueError(f"positions must make a square grid of patches, got {len(table)} of them")
    weights["positions"] = table.reshape(side, side, -1)
    return weights
