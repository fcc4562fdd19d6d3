"""A step of the training loop with our layers, beside the same model on ``torch.nn``'s.

All contestants are one model with the same weights, trained by the same loop on the same batch. Only the
classes of the layers differ; a Vision Transformer runs beside timm's of the same size as well. Dropout is
random, so there is no float64 check.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import OURS, Case, Contest, draw
from sightline import layers
from sightline.data.tokens import BOS, EOS
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.models.translator import Translator, TranslatorConfig
from sightline.models.vit import SIZES, VisionTransformer, VisionTransformerConfig
from sightline.models.vit_parts import PatchStem
from sightline.tasks.caption.loss import caption_loss
from sightline.tasks.translate.objective import PairBatch, translation_loss
from sightline.train.config import TrainConfig
from sightline.train.objective import Loss, Objective
from sightline.train.stepping import Stepper, accelerator_for


def cases(device: torch.device, quick: bool) -> list[Case]:
    """List the cases. On a GPU in two sizes: launching the kernels takes the time of a small step."""
    gpu = device.type == "cuda"
    most = 0.91 if gpu else 1.0
    found = []
    grids = CaptionerConfig(
        vocab_size=6000 if gpu else 1000,
        encoder="efficientnet_lite0",
        d_model=512 if gpu else 256,
        n_heads=8 if gpu else 4,
        d_ff=2048 if gpu else 1024,
        dropout=0.3 if gpu else 0.1,
        max_length=20,
    )
    patches = dataclasses.replace(
        grids, encoder="patches", image_size=64, patch=8, stem=2, n_encoder_layers=2
    )
    for name, config in {"grids": grids, "patches": patches}.items():
        for n in (64, 256) if gpu else (8,):
            if not quick or (name == "grids" and n <= 64):
                setup = partial(captioners, device, config, n)
                words = f"train caption {name} {n} images x 5"
                found.append(Case(name=words, most=most, setup=setup, examples=(n, "images")))
    for width, heads, depth, n in ((256, 4, 3, 256), (512, 8, 6, 256), (512, 8, 6, 1024)):
        if width == 256 or (gpu and not quick):
            n_pairs = n if gpu else 32
            setup = partial(translators, device, translator_of(width, heads, depth), n_pairs)
            name = f"train translate {width} wide {n_pairs} pairs"
            found.append(Case(name=name, most=most, setup=setup, examples=(n_pairs, "pairs")))
    photos = VisionTransformerConfig(n_classes=1000, image_size=224, patch=16)
    small = VisionTransformerConfig(n_classes=10, image_size=64, patch=8)
    sizes = (
        {"small": (photos, 256), "base": (photos, 128)} if gpu else {"mini": (small, 32), "tiny": (small, 16)}
    )
    for name, (config, n) in list(sizes.items())[: 1 if quick else None]:
        sized = dataclasses.replace(config, **SIZES[name]._asdict())
        words = f"train classify {name} {n} images of {config.image_size} px"
        setup = partial(classifiers, device, sized, n)
        found.append(Case(name=words, most=1.0, setup=setup, examples=(n, "images")))
    return found


class _LossAlone(Objective):
    """A task that is asked for the loss of a batch, and for nothing else."""

    kind = "bench"

    def __init__(self, loss: Any) -> None:
        self.of = loss

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        return self.of(model, batch)

    def plan(self, epoch: int) -> list[list[int]]:
        raise NotImplementedError

    def load(self, indices: Sequence[int], epoch: int) -> Any:
        raise NotImplementedError

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        raise NotImplementedError


def _race(device: torch.device, models: dict[str, nn.Module], loss: Any, batch: Any, n: int) -> Contest:
    """A step of the loop for each model, always with the same batch; in bfloat16 on a GPU."""
    precision = "bf16" if device.type == "cuda" else "no"
    config = TrainConfig(device=device.type, precision=precision, ema=0.999, label_smoothing=0.1)

    def stepper(model: nn.Module) -> Any:
        trained = model.to(device).train()
        return Stepper(trained, _LossAlone(loss), config, accelerator_for(config), name="bench")

    def step(one: Any) -> list[Tensor]:
        return [one.step([(batch, True)], n_examples=n, step=0, lr=1e-6)["loss"]]

    runs = {name: partial(step, stepper(model)) for name, model in models.items()}
    return Contest(runs=runs, grad=True)


def _twice(build: Any) -> tuple[Any, Any]:
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        found.append(build())
    return found[0], with_torch_layers(found[1])


def captioners(device: torch.device, config: CaptionerConfig, n: int) -> Contest:
    """Return a captioner beside itself on torch's layers; five captions for each picture."""
    ours, theirs = _twice(partial(Captioner, config))
    theirs.decoder.layers.register_forward_pre_hook(_repeat_memory)
    side = config.image_size // 32
    shape = (3, config.image_size, config.image_size) if config.encoder == "patches" else (side * side, 1280)
    images = draw(0, n, *shape, device=device)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(9, 16, (n, 5), generator=generator)
    ids = torch.randint(4, config.vocab_size, (n, 5, 16), generator=generator)
    ids = ids.masked_fill(torch.arange(16) >= lengths[..., None], 0).to(device)

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        return caption_loss(model, *batch, smoothing=0.1)

    return _race(device, {OURS: ours, "torch.nn": theirs}, loss, (images, ids), n)


