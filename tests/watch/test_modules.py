"""Whose tensors and modules these are: wrappers, names, two sequences, and placeholders of images."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from sightline.look import module_names
from sightline.look.groups import is_named
from sightline.watch import crossing, modules, recorder
from sightline.watch.attention_call import UnreadableError
from sightline.watch.media_tokens import media_ids, name_media, named_input_ids


def test_tensors_with_operators_of_their_own_are_not_read():
    class Plain(torch.Tensor):
        pass

    class Disabled(torch.Tensor):
        __torch_dispatch__ = torch._C._disabled_torch_dispatch_impl

    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    for kind in (torch.Tensor, Plain, Disabled):
        assert recorder._is_wrapper(kind) is False
        x = torch.zeros(3).as_subclass(kind)
        assert recorder._local(x) is x
    assert recorder._is_wrapper(Wrapper) is True
    with pytest.raises(UnreadableError, match="tensors of the type Wrapper"):
        recorder._local([torch.zeros(2).as_subclass(Wrapper)])
    with pytest.raises(UnreadableError, match="meta or fake"):
        recorder._local(torch.zeros(3, device="meta"))
    assert recorder._is_plain(torch.zeros(3, device="meta")) is False
    assert recorder._is_plain(torch.zeros(3)) is True
    assert recorder._is_plain(torch.zeros(2).as_subclass(Wrapper)) is False
    pair = (torch.zeros(1), "words")
    assert recorder._local(pair) == pair
    assert isinstance(recorder._local([pair]), list)
    assert recorder._local(3) == 3


def test_only_the_batch_may_be_spread_over_processes():
    def placement(kind, dim=0):
        return SimpleNamespace(is_replicate=lambda: kind == "all", is_shard=lambda: kind == "shard", dim=dim)

    local = torch.zeros(2)
    for good in ([], [placement("all")], [placement("shard")], [placement("all", 1), placement("shard")]):
        assert (
            recorder._local_part(
                SimpleNamespace(placements=good, to_local=lambda: local, _local_tensor=local)
            )
            is local
        )
    for bad in (placement("shard", 1), placement("partial"), placement("partial", 1)):
        with pytest.raises(UnreadableError, match=r"spread over processes as .*, not by batch"):
            recorder._local_part(SimpleNamespace(placements=[placement("all"), bad], to_local=lambda: local))


class SelfAttention(nn.Module):
    pass


class AttentionOutput(nn.Module):
    pass


def test_modules_that_look_like_attention():
    attention, output = SelfAttention(), AttentionOutput()
    assert modules.looks_like_attention(attention)
    assert modules.looks_like_attention(nn.MultiheadAttention(4, 2))
    assert not modules.looks_like_attention(output)
    assert not modules.looks_like_attention(nn.Linear(2, 3))
    layer = nn.TransformerEncoderLayer(4, 2)
    assert modules.Owner("a", layer).is_layer is True
    assert modules.Owner("a", nn.Linear(2, 3)).is_layer is True
    assert modules.Owner("a", attention).is_layer is False
    assert modules.Owner("a", layer, site=(None, 0)).is_layer is False
    assert modules.sinks_of(attention) is None
    attention.sinks = torch.zeros(3, dtype=torch.long)
    assert modules.sinks_of(attention) is None
    attention.sinks = torch.zeros(3)
    assert modules.sinks_of(attention) is attention.sinks
    assert modules.count_heads(output) is None
    names = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")
    for i, name in enumerate(names):
        other = AttentionOutput()
        setattr(other, name, i + 1)
        assert modules.count_heads(other) == i + 1
    output.num_heads, output.heads = 0, 5
    assert modules.count_heads(output) == 5
    output.heads = "many"
    assert modules.count_heads(output) is None


def test_names_without_wrappers():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(2, 3)

    plain = nn.Sequential(Inner())
    assert modules._short_name("_orig_mod.0.module", set()) == "0.module"
    assert modules._short_name("module.0.module", {""}) == "0.module"
    assert modules._short_name("a.module._checkpoint_wrapped_module.b", {"a"}) == "a.b"
    assert modules._is_in("a.b", "a")
    assert modules._is_in("a", "a")
    assert modules._is_in("a", "")
    assert not modules._is_in("ab", "a")
    assert modules.uncompiled(nn.DataParallel(plain)) is plain
    assert modules.uncompiled(plain) is plain
    wrapped = nn.Sequential()
    wrapped._orig_mod = nn.DataParallel(plain)
    assert modules.uncompiled(wrapped) is plain


def test_attentions_in_a_module():
    model = nn.ModuleDict(
        {"a": nn.ModuleDict({"x": SelfAttention(), "y": nn.Linear(2, 3)}), "ab": SelfAttention()}
    )
    model["outer"] = SelfAttention()
    model["outer"].inner = SelfAttention()
    found = modules.ModuleResolver(model)
    assert found.kind == "ModuleDict"
    assert list(found.attentions) == ["a.x", "ab", "outer", "outer.inner"]
    assert found.attentions_in("a") == ["a.x"]
    assert found.attentions_in("") == ["a.x", "ab", "outer.inner"]
    assert found.attentions_in("outer") == ["outer.inner"]
    assert found.attentions_in("ab") == []
    owner = modules.Owner("", model, site=("code", 1))
    second = owner._replace(site=("code", 2))
    assert [found.name_in_compiled(x) for x in (owner, second, owner)] == ["a.x", "ab", "a.x"]
    assert found.misnamed() == {""}
    assert found.name_in_compiled(owner._replace(site=("code", 3))) == "outer.inner"
    assert found.misnamed() == set()
    alone = modules.Owner("a.y", model["a"]["y"], site=("code", 1))
    assert found.name_in_compiled(alone) == "a.y"
    assert found.nameless() == {}
    found.name_in_compiled(alone._replace(site=("code", 2)))
    found.name_in_compiled(alone._replace(site=("other", 2)))
    assert found.nameless() == {"a.y": 2}
    assert found.misnamed() == set()
    weight = model["a"]["y"].weight
    assert found.pointers.attentions_of(weight) == ()
    assert found.pointers.is_parameter(weight[1:])
    assert not found.pointers.is_parameter(torch.zeros(3))
    assert found.pointers.attentions_of(torch.zeros(3)) is None


# Two sequences


class Given(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(2, 2)

    def forward(self, x, other=None, mask=None, value=None, *args, **more):
        pass


def test_a_module_that_was_given_two_sequences():
    x, y, module = torch.zeros(2, 3, 4), torch.zeros(2, 5, 4), Given()

    def crosses(*args, s=5, **kwargs):
        return crossing._is_given_two(module, args, kwargs, s)

    assert crosses(x, y) is True
    assert crosses(x, y, s=7) is False
    assert crosses(x, y, s=4) is False  # the width is no length
    assert crosses(x) is False
    assert crosses(x, x, s=3) is False
    assert crosses(x, x.clone(), s=3) is True
    assert crosses(x, x[:], s=3) is False
    assert crosses(x, x.transpose(0, 1), s=2) is True
    assert crosses(x, y[0]) is False  # two dimensions
    assert crosses(x, None, y) is False  # a mask
    assert crosses(x, None, None, y) is False  # values
    assert crosses(x, None, None, None, y) is True  # whatever has no name
    assert crosses(x, memory=y) is True
    assert crosses(x, position=y) is False
    assert crosses(x, y.long()) is False
    assert crosses() is None
    assert crosses(x, x, x, x, wrong=y, x=y) is None
    assert crossing._is_given_two(module, (1, 2), {}, 5) is None
    module.forward = lambda x, other: None
    assert crosses(x, y) is True
    assert crosses(x) is None


def test_a_signature_is_read_once(monkeypatch):
    x, n = torch.zeros(2, 3, 4), []
    read = crossing.inspect.signature
    monkeypatch.setattr(crossing.inspect, "signature", lambda f: n.append(f) or read(f))
    crossing._signature.cache_clear()
    for _ in range(3):
        crossing._is_given_two(Given(), (x,), {}, 5)
    assert len(n) == 1


def test_what_names_say_of_crossing():
    for name in (
        "cross_attn",
        "a.encoder_attn",
        "EncDecAttention",
        "b.crossattention.self",
        "multihead_attn",
    ):
        assert module_names.is_cross_name(name) is True
    for name in ("a.self_attn", "a.self", "selfattention", "b.SelfAttention"):
        assert module_names.is_cross_name(name) is False
    for name in ("attn", "crossing.attn", "cross.attn", "self.other", ""):
        assert module_names.is_cross_name(name) is False


# Placeholders of images


class Config:
    audio_token_index = 9


def test_tokens_of_images_as_a_configuration_says():
    model = nn.Linear(2, 3)
    assert media_ids(model) == {}
    model.config = SimpleNamespace(image_token_id=7, video_token_index=8, audio_token_id=True, vocab_size=5)
    assert media_ids(model) == {7: "image", 8: "video"}
    model.config = Config()
    assert media_ids(model) == {9: "audio"}
    model.config.image_token_index = 7.0
    assert media_ids(model) == {9: "audio"}
    assert name_media(["[IMG]", "<|audio_token|>", "x", "<IMG_CONTEXT>"]) == (
        "image 0[0]",
        "audio[0]",
        "x",
        "image 1[0]",
    )
    assert not is_named("image x[3]", "image")
    assert is_named("a[", "a")
    assert not is_named("cat", "ca")


def test_the_ids_of_the_running_model():
    ids = {7: "image"}

    def names(input_ids, **more):
        def attend():
            return named_input_ids(ids, **more)

        return attend()

    def decode(input_ids, encoder_hidden_states=None):
        return named_input_ids(ids)

    text = torch.tensor([[7, 7, 3], [5, 7, 3]])
    expected = (("image[0]", "image[1]", "#3"), ("#5", "image[0]", "#3"))
    found, named = names(text)
    assert found is text
    assert named == expected
    assert names(text, is_known=lambda x: x is text) is None
    assert names(text.float()) is None
    assert names(text[0]) is None
    assert names(None) is None
    assert names(text.to("meta"))[1] == ()
    assert names(text > 3)[1] == ()
    assert named_input_ids(ids) is None
    assert decode(text, encoder_hidden_states=text) is None

    def inner():
        return named_input_ids(ids, depth=1)

    def outer(input_ids):
        return inner()

    assert outer(text)[1] == expected


def test_modules_are_those_of_torch_without_the_empty_places():
    model = nn.Sequential(nn.Linear(2, 3), nn.ModuleDict({"inner": nn.Sequential(nn.Linear(3, 5))}))
    model.register_module("nothing", None)
    model[1].register_module("nothing", None)
    found = modules._modules_of(model)
    assert set(map(id, found)) == set(map(id, model.modules()))
    assert len(found) == 5
