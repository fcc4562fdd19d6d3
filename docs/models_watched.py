"""Write docs/models_watched.md: which models `sl.watch` sees, how, how exactly, and at what cost.

    python docs/models_watched.py [--out FILE] [--quick]

Models have random weights and few, narrow layers: what is asked is whether every attention is seen, not what
it says. For each, the output with and without `sl.watch` is compared bit by bit, and the rows of weights with
those that the model itself returns with eager attention (`output_attentions=True`, or `need_weights=True`).
"""

# ruff: noqa: E501, INP001 (a table is read by its rows)

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from models_watched_checks import (
    cached_error,
    difference,
    eager_weights,
    half_error,
    padded_error,
    set_attention,
)
from torch import Tensor, nn

import sightline as sl

V, E, H, T, B = 67, 32, 4, 11, 2
RUNS = 5
Model = Callable[[], tuple[nn.Module, dict[str, Any]]]

TEXT = {"vocab_size": V, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BASE = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 24}
GPT = {"n_embd": E, "n_layer": 2, "n_head": H}
PAIR = {
    "d_model": E,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": H,
    "decoder_attention_heads": H,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
}
T5 = {"d_model": E, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": H}
IMAGE = {"image_size": 24, "patch_size": 8}

# name, class of the model, class of the configuration, what the configuration says, which inputs it takes
FAMILIES: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("BERT", "BertModel", "BertConfig", BASE, "text"),
    ("RoBERTa", "RobertaModel", "RobertaConfig", BASE, "text"),
    ("XLM-RoBERTa", "XLMRobertaModel", "XLMRobertaConfig", BASE, "text"),
    ("ALBERT", "AlbertModel", "AlbertConfig", BASE | {"embedding_size": 8}, "text"),
    ("ELECTRA", "ElectraModel", "ElectraConfig", BASE | {"embedding_size": 8}, "text"),
    ("DistilBERT", "DistilBertModel", "DistilBertConfig", {"dim": E, "n_layers": 2, "n_heads": H, "hidden_dim": 20}, "text"),
    ("MPNet", "MPNetModel", "MPNetConfig", BASE, "text"),
    ("DeBERTa-v2", "DebertaV2Model", "DebertaV2Config", BASE | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, "text"),
    ("ModernBERT", "ModernBertModel", "ModernBertConfig", BASE | {"local_attention": 6}, "text"),
    ("Longformer", "LongformerModel", "LongformerConfig", BASE | {"attention_window": 4}, "text"),
    ("GPT-2", "GPT2Model", "GPT2Config", GPT, "text"),
    ("GPT-Neo", "GPTNeoModel", "GPTNeoConfig", {"hidden_size": E, "num_layers": 2, "num_heads": H, "attention_types": [[["global", "local"], 1]], "window_size": 5}, "text"),
    ("GPT-J", "GPTJModel", "GPTJConfig", GPT | {"rotary_dim": 4}, "text"),
    ("GPT-NeoX", "GPTNeoXModel", "GPTNeoXConfig", BASE, "text"),
    ("BLOOM", "BloomModel", "BloomConfig", {"hidden_size": E, "n_layer": 2, "n_head": H}, "text"),
    ("MPT", "MptModel", "MptConfig", {"d_model": E, "n_layers": 2, "n_heads": H}, "text"),
    ("OPT", "OPTModel", "OPTConfig", {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "ffn_dim": 20, "word_embed_proj_dim": E}, "text"),
    ("Falcon", "FalconModel", "FalconConfig", {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H}, "text"),
    ("Llama", "LlamaModel", "LlamaConfig", BASE | {"num_key_value_heads": 2}, "text"),
    ("Mistral", "MistralModel", "MistralConfig", BASE | {"num_key_value_heads": 2, "sliding_window": 5}, "text"),
    ("Mixtral", "MixtralModel", "MixtralConfig", BASE | {"num_key_value_heads": 2, "num_local_experts": 2}, "text"),
    ("Qwen2", "Qwen2Model", "Qwen2Config", BASE | {"num_key_value_heads": 2}, "text"),
    ("Qwen3", "Qwen3Model", "Qwen3Config", BASE | {"num_key_value_heads": 2, "head_dim": 8}, "text"),
    ("Gemma", "GemmaModel", "GemmaConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8}, "text"),
    ("Gemma 2", "Gemma2Model", "Gemma2Config", BASE | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5}, "text"),
    ("Gemma 3", "Gemma3TextModel", "Gemma3TextConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5}, "text"),
    ("Phi", "PhiModel", "PhiConfig", BASE, "text"),
    ("Phi-3", "Phi3Model", "Phi3Config", BASE, "text"),
    ("OLMo 2", "Olmo2Model", "Olmo2Config", BASE, "text"),
    ("Cohere", "CohereModel", "CohereConfig", BASE, "text"),
    ("gpt-oss", "GptOssModel", "GptOssConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 5}, "text"),
    ("T5", "T5Model", "T5Config", T5, "pair"),
    ("mT5", "MT5Model", "MT5Config", T5, "pair"),
    ("BART", "BartModel", "BartConfig", PAIR, "pair"),
    ("mBART", "MBartModel", "MBartConfig", PAIR, "pair"),
    ("Marian", "MarianModel", "MarianConfig", PAIR, "pair"),
    ("Pegasus", "PegasusModel", "PegasusConfig", PAIR, "pair"),
    ("Whisper", "WhisperModel", "WhisperConfig", PAIR | {"num_mel_bins": 5, "max_source_positions": 13}, "speech pair"),
    ("wav2vec 2.0", "Wav2Vec2Model", "Wav2Vec2Config", BASE | {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}, "speech"),
    ("WavLM", "WavLMModel", "WavLMConfig", BASE | {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "num_buckets": 16}, "speech"),
    ("ViT", "ViTModel", "ViTConfig", BASE | IMAGE, "image"),
    ("DeiT", "DeiTModel", "DeiTConfig", BASE | IMAGE, "image"),
    ("BEiT", "BeitModel", "BeitConfig", BASE | IMAGE, "image"),
    ("DINOv2", "Dinov2Model", "Dinov2Config", BASE | IMAGE, "image"),
    ("SigLIP, vision", "SiglipVisionModel", "SiglipVisionConfig", BASE | IMAGE, "image"),
    ("CLIP, vision", "CLIPVisionModel", "CLIPVisionConfig", BASE | IMAGE, "image"),
    ("CLIP, text", "CLIPTextModel", "CLIPTextConfig", BASE, "text"),
    ("ViLT", "ViltModel", "ViltConfig", BASE | IMAGE, "text and image"),
    ("Perceiver", "PerceiverModel", "PerceiverConfig", {"num_latents": 5, "d_latents": E, "d_model": E, "num_blocks": 1, "num_self_attends_per_block": 2, "num_self_attention_heads": H, "num_cross_attention_heads": H}, "vectors"),
    ("Time series", "TimeSeriesTransformerModel", "TimeSeriesTransformerConfig", {"prediction_length": 3, "context_length": 6, "lags_sequence": [1, 2], "num_time_features": 1} | PAIR, "series"),
]  # fmt: skip
SMALL = ("BERT", "Llama", "GPT-J", "gpt-oss", "T5", "Longformer")


def inputs_of(kind: str) -> dict[str, Any]:
    """What a family is called with."""
    ids = torch.randint(5, V, (B, T))
    return {
        "text": {"input_ids": ids},
        "pair": {"input_ids": ids, "decoder_input_ids": ids[:, :7]},
        "speech": {"input_values": torch.randn(B, 400)},
        "speech pair": {"input_features": torch.randn(B, 5, 26), "decoder_input_ids": ids},
        "image": {"pixel_values": torch.randn(B, 3, 24, 24)},
        "text and image": {"input_ids": ids, "pixel_values": torch.randn(B, 3, 24, 24)},
        "vectors": {"inputs": torch.randn(B, T, E)},
        "series": {
            "past_values": torch.randn(B, 8),
            "past_time_features": torch.randn(B, 8, 1),
            "past_observed_mask": torch.ones(B, 8),
            "future_values": torch.randn(B, 3),
            "future_time_features": torch.randn(B, 3, 1),
        },
    }[kind]


def families(only: tuple[str, ...] | None) -> Iterator[tuple[str, str, Model]]:
    """Name, implementation of attention and maker of every model that is tried."""
    try:
        import transformers  # noqa: PLC0415 (an extra)
    except ImportError:
        return
    for name, model, config, settings, kind in FAMILIES:
        if only is not None and name not in only:
            continue
        made_by, made_from = getattr(transformers, model, None), getattr(transformers, config, None)
        if made_by is None:
            continue

        def make(
            made_by: Any = made_by, made_from: Any = made_from, settings: Any = settings, kind: str = kind
        ) -> tuple[nn.Module, dict[str, Any]]:
            words = {} if kind in ("image", "speech", "vectors", "series") else TEXT
            return made_by(made_from(**words, **settings)).eval(), inputs_of(kind)

        for implementation in ("sdpa", "eager"):
            yield name, implementation, make


def torch_models() -> Iterator[tuple[str, str, Model]]:
    """Torch's own modules and ours, with their weights by hand and without."""
    x = torch.randn(B, T, E)
    for library, package in (("torch.nn", nn), ("sl.nn", sl.nn)):
        for need_weights in (False, True):
            how = "need_weights" if need_weights else "fused"
            module = package.MultiheadAttention(E, H, batch_first=True)
            called = {"query": x, "key": x, "value": x, "need_weights": need_weights}
            yield f"{library} MultiheadAttention", how, lambda m=module, c=called: (m.eval(), c)
        layer = package.TransformerEncoderLayer(E, H, 20, batch_first=True)
        encoder = package.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        yield f"{library} TransformerEncoder", "fused", lambda m=encoder: (m.eval(), {"src": x})


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was found of one model."""

    name: str
    implementation: str
    seen: int
    unseen: int
    sources: str
    is_equal: bool
    error: float | None
    cost: float
    padded: float | None = None
    cached: float | None = None
    half: float | None = None
    note: str = ""


def try_model(name: str, implementation: str, make: Model) -> Row | None:
    """Run a model blind, watched and eager; None where it has no such implementation."""
    torch.manual_seed(0)
    model, inputs = make()
    sharpen(model)
    if hasattr(model, "set_attn_implementation"):
        if implementation == "sdpa" and not getattr(model, "_supports_sdpa", False):
            return None
        set_attention(model, implementation)
    with torch.no_grad():
        blind, blind_seconds = timed(lambda: output_of(model(**inputs)))
        with sl.watch(model, keep=True) as seen:
            watched, watched_seconds = timed(lambda: output_of(model(**inputs)))
        weights = eager_weights(model, inputs)
    calls = [x for _, x in seen.items()]
    error = difference([x for one in calls for x in one[len(one) - len(one) // RUNS :]], weights)
    sights = [call for _, calls in seen.items() for call in calls]
    reasons = list(dict.fromkeys(seen.unseen().values()))
    return Row(
        name=name,
        implementation=implementation,
        seen=len(sights),
        unseen=len(seen.unseen()),
        sources=", ".join(sorted({x.source for x in sights})) or "-",
        is_equal=torch.equal(blind, watched),
        error=error,
        cost=watched_seconds / blind_seconds,
        note="; ".join(reasons),
        padded=padded_error(model, inputs, implementation),
        cached=cached_error(model, inputs, implementation),
        half=half_error(model, inputs, implementation),
    )


def sharpen(model: nn.Module) -> None:
    """Random models look everywhere alike; let this one look somewhere."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(3)


def timed(call: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """The result, of the same dice each time, and the least processor time of a few runs."""
    seconds = []
    for _ in range(RUNS):
        torch.manual_seed(1)
        start = time.process_time()
        result = call()
        seconds.append(time.process_time() - start)
    return result, min(seconds)


def output_of(outputs: Any) -> Tensor:
    """The tensor that a model's output is compared by."""
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(outputs, tuple):
        return outputs[0]
    return outputs["last_hidden_state"]


def table(rows: list[Row]) -> str:
    """The page."""
    lines = [
        "# Models that were watched",
        "",
        f"Written by `python docs/models_watched.py`: random weights, two narrow layers, {B} x {T} tokens, float32, torch",
        f"{torch.__version__} on one CPU thread. *Seen* counts calls of attention in one run; *read off* says how: off a",
        "kernel's own q, k and log-sum-exp, or off the weights that the model computed by hand. *Error* is the largest",
        "difference of any weight from those that the model itself returns with eager attention; - where it returns none,",
        "or not all. *Cached* is the same with a prompt and single steps, put together, against all tokens at once.",
        "*Padded*, on the right and on the left, and *bfloat16* compare kernels with a softmax in float64 over the same q and",
        "k, and weights by hand with those that eager returns. In bfloat16 those are rounded: there the difference is a share",
        "of the weight, and bfloat16's own rounding is 4e-03. *Cost* is the processor time watched, with q and k kept, over",
        "that of the blind model: for models as small as these it is Python's, not the look's.",
        "",
        "| model | attention | seen | not seen | read off | output | error | padded | cached | bfloat16 | cost |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        errors = (row.error, row.padded, row.cached, row.half)
        cells = " | ".join("-" if x is None else f"{x:.0e}" for x in errors)
        equal = "bit-equal" if row.is_equal else "**differs**"
        lines.append(
            f"| {row.name} | {row.implementation} | {row.seen // RUNS} | {row.unseen or ''} | {row.sources} | {equal} "
            f"| {cells} | {row.cost:.1f} |"
        )
    notes = {row.note: row.name for row in rows if row.note}
    if notes:
        lines += ["", "Not seen:", "", *(f"- {name}: {note}." for note, name in notes.items())]
    return "\n".join(lines) + "\n"


def try_all(only: tuple[str, ...] | None = None) -> list[Row]:
    """A row for every model and implementation that there is."""
    rows = []
    for name, implementation, make in (*torch_models(), *families(only)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row = try_model(name, implementation, make)
        if row is not None:
            rows.append(row)
            sys.stderr.write(f"{name}, {implementation}: {row.seen // RUNS} seen, {row.unseen} not\n")
    return rows


def main() -> None:
    """Try all models and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--quick", action="store_true", help="Only a few families.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.write_text(table(try_all(SMALL if options.quick else None)), encoding="utf-8")


if __name__ == "__main__":
    main()