def _repeat_memory(_: nn.Module, args: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Torch's layers want a memory for every row."""
    x, memory = args
    return x, memory.repeat_interleave(x.size(0) // memory.size(0), 0)


def translator_of(width: int, heads: int, depth: int) -> TranslatorConfig:
    """Return the config of a Transformer for 8,000 words."""
    return TranslatorConfig(
        source_vocab_size=8000, vocab_size=8000, shared=True, d_model=width, n_heads=heads, n_layers=depth,
        d_ff=4 * width, dropout=0.3,
    )  # fmt: skip


def translators(device: torch.device, config: TranslatorConfig, n: int, longest: int = 28) -> Contest:
    """Return a translator beside itself on torch's layers, on sentences of much the same length."""
    ours, theirs = _twice(partial(Translator, config))
    generator = torch.Generator().manual_seed(0)

    def side(*, begun: bool) -> Tensor:
        lengths = torch.randint(longest - 6, longest, (n, 1), generator=generator)
        ids = torch.randint(4, config.vocab_size, (n, longest), generator=generator)
        place = torch.arange(longest)
        ids = ids.masked_fill(place > lengths, 0).masked_fill(place == lengths, EOS)
        return (torch.cat([torch.full((n, 1), BOS), ids], 1) if begun else ids).to(device)

    batch = PairBatch(side(begun=False), side(begun=True))
    loss = partial(translation_loss, smoothing=0.1)
    return _race(device, {OURS: ours, "torch.nn": theirs}, loss, batch, n)


def classifiers(device: torch.device, config: VisionTransformerConfig, n: int) -> Contest:
    """Return a Vision Transformer beside itself on torch's layers, and timm's if it is installed."""
    images = draw(0, n, config.channels, config.image_size, config.image_size, device=device)
    labels = torch.randint(config.n_classes, (n,), generator=torch.Generator().manual_seed(0)).to(device)
    ours, theirs = _twice(partial(VisionTransformer, config))
    theirs.stem = _StridedPatches(theirs.stem)
    models = {OURS: ours, "torch.nn": theirs}
    try:
        from timm.models.vision_transformer import VisionTransformer as OfTimm
    except ImportError:
        pass
    else:
        models["timm"] = OfTimm(
            img_size=config.image_size,
            patch_size=config.patch,
            in_chans=config.channels,
            num_classes=config.n_classes,
            embed_dim=config.d_model,
            depth=config.n_layers,
            num_heads=config.n_heads,
            mlp_ratio=config.d_ff / config.d_model,
        )

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        logits = model(batch[0]).float()
        total = F.cross_entropy(logits, batch[1], label_smoothing=0.1, reduction="sum")
        return Loss(total, torch.full((), float(n), device=device))

    return _race(device, models, loss, (images, labels), n)


class _StridedPatches(nn.Module):
    """Patches by a convolution, the usual way."""

    def __init__(self, stem: PatchStem) -> None:
        super().__init__()
        self.weight, self.bias, self.patch = stem.weight, stem.bias, stem.patch

    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.weight, self.bias, stride=self.patch).permute(0, 2, 3, 1)


def with_torch_layers(model: nn.Module) -> nn.Module:
    """Replace our Transformer layers and stacks in a model by torch's, with the same weights."""
    for name, child in model.named_children():
        setattr(model, name, _torch_twin(with_torch_layers(child)))
    return model


def _torch_twin(ours: Any) -> nn.Module:
    twin: nn.Module
    if isinstance(ours, layers.TransformerDecoder):
        twin = nn.TransformerDecoder(ours.layers[0], len(ours.layers), ours.norm)
    elif isinstance(ours, layers.TransformerEncoder):
        twin = nn.TransformerEncoder(ours.layers[0], len(ours.layers), ours.norm, enable_nested_tensor=False)
    elif isinstance(ours, layers.TransformerEncoderLayer | layers.TransformerDecoderLayer):
        encodes = isinstance(ours, layers.TransformerEncoderLayer)
        twin = (nn.TransformerEncoderLayer if encodes else nn.TransformerDecoderLayer)(
            ours.linear1.in_features,
            ours.self_attn.num_heads,
            ours.linear1.out_features,
            ours.dropout.p,
            ours.activation,
            ours.norm1.eps,
            True,
            ours.norm_first,
        )
    else:
        return ours
    twin.load_state_dict(ours.state_dict())
    return twin
