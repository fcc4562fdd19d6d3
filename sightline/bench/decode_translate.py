"""``bench decode`` of translation: beam search beside Hugging Face's Marian, and beside a loop with no cache.

All translate the same number of sentences of the same length into the same number of tokens, with models of
the same shape and random weights: nobody may stop early, so that all take the same number of steps. On a GPU
all run in bfloat16.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sightline.bench.case import OURS, Case, Comparison, Contestant, TimedCase
from sightline.bench.decode import HUGGING_FACE, NO_CACHE, Prefix, precision, precision_note
from sightline.bench.train import StepCase, with_torch_layers
from sightline.data.tokens import BOS, EOS, PAD
from sightline.decode.hypotheses import Hypotheses
from sightline.decode.replay import GraphReplay
from sightline.decode.search import beam
from sightline.models.translator import Translator, TranslatorConfig
from sightline.shapes import Float, Int

__all__ = ["cases"]

_SENTENCES, _WIDTH = 100, 5
_READ, _WRITTEN = 16, 16  # tokens
_BARS = {HUGGING_FACE: 2.0, NO_CACHE: 5.0}


def cases(device: torch.device, *, quick: bool, config: TranslatorConfig | None = None) -> list[Case]:
    """Our beam search beside each peer, one by one: each has a bar of its own."""
    n = 10 if quick else _SENTENCES
    config = config or TranslatorConfig(
        source_vocab_size=8000,
        vocab_size=8000,
        shared=True,
        d_model=256,
        n_heads=4,
        n_layers=3,
        d_ff=1024,
        norm="post",  # as Marian's
    )
    return [
        StepCase(
            timed=TimedCase(
                name=f"{device} decode translate {n} sentences beam {_WIDTH} beside {peer}",
                device=device,
                bar=least,
                setup=partial(_compare, config, n, peer, device),
            ),
            examples=(n, "sentences"),
        )
        for peer, least in _BARS.items()
    ]


def _compare(config: TranslatorConfig, n: int, peer: str, device: torch.device) -> Comparison:
    torch.manual_seed(0)
    dtype = precision(device)
    model = Translator(config).to(device, dtype).eval()
    source = torch.randint(4, config.vocab_size, (n, _READ), device=device)
    search = GraphReplay(partial(_search, model))  # on a GPU one launch, on a CPU the search itself
    ours = Contestant(name=OURS, run=lambda: _scores(search, source))
    if peer == NO_CACHE:
        torch.manual_seed(0)
        plain = with_torch_layers(Translator(config)).to(device, dtype).eval()
        rival = Contestant(
            name=peer, run=partial(_scores, partial(_search, _TranslatorWithoutCache(plain)), source)
        )
    else:
        try:
            theirs = marian(config).to(device, dtype).eval()
        except ImportError:
            return Comparison(contestants=(ours,), notes=("transformers is not installed: no peer",))
        rival = Contestant(name=peer, run=partial(_generate, theirs, source))
    how = precision_note(dtype, device)
    note = f"{_READ} tokens read and {_WRITTEN} written by each sentence, random weights, {how}"
    return Comparison(contestants=(ours, rival), notes=(note,))


def _search(model: Any, source: Int[Tensor, "B S"]) -> Hypotheses:
    forbidden = (PAD, BOS, EOS)  # so that nobody stops early
    return beam(model, model.start(source), width=_WIDTH, max_length=_WRITTEN, forbidden=forbidden)


def _scores(search: Callable[[Tensor], Hypotheses], source: Int[Tensor, "B S"]) -> list[Tensor]:
    with torch.inference_mode():
        return [search(source).scores]


def marian(config: TranslatorConfig) -> Any:
    """Hugging Face's translator of the same shape, with random weights."""
    from transformers import MarianConfig, MarianMTModel  # noqa: PLC0415  a peer, not a need

    shape = {"layers": config.n_layers, "attention_heads": config.n_heads, "ffn_dim": config.d_ff}
    settings: dict[str, Any] = {
        f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in shape.items()
    }
    return MarianMTModel(
        MarianConfig(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            max_position_embeddings=config.max_length,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            scale_embedding=True,
            **settings,
        )
    )


def _generate(model: Any, source: Int[Tensor, "B S"]) -> list[Tensor]:
    """Its own beam search, as its users call it."""
    with torch.inference_mode():
        return [
            model.generate(
                input_ids=source,
                attention_mask=torch.ones_like(source),
                num_beams=_WIDTH,
                min_new_tokens=_WRITTEN,
                max_new_tokens=_WRITTEN,
                do_sample=False,
            )
        ]


class _TranslatorWithoutCache:
    """The usual loop: at every step the whole decoder over the whole prefix."""

    def __init__(self, model: nn.Module) -> None:
        self._model: Any = model

    def start(self, source: Int[Tensor, "B S"]) -> Prefix:
        memory, _ = self._model.encode(source)
        return Prefix(memory, source.new_empty(source.size(0), 0))

    def step(self, state: Prefix, ids: Int[Tensor, " N"]) -> tuple[Float[Tensor, "N V"], Prefix]:
        read = torch.cat([state.ids, ids[:, None]], 1)
        t = read.size(1)
        future = torch.ones(t, t, dtype=torch.bool, device=read.device).triu_(1)
        model = self._model
        x = model.embedding(read) * model.config.d_model**0.5
        x = model.decoder(model.target_places(x), state.memory, tgt_mask=future, tgt_is_causal=True)
        log_probs = (x[:, -1] @ model.embedding.weight.T).float().log_softmax(-1)
        return log_probs, Prefix(state.memory, read)
