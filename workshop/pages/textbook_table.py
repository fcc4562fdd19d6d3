# ruff: noqa: E501
"""Write the table of docs/lookup/textbook.md: what the documents hold, where it is here, and the test that runs it."""

import ast
import os
import re
from pathlib import Path

from workshop import ROOT

PAGE = ROOT / "docs" / "lookup" / "textbook.md"
MARK = re.compile(r"(<!-- (\d{3}) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = tuple[str, list[str], str]  # what it is there; "file::name" or a page here; the test

REFERENCE = "sightline/attention/reference.py::scaled_dot_product_attention"
ATTENTION = "sightline/attention/attend.py::attention"
SINUSOIDAL = "sightline/positions/sinusoidal.py::sinusoidal"
SHIFT = "sightline/positions/sinusoidal.py::shift_matrix"
MULTIHEAD = "sightline/attention/multihead.py::MultiheadAttention"
TRANSFORMER = "sightline/layers/transformer.py::Transformer"
RECURRENT = "sightline/models/rnn.py::RecurrentTranslator"
SEEDS = "sightline/textbook.py"

TABLE: dict[str, list[Row]] = {
    "000": [
        ("Home work 8, scaled dot product attention", [MULTIHEAD, REFERENCE], "test_scaled_dot_product_attention_the_manual_way"),
        ("Positional encoding, the formulas", [SINUSOIDAL], "test_the_encoding_is_the_formula"),
        ("The wavelengths form a geometric progression", [SINUSOIDAL], "test_the_wavelengths_form_a_geometric_progression"),
        ("PE(pos + k) is a linear function of PE(pos)", [SHIFT], "test_a_position_further_on_is_a_linear_function_of_the_position"),
        ("Longer sequences than in training", ["sightline/positions/sinusoidal.py::SinusoidalPositions"], "test_the_encoding_goes_on_beyond_any_length_that_was_trained"),
        ("Figure 1, the Transformer", [TRANSFORMER, "docs/learn/08_transformer.md"], "test_the_transformer_adds_it_to_the_input_of_both_stacks"),
    ],
    "001": [
        ("Exercise 1, task 1: `PositionalEncoding(d_model, max_len)`, `get_encoding`", [f"{SEEDS}::PositionalEncoding", SINUSOIDAL], "test_exercise_1_task_1_positional_encoding"),
        ("Exercise 1, task 1: `add_positional_encoding`", [f"{SEEDS}::add_positional_encoding"], "test_exercise_1_task_1_positional_encoding"),
        ("Exercise 1, task 1: the loops", [SINUSOIDAL], "test_exercise_1_the_loops_of_the_document"),
        ("Exercise 1, task 2: `visualize_positional_encoding`, the heatmap", [f"{SEEDS}::visualize_positional_encoding", "sightline/show/heatmap.py::positions"], "test_exercise_1_task_2_heatmap"),
        ("Exercise 2, task 1: `att_score(Q, K, V)`", [f"{SEEDS}::att_score", REFERENCE], "test_exercise_2_task_1_attention_score"),
        ("Exercise 2, task 2: `create_mask(seq_len)`", [f"{SEEDS}::create_mask", "sightline/attention/masks.py::causal"], "test_exercise_2_task_2_masking"),
        ("Exercise 2, task 2: `attention_score(Q, K, V, mask)`", [f"{SEEDS}::attention_score", REFERENCE], "test_exercise_2_task_2_masking"),
        ("Exercise 3: `SelfAttention(d_in, d_k, d_v)`", [f"{SEEDS}::SelfAttention", "sightline/attention/multihead.py::SelfAttention"], "test_exercise_3_self_attention"),
        ("Exercise 3: permutation-equivalent", ["sightline/attention/multihead.py::SelfAttention"], "test_self_attention_is_permutation_equivariant_on_inputs_that_differ"),
        ("Exercise 4: `MultiHeadSelfAttention(d_in, d_k, d_v, num_heads)`", [f"{SEEDS}::MultiHeadSelfAttention", "sightline/attention/multihead.py::MultiHeadSelfAttention"], "test_exercise_4_multi_head_self_attention"),
    ],
    "002": [
        ("Exercise 1: `scaled_dot_product_attention(Q, K, V)`", [f"{SEEDS}::scaled_dot_product_attention", REFERENCE], "test_exercise_1_unmasked"),
        ("Exercise 2: the same with `mask`, ones for positions to attend to", [f"{SEEDS}::scaled_dot_product_attention", "sightline/attention/masks.py::from_ones"], "test_exercise_2_masked"),
        ("Exercise 2: masked positions are filled before the softmax", [REFERENCE], "test_exercise_2_masked_positions_are_filled_before_the_softmax"),
    ],
    "003": [
        ("Attention(Q, K, V)", [REFERENCE, ATTENTION], "test_each_element_attends_to_every_other_and_becomes_query_key_and_value"),
        ("Self-attention: each element attends to every other", ["sightline/attention/multihead.py::SelfAttention"], "test_each_element_attends_to_every_other_and_becomes_query_key_and_value"),
        ("Dividing makes it easier to train", ["docs/learn/03_scaled_dot_product.md"], "test_without_the_root_the_softmax_saturates_and_gradients_vanish"),
        ("Not stepping through a sequence", [ATTENTION, "docs/learn/06_self_attention.md"], "test_it_does_not_step_through_the_sequence"),
        ("MultiHead(Q, K, V), h = 8, without biases", [MULTIHEAD], "test_eight_heads_by_hand"),
        ("M with M [sin, cos] = [sin, cos] further on", [SHIFT], "test_a_shift_turns_each_pair_of_sine_and_cosine"),
        ("Positions are added, fixed or learned", ["sightline/positions/sinusoidal.py::SinusoidalPositions", "sightline/positions/learned.py::LearnedPositions"], "test_positions_are_added_and_are_fixed_or_learned"),
        ("Full architecture", [TRANSFORMER, "docs/learn/08_transformer.md"], "test_a_transformer_learns_to_caption_images_and_shows_where_it_looked"),
        ("Training a transformer to caption an image, and visualising it", ["sightline/models/captioner.py::Captioner", "docs/lookup/captioning.md"], "test_a_transformer_learns_to_caption_images_and_shows_where_it_looked"),
    ],
    "004": [
        ("1: sequential, and one vector forgets", [RECURRENT, "docs/learn/01_soft_dictionary.md"], "test_without_attention_one_vector_stands_for_the_whole_sentence"),
        ("Definition 1.1, equation (1): dot", ["sightline/attention/scores.py::Dot"], "test_definition_1_1_score_functions"),
        ("Equation (2): cosine", ["sightline/attention/scores.py::Cosine"], "test_definition_1_1_score_functions"),
        ("Equations (3), (4): keys, values, queries of states", [RECURRENT], "test_the_context_joins_the_decoder_and_the_maps_are_learned"),
        ("Definition 1.2, equations (5), (6), (7)", [ATTENTION, RECURRENT], "test_definition_1_2_vanilla_attention_step_by_step"),
        ("The context beside the decoder's state; Q, K, V learned", [RECURRENT], "test_the_context_joins_the_decoder_and_the_maps_are_learned"),
        ("Example 1.1, 1: general", ["sightline/attention/scores.py::General"], "test_example_1_1_score_functions_and_what_they_learn"),
        ("Example 1.1, 2: reduced rank", ["sightline/attention/scores.py::LowRank"], "test_example_1_1_score_functions_and_what_they_learn"),
        ("Example 1.1, 3: additive", ["sightline/attention/scores.py::Additive"], "test_example_1_1_score_functions_and_what_they_learn"),
        ("Example 1.2: an image as 196 x 768", ["sightline/models/vit_parts.py::patches", "sightline/positions/grid.py::sinusoidal_2d"], "test_example_1_2_an_image_as_196_patches_of_768_numbers"),
        ("Definition 2.1, equations (8) to (12)", [REFERENCE, "sightline/attention/multihead.py::SelfAttention"], "test_definition_2_1_word_by_word_and_all_at_once"),
        ("Footnote b: the variance scales with d", ["docs/learn/03_scaled_dot_product.md"], "test_the_variance_of_a_dot_product_grows_with_the_width"),
        ("Equations (13), (14): the index, its share", ["docs/learn/05_positions.md"], "test_equations_13_and_14_the_index_corrupts_and_its_share_depends_on_the_length"),
        ("Definition 2.2, equation (15)", [SINUSOIDAL], "test_definition_2_2_follows_the_paper_where_equation_15_counts_the_pairs_twice"),
        ("2.3: an MLP after attention", ["sightline/layers/encoder.py::TransformerEncoderLayer"], "test_an_mlp_after_attention_is_no_linear_map"),
        ("Example 2.1: the bank and the money", ["docs/learn/07_many_heads.md"], "test_example_2_1_heads_look_for_different_reasons"),
        ("Definition 2.3, equation (16), figure 1: many heads", [MULTIHEAD, "docs/learn/07_many_heads.md"], "test_definition_2_3_every_head_is_an_attention_of_its_own_width"),
        ("Footnote a: heads do not become the same", ["docs/learn/07_many_heads.md"], "test_heads_do_not_become_the_same"),
        ("Figure 2, the Transformer; bidirectional and unidirectional", [TRANSFORMER, "docs/learn/08_transformer.md"], "test_encoding_looks_both_ways_and_generation_only_back"),
        ("Equation (17): cross-attention", ["sightline/layers/decoder.py::TransformerDecoderLayer"], "test_equation_17_cross_attention_takes_keys_and_values_of_the_encoder"),
        ("Quadratic in the length, where an RNN is linear", ["docs/learn/08_transformer.md"], "test_attention_is_quadratic_where_recurrence_is_linear"),
        ("2.3.1 Masking", ["sightline/attention/masks.py::causal", "docs/lookup/masks.md"], "test_masking_sets_the_weights_of_future_words_to_zero"),
        ("2.4.1, equation (18): in projections, the shapes printed", [MULTIHEAD], "test_in_projections_have_the_shapes_that_are_printed"),
        ("2.4.2 to 2.4.4: the forward pass of MultiheadAttention", [MULTIHEAD], "test_the_forward_pass_line_by_line"),
        ("2.4.4: its assertions", [MULTIHEAD], "test_the_assertions_that_are_printed"),
        ("2.4.5: `nn.Transformer()` as it is printed", [TRANSFORMER], "test_the_transformer_is_made_as_it_is_printed"),
        ("3: Vision Transformers", ["sightline/models/vit.py::VisionTransformer", "docs/lookup/classification.md", "docs/learn/13_vision.md"], "test_a_vision_transformer_classifies_patches"),
    ],
}  # fmt: skip


def line_of(path: Path, name: str) -> int:
    """Where a name is defined at the top of a file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node.lineno
    raise ValueError(f"{path} defines no {name!r}; change the row in workshop/pages/textbook_table.py")


def link(place: str) -> str:
    """A place here as Markdown: a name with its file and line, or a page."""
    file, _, name = place.partition("::")
    if not name:
        return f"[{Path(file).name}]({os.path.relpath(ROOT / file, PAGE.parent)})"
    line = line_of(ROOT / file, name)
    return f"[`{name}`](../../{file}#L{line}) {file.removeprefix('sightline/')}:{line}"


def table(document: str) -> str:
    """The rows of a document as Markdown."""
    rows = ["| in the document | here | run by |", "|---|---|---|"]
    for what, places, test in TABLE[document]:
        rows.append(f"| {what} | {'; '.join(map(link, places))} | `{test}` |")
    return "\n".join(rows) + "\n"


def textbook() -> str:
    """Return the page with its tables written anew."""
    page = PAGE.read_text(encoding="utf-8")
    return MARK.sub(lambda found: found[1] + table(found[2]) + found[3], page)
