"""Models as people run them: adapted, quantised, replicated, exported, text and image in one attention."""

import copy
import importlib
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import return_and_correct_aliasing

import sightline as sl
from tests.look.look_oracle import matrix, near, randn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()

pytestmark = pytest.mark.filterwarnings("ignore")

V, B, T, H, E = 97, 2, 11, 4, 32
NAMES = [f"model.layers.{i}.self_attn" for i in range(2)]


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=E, num_hidden_layers=2, num_attention_heads=H, num_key_value_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    for p in model.parameters():
        if p.dim() > 1:
            p.data.mul_(3)
    return model.eval()


def tokens():
    return torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(1))


def watched(model, *args, **options):
    """What was seen, with the output bit-equal to that of the blind model."""
    with torch.no_grad():
        blind = model(*args)
        with sl.watch(model, keep=True, **options) as seen:
            out = model(*args)
    blind, out = (x["logits"] if hasattr(x, "logits") else x for x in (blind, out))
    assert torch.equal(blind, out)
    assert seen.unseen() == {}
    return seen


def equals_eager(seen, model, ids, names):
    """Rows are those that the model itself returns with eager attention."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    assert seen.names() == names
    for name, expected in zip(names, weights, strict=True):
        near(seen[name].rows(range(T)), expected, atol=1e-5)


# Adapters


class Lora(nn.Module):
    """PEFT's shape: the layer it was, and two thin products beside it."""

    def __init__(self, base, rank=3):
        super().__init__()
        self.base_layer = base
        self.lora_A, self.lora_B = (
            nn.ModuleDict({"default": nn.Linear(a, b, bias=False)})
            for a, b in ((base.in_features, rank), (rank, base.out_features))
        )

    def forward(self, x):
        return self.base_layer(x) + 0.7 * self.lora_B["default"](self.lora_A["default"](x))


def adapted(way):
    model = llama()
    if way == "peft":
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(r=3, target_modules=["q_proj", "k_proj"], init_lora_weights=False)
        return peft.get_peft_model(model, config).eval(), model
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj"):
            setattr(layer.self_attn, name, Lora(getattr(layer.self_attn, name)))
    return model, model


@pytest.mark.parametrize("way", ["by hand", "peft"])
def test_an_adapter_is_seen_as_the_attention_it_changes(way):
    plain = watched(llama(), tokens())
    outer, inner = adapted(way)
    seen = watched(outer, tokens())
    prefix = "base_model.model." if way == "peft" else ""
    equals_eager(seen, inner, tokens(), [prefix + name for name in NAMES])
    assert (seen[0].received - plain[0].received).abs().max() > 0.01  # it did change something
    outer.train()
    blind, seeing = copy.deepcopy(outer), copy.deepcopy(outer)
    blind(tokens(), labels=tokens()).loss.backward()
    with sl.watch(seeing) as seen:
        seeing(tokens(), labels=tokens()).loss.backward()
    assert len(seen) == 2
    pairs = [(a.grad, b.grad) for a, b in zip(blind.parameters(), seeing.parameters(), strict=True)]
    assert all((a is None and b is None) or torch.equal(a, b) for a, b in pairs)


def test_adapters_on_and_off():
    peft = pytest.importorskip("peft")
    outer, _ = adapted("peft")
    with outer.disable_adapter():
        off = watched(outer, tokens())
    plain = watched(llama(), tokens())
    for a, b in zip(off.names(), plain.names(), strict=True):
        near(off[a].received, plain[b].received, atol=1e-6)
    assert isinstance(outer, peft.PeftModel)


# Quantised linears


class Int8Weight(torch.Tensor):
    """Eight bits and a scale for each row, as torchao keeps them: a tensor with operators of its own."""

    @staticmethod
    def __new__(cls, whole, scale):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype, device=whole.device)

    def __init__(self, whole, scale):
        self.whole, self.scale = whole, scale

    def __tensor_flatten__(self):
        return ["whole", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, *_):
        return cls(parts["whole"], parts["scale"])

    def dequantize(self):
        return self.whole.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, _types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            made = cls(*(func(x) for x in (args[0].whole, args[0].scale)))
            return return_and_correct_aliasing(func, args, kwargs or {}, made)
        args = [x.dequantize() if isinstance(x, cls) else x for x in args]
        return func(*args, **(kwargs or {}))


class Int8Linear(nn.Module):
    """The same as a module, as bitsandbytes does it."""

    def __init__(self, linear):
        super().__init__()
        whole, scale = rounded(linear.weight.data)
        self.register_buffer("weight", whole)
        self.register_buffer("scale", scale)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype) * self.scale)


def rounded(weight):
    scale = weight.abs().amax(-1, keepdim=True) / 127
    return (weight / scale).round().to(torch.int8), scale


