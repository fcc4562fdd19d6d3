"""``sightline look`` on tiny Hugging Face folders, made here from random weights."""

import json
import os
import re

import matplotlib.image
import numpy as np
import pytest
import torch
from PIL import Image

import sightline as sl
from sightline import show
from sightline.look.heads import head_table
from sightline.tasks import hugging_face
from sightline.watch.names import matches
from tests.cli.look_folders import BERT, TEXT, WORDS, run, save, save_bert, transformers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("bert"))


def test_the_table_has_every_head(folder):
    code, out, err = run(folder, TEXT)
    assert (code, err) == (0, "")
    first, header, *rows = out.splitlines()
    assert first == f"BertModel in {folder}: 8 tokens"
    assert header.split() == ["layer", "head", "entropy", "evenness", "distance", "first", "peak"]
    assert [row.split()[:2] for row in rows[:6]] == [
        [f"encoder.layer.{i}.attention.self", str(h)] for i in range(2) for h in range(3)
    ]
    assert [row.endswith("* sharp") for row in rows[:6]].count(True) == 3
    assert out.splitlines()[-1].startswith("* sharp: the 3 heads of the lowest evenness")


def test_json_holds_the_same_numbers(folder):
    code, out, err = run(folder, TEXT, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    ids = torch.tensor([[WORDS.index(word) for word in ["[CLS]", *TEXT.split()]]])
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(ids)
    for row, expected in zip(found["heads"], head_table(seen), strict=True):
        assert row["layer"] == expected.layer
        for name in ("entropy", "distance", "first", "peak"):
            assert row[name] == pytest.approx(getattr(expected, name), rel=1e-5)
    sharp = sorted(row["entropy"] for row in found["heads"])[:3]
    assert sorted(row["entropy"] for row in found["heads"] if row["sharpest"]) == sharp
    assert found["keys"]["encoder.layer.1.attention.self"] == ["[CLS]", *TEXT.split()]


def explorer(path):
    found = re.search(r"data-explorer>(.*?)</script>", path.read_text(encoding="utf-8"))
    return json.loads(found.group(1))


def test_the_page_is_one_file_and_escapes_tokens(folder, tmp_path):
    out = tmp_path / "new" / "page.html"
    assert run(folder, TEXT, "--out", out).err == f"{out}\n"
    text = out.read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "\\u003cb\\u003e\\u0026amp;\\u003c/b\\u003e" in text
    assert not re.search(r"(src|href)=\"(?!data:)|<link|https?://", text)
    meta = explorer(out)["meta"]
    assert [one["name"] for one in meta["sights"]] == [f"encoder.layer.{i}.attention.self" for i in (0, 1)]
    assert [one["heads"] for one in meta["sights"]] == [3, 3]
    assert meta["tokens"] == [{"n": len(TEXT.split()) + 1, "words": ["[CLS]", *TEXT.split()]}]
    assert folder.name in meta["model"]
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]


def test_a_layer_is_chosen(folder, tmp_path):
    shapes = {}
    for name, layer in {"one": ["--layer", "layer.1"], "all": []}.items():
        out = tmp_path / f"{name}.png"
        code, printed, _ = run(folder, TEXT, *layer, "--out", out)
        assert code == 0
        assert ("encoder.layer.0" in printed) == (name == "all")
        shapes[name] = matplotlib.image.imread(out).shape
    assert shapes["one"] != shapes["all"]
    run(folder, TEXT, "--layer", "*", "--out", tmp_path / "page.html")
    assert len(explorer(tmp_path / "page.html")["meta"]["sights"]) == 2


def test_the_heads_of_a_layer_have_tokens_at_their_sides(folder, tmp_path, monkeypatch):
    drawn = []
    heads = show.heads
    monkeypatch.setattr(show, "heads", lambda *args: drawn.append(heads(*args)) or drawn[-1])
    run(folder, TEXT, "--layer", "layer.1", "--out", tmp_path / "heads.png")
    ax = drawn.pop().axes[0]
    for axis in (ax.xaxis, ax.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == ["[CLS]", *TEXT.split()]


def test_queries_of_an_encoder_decoder(tmp_path):
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_layers": 1, "num_heads": 3, "d_kv": 4, "d_ff": 7, "vocab_size": len(WORDS)}
    save(tmp_path, transformers.T5Model(transformers.T5Config(**sizes, decoder_start_token_id=0)))
    watched = hugging_face.open_folder(tmp_path).watch(TEXT, lambda _: True)
    source, target = ["[CLS]", *TEXT.split()], ["[UNK]", "[CLS]", *TEXT.split()[:-1]]
    sides = {
        "encoder.block.0.layer.0.SelfAttention": (source, source),
        "decoder.block.0.layer.0.SelfAttention": (target, target),
        "decoder.block.0.layer.1.EncDecAttention": (target, source),
    }
    assert {name: (watched.queries_of(name), watched.keys_of(name)) for name in watched.seen} == sides


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("*.3.*", True),
        ("3", True),
        ("layer.3", True),
        ("encoder.layer.3.self", True),
        ("13", False),
        ("l", False),
    ],
)
def test_patterns(pattern, fits):
    assert matches("encoder.layer.3.self", pattern) is fits


