"""Models that read text and images: patches have names, and the weight on them is asked for by name."""

import warnings

import pytest
import torch
from torch import nn

import sightline as sl
from sightline.watch.media_tokens import name_media
from tests.look.look_oracle import near, randn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()

pytestmark = pytest.mark.filterwarnings("ignore")

V, B, IMAGE = 97, 2, 90
TEXT = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
}
EYE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "image_size": 12,
    "patch_size": 4,
}


def llava():
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**EYE),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_id=IMAGE,
        vision_feature_select_strategy="default",
        vision_feature_layer=-1,
    )
    return transformers.LlavaForConditionalGeneration(config), {
        "pixel_values": randn(B, 3, 12, 12, dtype=torch.float32)
    }


def paligemma():
    config = transformers.PaliGemmaConfig(
        vision_config=transformers.SiglipVisionConfig(**EYE, vision_use_head=False),
        text_config=transformers.GemmaConfig(**TEXT, head_dim=8),
        image_token_id=IMAGE,
        projection_dim=32,
    )
    return transformers.PaliGemmaForConditionalGeneration(config), {
        "pixel_values": randn(B, 3, 12, 12, dtype=torch.float32)
    }


def qwen2_vl():
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    config = transformers.Qwen2VLConfig(
        text_config=TEXT | {"rope_parameters": rope},
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 1,
                       "patch_size": 4, "spatial_merge_size": 1, "temporal_patch_size": 1},
        image_token_id=IMAGE, video_token_id=91, vision_start_token_id=92, vision_end_token_id=93,
    )  # fmt: skip
    pixels = {
        "pixel_values": randn(B * 9, 3 * 16, dtype=torch.float32),
        "image_grid_thw": torch.tensor([[1, 3, 3]] * B),
    }
    return transformers.Qwen2VLForConditionalGeneration(config), pixels


MODELS = {"LLaVA": llava, "PaliGemma": paligemma, "Qwen2-VL": qwen2_vl}


@pytest.fixture(scope="module", params=MODELS)
def model_and_inputs(request):
    torch.manual_seed(0)
    model, pixels = MODELS[request.param]()
    ids = torch.randint(1, 80, (B, 17), generator=torch.Generator().manual_seed(1))
    ids[0, 2:11] = IMAGE
    ids[1, 5:14] = IMAGE
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)} | pixels
    if request.param == "Qwen2-VL":
        inputs["mm_token_type_ids"] = (ids == IMAGE).long()
    return model.eval(), inputs


def test_patches_are_named_and_their_weight_is_asked_for_by_name(model_and_inputs):
    model, inputs = model_and_inputs
    with torch.no_grad():
        blind = model(**inputs).logits
        with sl.watch(model, keep=True) as seen:
            assert torch.equal(model(**inputs).logits, blind)
    ids = inputs["input_ids"]
    patches = ids == IMAGE
    layers = [name for name in seen.names() if "language_model" in name]
    assert len(layers) == 2
    assert len(seen) == 4  # those of the vision tower have no text
    assert seen.tokens[0][:4] == (f"#{ids[0, 0]}", f"#{ids[0, 1]}", "image[0]", "image[1]")
    for name in layers:
        sight = seen[name]
        assert [sum(t.startswith("image[") for t in text) for text in sight.tokens] == [9, 9]
        expected = (sight.rows(range(17)) * patches[:, None, None]).sum(-1)
        mass = sight.mass(["image", [0]])
        near(mass[..., 0], expected, atol=1e-6)
        near(mass[..., 1], sight.rows(range(17))[..., 0], atol=1e-6)
        near(sight[1].mass({"picture": "image"})[..., 0], expected[1], atol=1e-6)
        near(sight.mass(["image[3]"])[1, ..., 0], sight.rows(range(17))[1, ..., 8], atol=1e-6)
    assert not any(call.tokens for name, calls in seen.items() if name not in layers for call in calls)