def quantised(way):
    model = llama()
    if way == "torchao":
        quantization = pytest.importorskip("torchao.quantization")
        quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    elif way == "bitsandbytes":
        bnb = pytest.importorskip("bitsandbytes")
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear) and name in ("q_proj", "k_proj"):
                    linear = bnb.nn.Linear8bitLt(
                        child.in_features, child.out_features, False, has_fp16_weights=False
                    )
                    linear.load_state_dict(child.state_dict())
                    setattr(module, name, linear.to("cpu"))
    else:
        for layer in model.model.layers:
            for name in ("q_proj", "k_proj"):
                linear = getattr(layer.self_attn, name)
                if way == "a module":
                    setattr(layer.self_attn, name, Int8Linear(linear))
                else:
                    linear.weight = nn.Parameter(
                        Int8Weight(*rounded(linear.weight.data)), requires_grad=False
                    )
    return model


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("way", ["a tensor", "a module", "torchao", "bitsandbytes"])
def test_quantised_linears(way, implementation):
    model = quantised(way)
    model.set_attn_implementation(implementation)
    seen = watched(model, tokens())
    equals_eager(seen, model, tokens(), NAMES)


# DataParallel, exported modules


def test_data_parallel_is_named_like_its_module():
    model = llama()
    seen = watched(nn.DataParallel(model), tokens())
    equals_eager(seen, model, tokens(), NAMES)


class Replicas(nn.Module):
    """What ``DataParallel`` does with several devices: a replica in a thread of its own for each."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        outputs = [None] * len(inputs)

        def work(i, replica):
            outputs[i] = replica(inputs[i])

        replicas = [copy.copy(self.module) for _ in inputs]
        threads = [threading.Thread(target=work, args=(i, x)) for i, x in enumerate(replicas)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return torch.cat(outputs)


def test_replicas_in_other_threads_are_told():
    model, x = Replicas(Encoder()).eval(), randn(B, T, E, dtype=torch.float32)
    with torch.no_grad():
        blind = model(x, x)
        with pytest.warns(UserWarning, match="DataParallel over several devices"), sl.watch(model) as seen:
            watched = model(x, x)
    assert torch.equal(blind, watched)
    assert "DataParallel over several devices" in repr(seen)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.ModuleList(nn.MultiheadAttention(E, H, batch_first=True) for _ in range(2))

    def forward(self, x):
        for attn in self.attn:
            x = x + attn(x, x, x, need_weights=False)[0]
        return x


def test_an_exported_module_is_seen():
    model, x = Encoder().eval(), randn(B, T, E, dtype=torch.float32)
    exported = torch.export.export(model, (x,), strict=False).module()
    with torch.no_grad(), sl.watch(model, keep=True) as plain:
        model(x)
    seen = watched(exported, x)
    sights = [call for _, calls in seen.items() for call in calls]
    assert len(sights) == 2
    for sight, name in zip(sights, plain.names(), strict=True):
        near(sight.rows(range(T)), plain[name].rows(range(T)), atol=1e-6)


# Text and image in one attention


class JointAttention(nn.Module):
    """As diffusion Transformers have it: each side has its own projections, both look at both."""

    def __init__(self):
        super().__init__()
        self.text, self.image = nn.Linear(E, 3 * E), nn.Linear(E, 3 * E)

    def project(self, text, image):
        both = torch.cat([self.text(text), self.image(image)], 1)
        return (x.unflatten(-1, (H, -1)).transpose(1, 2) for x in both.chunk(3, -1))

    def forward(self, text, image):
        q, k, v = self.project(text, image)
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return out[:, : text.size(1)], out[:, text.size(1) :]


def test_text_and_image_in_one_attention():
    torch.manual_seed(0)
    model, n = JointAttention(), 7
    text, image = randn(B, n, E, seed=1, dtype=torch.float32), randn(B, 16, E, seed=2, dtype=torch.float32)
    names = [*"abcdefg", *(f"image[{i}]" for i in range(16))]
    with torch.no_grad(), sl.watch(model, keep=True, tokens=names) as seen:
        model(text, image)
        q, k, _ = model.project(text, image)
    weights, _ = matrix(q.double(), k.double())
    sight = seen[""]
    near(sight.rows(range(n + 16)), weights, atol=1e-6)
    assert sight.tokens == (tuple(names),)
    near(sight.mass(["image"])[..., 0], weights[..., n:].sum(-1), atol=1e-6)


def test_diffusers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            diffusers = importlib.import_module("diffusers")
        except Exception:  # noqa: BLE001 (it checks its own dependencies)
            pytest.skip("diffusers can't be imported")
    torch.manual_seed(0)
    model = diffusers.SD3Transformer2DModel(
        sample_size=4, patch_size=1, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=H,
        joint_attention_dim=E, caption_projection_dim=E, pooled_projection_dim=16, out_channels=4,
        pos_embed_max_size=8,
    ).eval()  # fmt: skip
    inputs = {
        "hidden_states": randn(B, 4, 4, 4, seed=1, dtype=torch.float32),
        "encoder_hidden_states": randn(B, 5, E, seed=2, dtype=torch.float32),
        "pooled_projections": randn(B, 16, seed=3, dtype=torch.float32),
        "timestep": torch.tensor([3.0, 7.0]),
    }
    with torch.no_grad():
        blind = model(**inputs).sample
        with sl.watch(model, keep=True) as seen:
            assert torch.equal(model(**inputs).sample, blind)
    assert seen.names() == [f"transformer_blocks.{i}.attn" for i in range(2)]
    assert all((seen[name].t, seen[name].s) == (21, 21) for name in seen)
