"""The models of ``bench watch``. Their weights are random: here it matters what they cost, nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sightline.bench.sizes import Sizes


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelUse:
    """A model on some tokens.

    Attributes:
        kind: ``Llama``, ``BERT`` or ``encoder`` (torch.nn's).
        batch: B.
        tokens: T.
        n_layers: How many layers.
        d_model: How wide; heads are 128 wide in a Llama and 64 in the others.
    """

    kind: str
    tokens: int
    batch: int = 1
    n_layers: int
    d_model: int

    def __str__(self) -> str:
        return f"{self.kind} {self.batch} x {self.tokens}"

    def build(self, device: torch.device, *, eager: bool = False) -> tuple[nn.Module, Callable[[], Any]]:
        """The model in eval, and a call of it on its tokens; ``eager`` asks it for its weights as well."""
        torch.manual_seed(0)
        dtype = Sizes.of(device, quick=True).dtype
        if self.kind == "encoder":
            layer = nn.TransformerEncoderLayer(self.d_model, self.d_model // 64, batch_first=True)
            encoder = nn.TransformerEncoder(layer, num_layers=self.n_layers).to(device, dtype).eval()
            x = torch.randn(self.batch, self.tokens, self.d_model, device=device, dtype=dtype)
            return encoder, lambda: encoder(x)
        with torch.device(device):
            model = (_llama if self.kind == "Llama" else _bert)(self, "eager" if eager else "sdpa")
            model = model.to(dtype).eval()
            ids = torch.randint(0, 1000, (self.batch, self.tokens))
        if eager:
            return model, lambda: model(ids, output_attentions=True)
        return model, lambda: model(ids).last_hidden_state


def _llama(use: ModelUse, implementation: str) -> Any:
    import transformers  # noqa: PLC0415

    library: Any = transformers  # its arguments are not typed
    return library.LlamaModel(
        library.LlamaConfig(
            hidden_size=use.d_model,
            intermediate_size=use.d_model * 43 // 16,
            num_hidden_layers=use.n_layers,
            num_attention_heads=max(1, use.d_model // 128),
            num_key_value_heads=max(1, use.d_model // 128),
            vocab_size=32000,
            max_position_embeddings=use.tokens,
            use_cache=False,
            attn_implementation=implementation,
        )
    )


def _bert(use: ModelUse, implementation: str) -> Any:
    import transformers  # noqa: PLC0415

    library: Any = transformers  # its arguments are not typed
    return library.BertModel(
        library.BertConfig(
            hidden_size=use.d_model,
            intermediate_size=4 * use.d_model,
            num_hidden_layers=use.n_layers,
            num_attention_heads=max(1, use.d_model // 64),
            max_position_embeddings=max(512, use.tokens),
            attn_implementation=implementation,
        )
    )


def first_tensor(results: Any) -> tuple[Tensor, ...]:
    """The output and, where weights were asked for, the sum of each layer's over the queries."""
    if isinstance(results, Tensor):
        return (results,)
    return (results.last_hidden_state, *(x.sum(-2) for x in results.attentions))
