"""Weights of timm and Hugging Face: the same logits from the same images."""

import pytest
import torch
import torch.nn.functional as F

from sightline.models.vit_weights import config_from, read_vit, weights_from

E, H, LAYERS, FF, PATCH, SIDE, CLASSES = 12, 3, 2, 20, 5, 3, 7


def timm_weights(prefix_positions=1):
    g = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(*shape, generator=g) * 0.3

    weights = {
        "cls_token": draw(1, 1, E),
        "pos_embed": draw(1, SIDE**2 + prefix_positions, E),
        "patch_embed.proj.weight": draw(E, 3, PATCH, PATCH),
        "patch_embed.proj.bias": draw(E),
        "norm.weight": draw(E),
        "norm.bias": draw(E),
        "head.weight": draw(CLASSES, E),
        "head.bias": draw(CLASSES),
    }
    shapes = {
        "norm1.weight": (E,),
        "norm1.bias": (E,),
        "attn.qkv.weight": (3 * E, E),
        "attn.qkv.bias": (3 * E,),
        "attn.proj.weight": (E, E),
        "attn.proj.bias": (E,),
        "norm2.weight": (E,),
        "norm2.bias": (E,),
        "mlp.fc1.weight": (FF, E),
        "mlp.fc1.bias": (FF,),
        "mlp.fc2.weight": (E, FF),
        "mlp.fc2.bias": (E,),
    }
    for i in range(LAYERS):
        weights |= {f"blocks.{i}.{name}": draw(*shape) for name, shape in shapes.items()}
    return weights


def timm_forward(w, images):
    """timm's ViT, written out with torch's functions alone."""
    x = F.conv2d(images, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=PATCH)
    x = x.flatten(2).transpose(1, 2)
    token = w["cls_token"].expand(len(x), -1, -1)
    if w["pos_embed"].size(1) == x.size(1):  # no_embed_class
        x = torch.cat([token, x + w["pos_embed"]], 1)
    else:
        x = torch.cat([token, x], 1) + w["pos_embed"]
    for i in range(LAYERS):

        def part(name, i=i):
            return w[f"blocks.{i}.{name}.weight"], w[f"blocks.{i}.{name}.bias"]

        h = F.layer_norm(x, (E,), *part("norm1"), eps=1e-6)
        qkv = F.linear(h, *part("attn.qkv")).reshape(len(x), x.size(1), 3, H, E // H).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = (q @ k.mT * (E // H) ** -0.5).softmax(-1)
        x = x + F.linear((weights @ v).transpose(1, 2).flatten(2), *part("attn.proj"))
        h = F.layer_norm(x, (E,), *part("norm2"), eps=1e-6)
        x = x + F.linear(F.gelu(F.linear(h, *part("mlp.fc1"))), *part("mlp.fc2"))
    x = F.layer_norm(x, (E,), w["norm.weight"], w["norm.bias"], eps=1e-6)
    return F.linear(x[:, 0], w["head.weight"], w["head.bias"])


@pytest.mark.parametrize("prefix_positions", [0, 1])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_timm_weights_give_timms_logits(tmp_path, prefix_positions, suffix):
    from safetensors.torch import save_file

    weights = timm_weights(prefix_positions)
    path = tmp_path / f"vit{suffix}"
    if suffix == ".pth":
        torch.save(weights, path)
    else:
        save_file(weights, path)
    model = read_vit(path, n_heads=H)
    images = torch.randn(2, 3, SIDE * PATCH, SIDE * PATCH)
    with torch.no_grad():
        torch.testing.assert_close(model(images), timm_forward(weights, images), rtol=1e-4, atol=1e-5)


def hugging_face(*, norm_eps):
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=E,
        num_hidden_layers=LAYERS,
        num_attention_heads=H,
        intermediate_size=FF,
        image_size=SIDE * PATCH,
        patch_size=PATCH,
        num_labels=CLASSES,
        layer_norm_eps=norm_eps,
    )
    theirs = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return theirs


@pytest.mark.parametrize("saved", [True, False])
def test_hugging_face_weights_give_its_logits(tmp_path, saved):
    theirs = hugging_face(norm_eps=0.03)  # large, to be seen
    if saved:
        theirs.save_pretrained(tmp_path)
        model = read_vit(tmp_path)
    else:
        from sightline.models.vit import VisionTransformer

        weights = weights_from(theirs.state_dict())
        model = VisionTransformer(config_from(weights, n_heads=H, norm_eps=0.03)).eval()
        model.load_state_dict(weights)
    images = torch.randn(2, 3, SIDE * PATCH, SIDE * PATCH)
    with torch.no_grad():
        torch.testing.assert_close(model(images), theirs(images).logits, rtol=1e-4, atol=1e-5)


