"""Beam search beside Hugging Face's ``generate``, and beside a loop that computes its whole prefix anew.

Models of the same shape and random weights write the same number of tokens, and nobody may stop early. On a
GPU all run in bfloat16, and our search is recorded once and replayed, as it would be for a test set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness import OURS, Case, Contest
from benchmarks.train import with_torch_layers
from sightline.data.tokens import BOS, EOS, PAD
from sightline.decode.replay import GraphReplay
from sightline.decode.search import beam
from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.models.translator import Translator, TranslatorConfig

_WIDTH = 5
CAPTIONER = CaptionerConfig()  # 14 x 14 patches, d_model 512, three layers, 10,000 words
TRANSLATOR = TranslatorConfig(
    source_vocab_size=8000,
    vocab_size=8000,
    shared=True,
    d_model=256,
    n_heads=4,
    n_layers=3,
    d_ff=1024,
    norm="post",
)  # fmt: skip - post, as Marian's


def cases(
    device: torch.device,
    quick: bool,
    captioner: CaptionerConfig = CAPTIONER,
    translator: TranslatorConfig = TRANSLATOR,
) -> list[Case]:
    """List the cases: each peer by itself, for each has a most of its own."""
    found = []
    for peer, most in {"hugging face": 0.5, "no cache": 0.2}.items():
        for kind, config, steps, n, what in (
            ("caption", captioner, 20, 8 if quick else 64, "images"),
            ("translate", translator, 16, 10 if quick else 100, "sentences"),
        ):
            name = f"decode {kind} {n} {what} beam {_WIDTH} beside {peer}"
            setup = partial(compare, device, kind, config, steps, n, peer)
            found.append(Case(name=name, most=most, setup=setup, examples=(n, what)))
    return found


def compare(device: torch.device, kind: str, config: Any, steps: int, n: int, peer: str) -> Contest:
    """Return our search beside one peer."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    build: Any = Captioner if kind == "caption" else Translator

    def model() -> Any:
        torch.manual_seed(0)
        return build(config).to(device, dtype).eval()

    if kind == "caption":
        inputs = torch.randn(n, 3, config.image_size, config.image_size, device=device, dtype=dtype)
    else:
        inputs = torch.randint(4, config.vocab_size, (n, 16), device=device)
    search = partial(_search, steps=steps)
    runs = {OURS: partial(_scores, GraphReplay(partial(search, model())), inputs)}
    if peer == "no cache":
        without = (_CaptionerWithoutCache if kind == "caption" else _TranslatorWithoutCache)(
            with_torch_layers(model()).to(device, dtype).eval()
        )
        runs[peer] = partial(_scores, partial(search, without), inputs)
    else:
        theirs = (_vit_and_gpt2 if kind == "caption" else _marian)(config, steps).to(device, dtype).eval()
        runs[peer] = partial(_generate, theirs, inputs, steps)
    return Contest(runs=runs, notes=(f"{steps} tokens written for each, random weights",))


def _search(model: Any, inputs: Tensor, *, steps: int) -> Any:
    forbidden = (PAD, BOS, EOS)  # so that nobody stops early
    return beam(model, model.start(inputs), width=_WIDTH, max_length=steps, forbidden=forbidden)


def _scores(search: Callable[[Tensor], Any], inputs: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        return [search(inputs).scores]


def _generate(model: Any, inputs: Tensor, steps: int) -> list[Tensor]:
    """Their own search, as their users call it."""
    more = {} if inputs.is_floating_point() else {"attention_mask": torch.ones_like(inputs)}
    with torch.inference_mode():
        return [
            model.generate(
                inputs, num_beams=_WIDTH, min_new_tokens=steps, max_new_tokens=steps, do_sample=False, **more
            )
        ]


def _vit_and_gpt2(config: CaptionerConfig, steps: int) -> Any:
    import transformers

    encoder = transformers.ViTConfig(
        hidden_size=config.d_model,
        num_hidden_layers=config.n_encoder_layers,
        num_attention_heads=config.n_heads,
        intermediate_size=config.d_ff,
        image_size=config.image_size,
        patch_size=config.patch,
    )
    decoder = transformers.GPT2Config(
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
    shape = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = transformers.VisionEncoderDecoderModel(config=shape)
    ids = {"decoder_start_token_id": BOS, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    model.generation_config.update(**ids)
    return model


def _marian(config: TranslatorConfig, _: int) -> Any:
    import transformers

    shape = {"layers": config.n_layers, "attention_heads": config.n_heads, "ffn_dim": config.d_ff}
    both = {f"{side}_{name}": x for side in ("encoder", "decoder") for name, x in shape.items()}
    return transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            max_position_embeddings=config.max_length,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            scale_embedding=True,
            **both,
        )
    )


@dataclass(frozen=True, eq=False)
class _Prefix:
    """A state that keeps the memory and the tokens of every row, and nothing that was computed."""

    memory: Tensor
    ids: Tensor
    attention_weights: None = None

    def __len__(self) -> int:
        return self.memory.size(0)

    @property
    def device(self) -> torch.device:
        return self.memory.device

    def select(self, rows: Tensor) -> "_Prefix":
        return _Prefix(self.memory[rows], self.ids[rows])


class _CaptionerWithoutCache:
    """The usual loop: at every step the whole decoder over the whole prefix."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model

    def start(self, images: Tensor) -> _Prefix:
        memory = self.model.encode(images)
        return _Prefix(memory, torch.empty(memory.size(0), 0, dtype=torch.long, device=memory.device))

    def step(self, state: _Prefix, ids: Tensor) -> tuple[Tensor, _Prefix]:
        read = torch.cat([state.ids, ids[:, None]], 1)
        words = self.model.decoder
        x = words.positions(words.words(read) * words.words.embedding_dim**0.5)
        mask = nn.Transformer.generate_square_subsequent_mask(read.size(1), x.device, x.dtype)
        x = words.layers(x, state.memory, tgt_mask=mask, tgt_is_causal=True)[:, -1]
        logits = nn.functional.linear(x, words.words.weight, words.bias)
        return logits.float().log_softmax(-1), _Prefix(state.memory, read)


class _TranslatorWithoutCache:
    """The same of a translator."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model

    def start(self, source: Tensor) -> _Prefix:
        memory, _ = self.model.encode(source)
        return _Prefix(memory, source.new_empty(source.size(0), 0))

    def step(self, state: _Prefix, ids: Tensor) -> tuple[Tensor, _Prefix]:
        read = torch.cat([state.ids, ids[:, None]], 1)
        future = torch.ones(read.size(1), read.size(1), dtype=torch.bool, device=read.device).triu_(1)
        model = self.model
        x = model.target_places(model.embedding(read) * model.config.d_model**0.5)
        x = model.decoder(x, state.memory, tgt_mask=future, tgt_is_causal=True)
        return (x[:, -1] @ model.embedding.weight.T).float().log_softmax(-1), _Prefix(state.memory, read)