def test_text_from_standard_input(folder):
    assert run(folder, "-", stdin="the cat").out.startswith(f"BertModel in {folder}: 3 tokens")


def test_a_decoder_looks_back(tmp_path):
    config = transformers.GPT2Config(vocab_size=len(WORDS), n_embd=12, n_layer=2, n_head=3, n_positions=11)
    save(tmp_path, transformers.GPT2LMHeadModel(config))
    code, out, err = run(tmp_path, TEXT, "--json")
    assert (code, err) == (0, "")
    heads = json.loads(out)["heads"]
    assert len(heads) == 6
    assert all(0 < head["distance"] < 4 and head["first"] > 1 / 8 for head in heads)


def test_an_encoder_decoder_reads_on_both_sides(tmp_path):
    config = transformers.T5Config(
        vocab_size=len(WORDS), d_model=12, d_kv=5, d_ff=7, num_layers=1, num_heads=3, decoder_start_token_id=0
    )
    save(tmp_path, transformers.T5ForConditionalGeneration(config))
    code, out, err = run(tmp_path, TEXT, "--json", "--out", tmp_path / "page.html")
    assert (code, err) == (0, f"{tmp_path / 'page.html'}\n")
    found = json.loads(out)
    kinds = {head["layer"].split(".")[-1]: head["distance"] for head in found["heads"]}
    assert kinds["EncDecAttention"] is None
    assert kinds["SelfAttention"] is not None
    tokens = ["[CLS]", *TEXT.split()]
    names = [name for name in found["keys"] if name.startswith("decoder")]
    assert [found["keys"][name] for name in names] == [["[UNK]", *tokens[:-1]], tokens]


def test_nothing_is_left_behind(folder):
    logging = transformers.utils.logging
    before = os.environ.get("HF_HUB_OFFLINE"), logging.get_verbosity(), logging.is_progress_bar_enabled()
    run(folder, TEXT)
    after = os.environ.get("HF_HUB_OFFLINE"), logging.get_verbosity(), logging.is_progress_bar_enabled()
    assert after == before


def test_positions_kept_for_padding_are_not_counted():
    config = transformers.RobertaConfig(**BERT | {"vocab_size": 13, "pad_token_id": 1})
    model = transformers.RobertaModel(config)
    tokenizer = type("T", (), {"model_max_length": 10**30})
    assert hugging_face._longest(model, tokenizer) == 9


# Images, files and several inputs