def test_at_another_size_the_logits_are_hugging_faces_too():
    theirs = hugging_face(norm_eps=1e-6)
    with torch.no_grad():
        images = torch.randn(2, 3, 5 * PATCH, 4 * PATCH)
        expected = theirs(images, interpolate_pos_encoding=True).logits
        found = read_vit_from(theirs.state_dict())(images)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_names_before_transformers_5_mean_the_same():
    new, old = {}, {}
    for name, tensor in timm_weights().items():
        if "qkv" in name:
            layer, kind = name.split(".")[1], name.split(".")[-1]
            for part, now, before in zip(tensor.chunk(3), "qkv", ("query", "key", "value"), strict=True):
                new[f"vit.layers.{layer}.attention.{now}_proj.{kind}"] = part
                old[f"vit.encoder.layer.{layer}.attention.attention.{before}.{kind}"] = part
    rest = {
        "vit.embeddings.cls_token": torch.zeros(1, 1, E),
        "vit.embeddings.position_embeddings": torch.ones(1, 10, E),
        "vit.embeddings.patch_embeddings.projection.weight": torch.zeros(E, 3, 5, 5),
        "vit.layernorm.weight": torch.ones(E),
        "vit.pooler.dense.weight": torch.ones(E, E),
    }
    new |= rest | {
        "vit.layers.0.mlp.fc1.weight": torch.ones(FF, E),
        "vit.layers.0.mlp.fc2.weight": torch.ones(E, FF),
    }
    old |= rest | {
        "vit.encoder.layer.0.intermediate.dense.weight": torch.ones(FF, E),
        "vit.encoder.layer.0.output.dense.weight": torch.ones(E, FF),
    }
    found, expected = weights_from(old), weights_from(new)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert "layers.1.self_attn.in_proj_weight" in found


def test_a_model_of_another_size_takes_the_weights_positions_stretched():
    weights, images = timm_weights(), torch.randn(2, 3, 4 * PATCH, 2 * PATCH)
    token, table = weights["pos_embed"].split([1, SIDE**2], dim=1)
    table = table.unflatten(1, (SIDE, SIDE)).permute(0, 3, 1, 2)
    stretched = F.interpolate(table, size=(4, 2), mode="bicubic").flatten(2).mT
    expected = timm_forward(weights | {"pos_embed": torch.cat([token, stretched], 1)}, images)
    torch.testing.assert_close(read_vit_from(weights)(images), expected)


def read_vit_from(weights):
    from sightline.models.vit import VisionTransformer

    ours = weights_from(weights)
    model = VisionTransformer(config_from(ours, n_heads=H))
    model.load_state_dict(ours)
    return model.eval()


@pytest.mark.bad_input
def test_what_has_no_place_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"'blocks.0.ls1.gamma' \(12,\) has no place"):
        weights_from(timm_weights() | {"blocks.0.ls1.gamma": torch.ones(E)})
    weights = timm_weights()
    del weights["patch_embed.proj.weight"]
    with pytest.raises(ValueError, match=r"has 'stem.weight', these weights don't"):
        weights_from(weights)
    torch.save(timm_weights(), tmp_path / "a.pth")
    with pytest.raises(ValueError, match="does not say how many heads"):
        read_vit(tmp_path / "a.pth")
    with pytest.raises(ValueError, match="n_heads=5 for d_model=12"):
        read_vit(tmp_path / "a.pth", n_heads=5)
    torch.save({"model": timm_weights(), "epoch": 3}, tmp_path / "b.pth")
    with pytest.raises(ValueError, match=r"'model', 'epoch'.*save the state_dict alone"):
        read_vit(tmp_path / "b.pth", n_heads=H)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="is 'bert'"):
        read_vit(tmp_path)
    # 2 x 8 patches, which would pass for 4 x 4
    (tmp_path / "config.json").write_text('{"model_type": "vit", "image_size": [10, 40]}')
    with pytest.raises(ValueError, match=r"trained on squares.* is of 10 x 40 pixels"):
        read_vit(tmp_path)