def test_names_last_while_the_model_writes(model_and_inputs):
    model, inputs = model_and_inputs
    with sl.watch(model, keep=True) as seen:
        out = model.generate(**inputs, max_new_tokens=5, min_new_tokens=5, do_sample=False)
    name = next(name for name in seen.names() if "language_model" in name)
    (run,) = seen.runs(name)
    rows = run.rows(range(run.t))
    patches = torch.nn.functional.pad(inputs["input_ids"] == IMAGE, (0, rows.size(-1) - 17))
    near(run.mass(["image"])[..., 0], (rows * patches[:, None, None]).sum(-1), atol=1e-6)
    near(seen.calls(name)[-1].mass(["image"])[..., 0], run.mass(["image"])[..., -1:, 0], atol=1e-6)
    assert out.size(1) == 22


def test_placeholders_of_tokenizers():
    text = [
        "<s>",
        "<image>",
        "<image>",
        "▁What",
        "?",
        "<|image_pad|>",
        "<image_soft_token>",
        "[IMG]",
        "<video>",
    ]
    named = (
        "<s>",
        "image 0[0]",
        "image 0[1]",
        "What",
        "?",
        "image 1[0]",
        "image 1[1]",
        "image 1[2]",
        "video[0]",
    )
    attn, x = nn.MultiheadAttention(8, 2, batch_first=True), randn(1, 9, 8, dtype=torch.float32)
    with sl.watch(attn, keep=True, tokens=text) as seen:
        attn(x, x, x, need_weights=False)
    assert seen[""].tokens == (named,)
    rows = seen[""].rows(range(9))
    near(seen[""].mass(["image"])[..., 0], rows[..., [1, 2, 5, 6, 7]].sum(-1), atol=1e-6)
    near(
        seen[""].mass(["image 1", "video"]),
        torch.stack([rows[..., 5:8].sum(-1), rows[..., 8]], -1),
        atol=1e-6,
    )
    assert name_media(["imagine", "image"]) == ("imagine", "image")


@pytest.mark.bad_input
def test_names_that_are_none():
    attn, x = nn.MultiheadAttention(8, 2, batch_first=True), randn(1, 3, 8, dtype=torch.float32)
    with sl.watch(attn, keep=True) as bare:
        attn(x, x, x, need_weights=False)
    with pytest.raises(ValueError, match=r"'image' is asked for by the name of tokens, .* knows no tokens"):
        bare[""].mass(["image"])
    with sl.watch(attn, keep=True, tokens=["<image>", "<image>", "cat"]) as seen:
        attn(x, x, x, need_weights=False)
    with pytest.raises(ValueError, match=r"no token is called 'imige', .*'image'"):
        seen[""].mass(["imige"])


def test_an_encoder_decoder_names_the_keys_of_its_cross_attention():
    """The decoder has input_ids of its own, which are no names for the encoder's keys."""
    sides = {f"{side}_{what}": n for side in ("encoder", "decoder")
             for what, n in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 8))}  # fmt: skip
    eye = {"embed_dim": [8, 8], "depths": [1, 1], "num_heads": [2, 2], "num_groups": [2, 2],
           "patch_size": [7, 3],
           "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True], "window_size": 3,
           "projection_dim": 32}  # fmt: skip
    config = transformers.Florence2Config(
        text_config={"model_type": "bart", "d_model": 32, "vocab_size": V, "pad_token_id": 0} | sides,
        vision_config=eye,
        image_token_id=IMAGE,
    )
    model = transformers.Florence2Model(config).eval()
    ids = torch.tensor([[5, *[IMAGE] * 10, 6, 7]])
    inputs = {"pixel_values": randn(1, 3, 24, 24, dtype=torch.float32), "decoder_input_ids": ids[:, -3:]}
    with torch.no_grad(), sl.watch(model) as seen:
        model(input_ids=ids, **inputs)
    cross = seen["language_model.decoder.layers.0.encoder_attn"]
    assert (cross.t, cross.s) == (3, 13)
    assert cross.tokens[0][:3] == ("#5", "image[0]", "image[1]")
    assert seen["language_model.decoder.layers.0.self_attn"].tokens == ()