@pytest.fixture(scope="module")
def vision_folder(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 7}
    folder = tmp_path_factory.mktemp("vit")
    transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=20, patch_size=5)).save_pretrained(
        folder
    )
    normal = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_resize": True, "do_rescale": True}
    about = {"image_processor_type": "ViTImageProcessor", "size": {"height": 20, "width": 20}, **normal}
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for i, name in enumerate(("a", "b")):
        pixels = np.random.default_rng(i).integers(0, 255, (31, 43, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    return [folder / "a.png", folder / "b.png"]


def test_an_image(vision_folder, images, tmp_path):
    code, out, err = run(vision_folder, images[0], "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["image"] == "a.png"
    (keys,) = {tuple(keys) for keys in found["keys"].values()}
    assert keys[:3] == ("[CLS]", "0,0", "0,1")
    assert keys[-1] == "3,3"
    model = transformers.ViTModel.from_pretrained(vision_folder, attn_implementation="sdpa").eval()
    square = Image.open(images[0]).resize((20, 20), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(square)).permute(2, 0, 1)[None] / 127.5 - 1
    with torch.no_grad(), sl.watch(model, keep=True) as seen:
        model(pixel_values=pixels)
    for row, expected in zip(found["heads"], head_table(seen), strict=True):
        assert row["entropy"] == pytest.approx(expected.entropy, rel=1e-4)
    assert run(vision_folder, images[0]).out.startswith(f"ViTModel in {vision_folder}: a.png, 17 tokens")
    page = tmp_path / "page.html"
    assert run(vision_folder, images[0], "--out", page).code == 0
    assert "What the patches received" in page.read_text(encoding="utf-8")
    assert explorer(page)["meta"]["image"]["rows"] == 4
    assert {one["key_patches"] for one in explorer(page)["meta"]["sights"]} == {1}
    assert run(vision_folder, images[0], "--out", tmp_path / "a.png").code == 0


def test_a_file_of_text_is_a_text(folder, tmp_path):
    (tmp_path / "story.txt").write_text("the cat sat")
    found = json.loads(run(folder, tmp_path / "story.txt", "--json").out)
    assert found["text"] == "the cat sat"
    assert found["heads"] == json.loads(run(folder, "the cat sat", "--json").out)["heads"]


def test_several_inputs(folder, vision_folder, images, tmp_path):
    texts = ["the cat", "the cat sat on"]
    one = [json.loads(run(folder, text, "--json").out) for text in texts]
    assert json.loads(run(folder, *texts, "--json").out) == {"inputs": one}
    printed = run(folder, *texts, "--out", tmp_path / "pages")
    assert printed.err == f"{tmp_path / 'pages' / '1.html'}\n{tmp_path / 'pages' / '2.html'}\n"
    assert "the cat, 3 tokens" in printed.out
    assert "the cat sat on, 5 tokens" in printed.out
    pictures = run(vision_folder, *images, "--out", tmp_path / "seen")
    assert [path.name for path in sorted((tmp_path / "seen").iterdir())] == ["a.html", "b.html"]
    assert pictures.code == 0


@pytest.mark.bad_input
def test_inputs_that_can_not_be(folder, vision_folder, images, tmp_path):
    (tmp_path / "bytes.txt").write_bytes(bytes(range(128, 256)))
    for args, words in (
        ((vision_folder, "a cat"), "reads images, got the text 'a cat'; name the file of an image"),
        ((folder, images[0]), f"reads texts, got the image {str(images[0])!r}; give it a text"),
        ((vision_folder, "no.png"), "there is no image 'no.png'"),
        ((folder, "a", "b", "--out", "x.html"), "shows one input, got 2 and --out 'x.html'; name a folder"),
        ((folder, tmp_path / "bytes.txt"), "is neither an image nor a text in UTF-8"),
        ((folder, "the", " "), "look needs a text to read, got ' '"),
        ((folder, "nofile.txt"), "there is no file 'nofile.txt'"),
        ((folder, "the", tmp_path / "story.rst"), "there is no file"),
    ):
        code, out, err = run(*args)
        assert (code, out) == (2, ""), args
        assert words in err
        assert err.count("\n") == 1


def test_words_that_are_no_files_are_texts(folder):
    for text in ("and/or", "the cat/dog.txt sat", "mr.cat", "1/2.5"):
        assert json.loads(run(folder, text, "--json").out)["text"] == text


def test_files_of_text_are_called_by_their_names(folder, tmp_path):
    (tmp_path / "story.txt").write_text("the cat\nsat on " + "it " * 5)
    (tmp_path / "tale.txt").write_text("the cat")
    printed = run(
        folder, tmp_path / "story.txt", tmp_path / "tale.txt", "it was", "--out", tmp_path / "pages"
    )
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == [
        "3.html",
        "story.html",
        "tale.html",
    ]
    first = [line.partition(": ")[2] for line in printed.out.splitlines() if line.startswith("BertModel")]
    assert first == ["story.txt, 10 tokens", "tale.txt, 3 tokens", "it was, 3 tokens"]


def test_a_model_without_torchs_attention_is_loaded_as_it_attends(tmp_path):
    sizes = {"d_model": 12, "n_layer": 1, "n_head": 3, "d_inner": 7, "vocab_size": len(WORDS)}
    save(tmp_path, transformers.XLNetModel(transformers.XLNetConfig(**sizes)))
    found = run(tmp_path, "the cat sat", "--json")
    assert (found.code, found.err) == (0, "")
    assert {head["layer"] for head in json.loads(found.out)["heads"]} == {"layer.0.rel_attn"}


def test_of_a_text_and_an_image_each_part_of_clip_reads_its_own(tmp_path, images):
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 7}
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": len(WORDS), "max_position_embeddings": 11},
        vision_config={**sizes, "image_size": 16, "patch_size": 4},
        projection_dim=5,
    )
    save(tmp_path, transformers.CLIPModel(config))
    text = run(tmp_path, "the cat sat", "--json")
    assert (text.code, text.err) == (0, "")
    assert {head["layer"] for head in json.loads(text.out)["heads"]} == {
        "text_model.encoder.layers.0.self_attn"
    }
    assert "there is no image processor in" in run(tmp_path, images[0]).err
    crop = {"height": 16, "width": 16}
    transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=crop).save_pretrained(tmp_path)
    image = json.loads(run(tmp_path, images[0], "--json").out)
    assert {head["layer"] for head in image["heads"]} == {"vision_model.encoder.layers.0.self_attn"}
    assert len(image["keys"]["vision_model.encoder.layers.0.self_attn"]) == 17
