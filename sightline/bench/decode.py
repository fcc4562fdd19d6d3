"""``bench decode``: beam search beside Hugging Face's ``generate``, and beside a loop without a cache.

All describe the same pictures in the same number of tokens, with models of the same shape and random
weights: nobody may stop early, so that all take the same number of steps. The encoder is a cut into
patches and nothing more, so that it is the decoding that is timed. On a GPU all run in bfloat16, and our
search is recorded once and replayed (``sightline.decode.replay``), as it would be for a test set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.train import StepCase, with_torch_layers
from sightline.data.tokens import BOS, EOS, PAD
from sightline.decode.hypotheses import Hypotheses
from sightline.decode.replay import GraphReplay
from sightline.decode.search import beam
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.shapes import Float, Int

__all__ = ["cases"]

_WIDTH, _STEPS = 5, 20
HUGGING_FACE, NO_CACHE = "hugging face", "no cache"
_BARS = {HUGGING_FACE: 2.0, NO_CACHE: 5.0}


def precision(device: torch.device) -> torch.dtype:
    """What all contestants run in: what their users would choose there."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def precision_note(dtype: torch.dtype, device: torch.device) -> str:
    """The note that says so, and what only ours does.

    Example:
        >>> precision_note(torch.bfloat16, torch.device("cuda"))
        'all in bfloat16, ours replayed as one CUDA graph'
    """
    replayed = ", ours replayed as one CUDA graph" if device.type == "cuda" else ""
    return f"all in {str(dtype).removeprefix('torch.')}{replayed}"


def cases(
    device: torch.device, *, quick: bool, config: CaptionerConfig | None = None, steps: int = _STEPS
) -> list[Case]:
    """A captioner of the default settings: 14 x 14 patches, d_model 512, three layers, 10,000 words."""
    n = 8 if quick else 64
    model = CaptionerConfig() if config is None else config
    return [
        StepCase(
            timed=TimedCase(
                name=f"{device} decode caption {n} images beam {_WIDTH} beside {peer}",
                device=device,
                bar=least,
                setup=partial(_compare, model, n, steps, peer, device),
            ),
            examples=(n, "captions"),
        )
        for peer, least in _BARS.items()
    ]


def _compare(config: CaptionerConfig, n: int, steps: int, peer: str, device: torch.device) -> Comparison:
    torch.manual_seed(0)
    dtype = precision(device)
    model = Captioner(config).to(device, dtype).eval()
    images = torch.randn(n, 3, config.image_size, config.image_size, device=device, dtype=dtype)
    search = GraphReplay(partial(_search, model, steps=steps))
    ours = Contestant(name=OURS, run=partial(_scores, search, images))
    how = precision_note(dtype, device)
    notes = (f"{steps} tokens written for each of {n} pictures by each, random weights, {how}",)
    if peer == NO_CACHE:
        torch.manual_seed(0)
        plain = with_torch_layers(Captioner(config)).to(device, dtype).eval()
        loop = partial(_search, _CaptionerWithoutCache(plain), steps=steps)
        return Comparison(
            contestants=(ours, Contestant(name=peer, run=partial(_scores, loop, images))), notes=notes
        )
    try:
        rival = Contestant(name=peer, run=_generate(config, images, steps))
    except ImportError:
        return Comparison(contestants=(ours,), notes=(*notes, "transformers is not installed: no peer"))
    return Comparison(contestants=(ours, rival), notes=notes)


def _search(model: Any, images: Tensor, *, steps: int) -> Hypotheses:
    return beam(
        model,
        model.start(images),
        width=_WIDTH,
        max_length=steps,
        forbidden=(PAD, BOS, EOS),  # so that nobody stops early
    )


def _scores(search: Callable[[Tensor], Hypotheses], images: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        return [search(images).scores]


def _generate(config: CaptionerConfig, images: Tensor, steps: int) -> Callable[[], Sequence[Tensor]]:
    """Hugging Face's captioner of the same shape, a ViT's patches and GPT-2's layers, and its own search."""
    from transformers import (  # noqa: PLC0415  a peer, not a need
        GenerationConfig,
        GPT2Config,
        VisionEncoderDecoderConfig,
        VisionEncoderDecoderModel,
        ViTConfig,
    )

    encoder = ViTConfig(
        hidden_size=config.d_model,
        num_hidden_layers=config.n_encoder_layers,
        num_attention_heads=config.n_heads,
        intermediate_size=config.d_ff,
        image_size=config.image_size,
        patch_size=config.patch,
    )
    decoder = GPT2Config(
        vocab_size=config.vocab_size,
        n_positions=steps + 1,
        n_embd=config.d_model,
        n_layer=config.n_layers,
        n_head=config.n_heads,
        n_inner=config.d_ff,
        add_cross_attention=True,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    shape = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    theirs: Any = VisionEncoderDecoderModel(config=shape)
    theirs = theirs.to(images.device, images.dtype).eval()
    generation: Any = GenerationConfig(
        num_beams=_WIDTH,
        min_new_tokens=steps,
        max_new_tokens=steps,
        do_sample=False,
        decoder_start_token_id=BOS,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )

    def run() -> list[Tensor]:
        with torch.inference_mode():
            return [theirs.generate(images, generation_config=generation)]

    return run


@dataclass(frozen=True, eq=False)
class Prefix:
    """A state that keeps the memory and the tokens of every row, and nothing that was computed."""

    memory: Float[Tensor, "N S E"]
    ids: Int[Tensor, "N T"]
    attention_weights: None = None

    def __len__(self) -> int:
        """How many rows there are."""
        return self.memory.size(0)

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.memory.device

    def select(self, rows: Int[Tensor, " M"]) -> "Prefix":
        """The state of these rows."""
        return Prefix(self.memory[rows], self.ids[rows])


class _CaptionerWithoutCache:
    """The usual loop on ``torch.nn.TransformerDecoder``: at every step all of it over the whole prefix."""

    def __init__(self, model: nn.Module) -> None:
        self._model: Any = model

    def start(self, images: Tensor) -> Prefix:
        """The pictures, encoded once."""
        memory = self._model.encode(images)
        return Prefix(memory, torch.empty(memory.size(0), 0, dtype=torch.long, device=memory.device))

    def step(self, state: Prefix, ids: Int[Tensor, " N"]) -> tuple[Float[Tensor, "N V"], Prefix]:
        """The log-probabilities after the whole prefix; only its last position is read out."""
        read = torch.cat([state.ids, ids[:, None]], 1)
        words = self._model.decoder
        x = words.positions(words.words(read) * words.words.embedding_dim**0.5)
        mask = nn.Transformer.generate_square_subsequent_mask(read.size(1), x.device, x.dtype)
        x = words.layers(x, state.memory, tgt_mask=mask, tgt_is_causal=True)[:, -1]
        logits = nn.functional.linear(x, words.words.weight, words.bias)
        return logits.float().log_softmax(-1), Prefix(state.memory, read)
