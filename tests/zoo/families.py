"""118 architectures of Hugging Face: narrow, with random weights, and what each of them is called with."""

# ruff: noqa: E501 (a table is read by its rows)

from typing import Any

import torch

V, E, H, T, B = 67, 32, 4, 11, 2
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

MLA = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}  # fmt: skip
SPEECH = {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}  # fmt: skip
T5G = BASE | {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": V, "sliding_window": 5}
IMAGE_TOKEN, PATCHES = 60, 9
EYE = {"model_type": "clip_vision_model"} | BASE | IMAGE
READER = {"model_type": "llama", "num_key_value_heads": 2} | BASE | TEXT
SHARPNESS = {
    "T5": 1.5,
    "mT5": 1.5,
    "UMT5": 1.5,
    "Switch Transformers": 1.5,
    "DETR": 1.0,
}  # their scores are large as they are

QWEN_EYE = {"depth": 2, "embed_dim": E, "hidden_size": E, "num_heads": H, "mlp_ratio": 1, "patch_size": 8, "spatial_merge_size": 1, "temporal_patch_size": 1}  # fmt: skip
QWEN_VL = {"vision_config": QWEN_EYE, "text_config": READER | {"model_type": "qwen2_vl_text", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}, "image_token_id": IMAGE_TOKEN, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63}  # fmt: skip
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
    ("Qwen3-MoE", "Qwen3MoeModel", "Qwen3MoeConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}, "text"),
    ("Llama 4, text", "Llama4TextModel", "Llama4TextConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2, "intermediate_size_mlp": 24, "attention_chunk_size": 5}, "text"),
    ("Gemma 4, text", "Gemma4TextModel", "Gemma4TextConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 8, "sliding_window": 5, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": V}, "text"),
    ("Gemma 3n, text", "Gemma3nTextModel", "Gemma3nTextConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5, "vocab_size_per_layer_input": V, "hidden_size_per_layer_input": 8, "laurel_rank": 4, "num_kv_shared_layers": 0, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.0, 0.0]}, "text"),
    ("DeepSeek-V3", "DeepseekV3Model", "DeepseekV3Config", BASE | MLA | {"num_key_value_heads": 4, "n_routed_experts": 4}, "text"),
    ("DeepSeek-V2", "DeepseekV2Model", "DeepseekV2Config", BASE | MLA, "text"),
    ("GLM-4", "Glm4Model", "Glm4Config", BASE | {"num_key_value_heads": 2, "head_dim": 8}, "text"),
    ("GLM-4 MoE", "Glm4MoeModel", "Glm4MoeConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "n_routed_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "n_group": 1, "topk_group": 1}, "text"),
    ("Cohere 2", "Cohere2Model", "Cohere2Config", BASE | {"num_key_value_heads": 2, "sliding_window": 5}, "text"),
    ("SmolLM3", "SmolLM3Model", "SmolLM3Config", BASE | {"num_key_value_heads": 2}, "text"),
    ("OLMo 3", "Olmo3Model", "Olmo3Config", BASE | {"sliding_window": 5}, "text"),
    ("Granite", "GraniteModel", "GraniteConfig", BASE | {"num_key_value_heads": 2}, "text"),
    ("Nemotron", "NemotronModel", "NemotronConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8}, "text"),
    ("StableLM", "StableLmModel", "StableLmConfig", BASE | {"num_key_value_heads": 2}, "text"),
    ("StarCoder 2", "Starcoder2Model", "Starcoder2Config", BASE | {"num_key_value_heads": 2, "sliding_window": 5}, "text"),
    ("Ministral", "MinistralModel", "MinistralConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5}, "text"),
    ("Qwen3-Next", "Qwen3NextModel", "Qwen3NextConfig", BASE | {"num_key_value_heads": 2, "head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}, "text"),
    ("Jamba", "JambaModel", "JambaConfig", BASE | {"num_key_value_heads": 2, "num_experts": 2, "num_experts_per_tok": 1, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False, "mamba_d_state": 4}, "text"),
    ("Bamba", "BambaModel", "BambaConfig", BASE | {"num_key_value_heads": 2, "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 4}, "text"),
    ("Zamba 2", "Zamba2Model", "Zamba2Config", BASE | {"mamba_d_state": 4, "n_mamba_heads": 4, "mamba_headdim": 16, "chunk_size": 8, "layers_block_type": ["mamba", "hybrid"], "num_mem_blocks": 1, "use_mem_rope": True, "attention_head_dim": 16, "attention_hidden_size": 64}, "text"),
    ("Falcon-H1", "FalconH1Model", "FalconH1Config", BASE | {"num_key_value_heads": 2, "head_dim": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64, "mamba_d_state": 4}, "text"),
    ("XLNet", "XLNetModel", "XLNetConfig", {"d_model": E, "n_layer": 2, "n_head": H, "d_inner": 20}, "text"),
    ("Funnel", "FunnelModel", "FunnelConfig", {"d_model": E, "n_head": H, "d_head": 8, "d_inner": 20, "block_sizes": [1, 1], "num_decoder_layers": 1}, "text"),
    ("XLM", "XLMModel", "XLMConfig", {"emb_dim": E, "n_layers": 2, "n_heads": H}, "text"),
    ("Flaubert", "FlaubertModel", "FlaubertConfig", {"emb_dim": E, "n_layers": 2, "n_heads": H}, "text"),
    ("RoFormer", "RoFormerModel", "RoFormerConfig", BASE | {"embedding_size": E}, "text"),
    ("CamemBERT", "CamembertModel", "CamembertConfig", BASE, "text"),
    ("RemBERT", "RemBertModel", "RemBertConfig", BASE | {"input_embedding_size": 8}, "text"),
    ("ConvBERT", "ConvBertModel", "ConvBertConfig", BASE | {"embedding_size": E}, "text"),
    ("SqueezeBERT", "SqueezeBertModel", "SqueezeBertConfig", BASE | {"embedding_size": E, "q_groups": 2, "k_groups": 2, "v_groups": 2, "post_attention_groups": 2, "intermediate_groups": 2, "output_groups": 2, "intermediate_size": 32}, "text"),
    ("DeBERTa", "DebertaModel", "DebertaConfig", BASE | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, "text"),
    ("Nystromformer", "NystromformerModel", "NystromformerConfig", BASE | {"num_landmarks": 11, "segment_means_seq_len": 11}, "text"),
    ("ESM", "EsmModel", "EsmConfig", BASE | {"position_embedding_type": "rotary"}, "text"),
    ("CTRL", "CTRLModel", "CTRLConfig", {"n_embd": E, "n_layer": 2, "n_head": H, "dff": 20}, "text"),
    ("CodeGen", "CodeGenModel", "CodeGenConfig", GPT | {"rotary_dim": 4}, "text"),
    ("BioGPT", "BioGptModel", "BioGptConfig", BASE, "text"),
    ("Big Bird, sparse", "BigBirdModel", "BigBirdConfig", BASE | {"block_size": 1, "num_random_blocks": 1}, "text"),
    ("Reformer", "ReformerModel", "ReformerConfig", {"hidden_size": E, "num_attention_heads": H, "attention_head_size": 8, "attn_layers": ["local", "local"], "feed_forward_size": 20, "axial_pos_embds": False, "is_decoder": False, "local_attn_chunk_length": 4}, "text"),
    ("RWKV", "RwkvModel", "RwkvConfig", {"hidden_size": E, "num_hidden_layers": 2, "attention_hidden_size": E}, "text"),
    ("T5Gemma", "T5GemmaModel", "T5GemmaConfig", {"encoder": T5G, "decoder": T5G | {"is_decoder": True}}, "pair"),
    ("UMT5", "UMT5Model", "UMT5Config", T5, "pair"),
    ("Switch Transformers", "SwitchTransformersModel", "SwitchTransformersConfig", T5 | {"num_experts": 2}, "pair"),
    ("LED", "LEDModel", "LEDConfig", PAIR | {"attention_window": 4}, "pair"),
    ("M2M-100", "M2M100Model", "M2M100Config", PAIR, "pair"),
    ("ProphetNet", "ProphetNetModel", "ProphetNetConfig", {"hidden_size": E, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": H, "num_decoder_attention_heads": H, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}, "pair"),
    ("FSMT", "FSMTModel", "FSMTConfig", PAIR | {"src_vocab_size": V, "tgt_vocab_size": V, "langs": ["a", "b"]}, "pair"),
    ("Blenderbot", "BlenderbotModel", "BlenderbotConfig", PAIR, "pair"),
    ("HuBERT", "HubertModel", "HubertConfig", BASE | SPEECH, "speech"),
    ("Wav2Vec2-Conformer", "Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", BASE | SPEECH, "speech"),
    ("Swin", "SwinModel", "SwinConfig", {"image_size": 24, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 3}, "image"),
    ("SegFormer", "SegformerModel", "SegformerConfig", {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32], "patch_sizes": [3, 3], "strides": [2, 2], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2]}, "image"),
    ("DINOv3", "DINOv3ViTModel", "DINOv3ViTConfig", BASE | IMAGE, "image"),
    ("Hiera", "HieraModel", "HieraConfig", {"embed_dim": 16, "image_size": [24, 24], "patch_stride": [2, 2], "patch_size": [3, 3], "patch_padding": [1, 1], "masked_unit_size": [2, 2], "depths": [1, 1], "num_heads": [1, 2], "query_stride": [2, 2], "num_query_pool": 1}, "image"),
    ("SAM, vision", "SamVisionModel", "SamVisionConfig", BASE | IMAGE | {"output_channels": 8, "window_size": 2, "global_attn_indexes": [1], "mlp_dim": 20}, "image"),
    ("YOLOS", "YolosModel", "YolosConfig", BASE | {"image_size": [24, 24], "patch_size": 8, "num_detection_tokens": 3}, "image"),
    ("I-JEPA", "IJepaModel", "IJepaConfig", BASE | IMAGE, "image"),
    ("LLaVA", "LlavaModel", "LlavaConfig", {"vision_config": EYE, "text_config": READER, "image_token_id": IMAGE_TOKEN, "vision_feature_layer": -1}, "image tokens"),
    ("PaliGemma", "PaliGemmaModel", "PaliGemmaConfig", {"vision_config": EYE | {"model_type": "siglip_vision_model", "vision_use_head": False}, "text_config": READER | {"model_type": "gemma", "head_dim": 8}, "image_token_id": IMAGE_TOKEN, "projection_dim": E}, "image tokens"),
    ("Qwen2-VL", "Qwen2VLModel", "Qwen2VLConfig", QWEN_VL, "image patches"),
    ("Qwen2.5-VL", "Qwen2_5_VLModel", "Qwen2_5_VLConfig", QWEN_VL | {"vision_config": QWEN_EYE | {"out_hidden_size": E, "intermediate_size": 20, "window_size": 16, "fullatt_block_indexes": [1]}}, "image patches"),
    ("Idefics3", "Idefics3Model", "Idefics3Config", {"vision_config": BASE | IMAGE, "text_config": READER, "image_token_id": IMAGE_TOKEN, "scale_factor": 1, "pad_token_id": 0}, "images"),
    ("Mistral 3", "Mistral3Model", "Mistral3Config", {"vision_config": EYE | {"model_type": "pixtral", "head_dim": 8}, "text_config": READER | {"model_type": "mistral"}, "image_token_id": IMAGE_TOKEN, "spatial_merge_size": 1}, "sized image"),
    ("BLIP-2", "Blip2Model", "Blip2Config", {"vision_config": BASE | IMAGE, "qformer_config": BASE | {"encoder_hidden_size": E, "vocab_size": V}, "text_config": {"model_type": "opt", "ffn_dim": 20, "word_embed_proj_dim": E} | BASE | TEXT, "num_query_tokens": 3, "image_token_index": IMAGE_TOKEN}, "queries"),
    ("Florence-2", "Florence2Model", "Florence2Config", {"text_config": {"model_type": "bart"} | PAIR | TEXT, "vision_config": {"embed_dim": [8, 8], "depths": [1, 1], "num_heads": [2, 2], "num_groups": [2, 2], "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True], "window_size": 3, "projection_dim": E}, "image_token_id": IMAGE_TOKEN}, "image pair"),
    ("CLIP", "CLIPModel", "CLIPConfig", {"vision_config": BASE | IMAGE, "text_config": BASE | TEXT}, "text and image"),
    ("DETR", "DetrModel", "DetrConfig", PAIR | {"num_queries": 3, "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "out_features": ["stage2"]}}, "photo"),
    ("Deformable DETR", "DeformableDetrModel", "DeformableDetrConfig", PAIR | {"num_queries": 3, "num_feature_levels": 1, "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "out_features": ["stage2"]}}, "photo"),
    ("PatchTST", "PatchTSTModel", "PatchTSTConfig", {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": E, "num_hidden_layers": 2, "num_attention_heads": H, "ffn_dim": 20}, "channels"),
]  # fmt: skip
NO_TEXT = ("image", "photo", "speech", "vectors", "series", "channels")  # no words in the configuration


def inputs_of(kind: str) -> dict[str, Any]:
    """What a family is called with."""
    ids = torch.randint(5, IMAGE_TOKEN, (B, T))
    seeing = torch.cat([ids[:, :2], torch.full((B, PATCHES), IMAGE_TOKEN), ids[:, 2:7]], dim=1)
    image = torch.randn(B, 3, 24, 24)
    return {
        "text": {"input_ids": ids},
        "pair": {"input_ids": ids, "decoder_input_ids": ids[:, :7]},
        "speech": {"input_values": torch.randn(B, 400)},
        "speech pair": {"input_features": torch.randn(B, 5, 26), "decoder_input_ids": ids},
        "image": {"pixel_values": image},
        "text and image": {"input_ids": ids, "pixel_values": image},
        "image tokens": {"input_ids": seeing, "pixel_values": image},
        "images": {"input_ids": seeing, "pixel_values": image[:, None]},
        "sized image": {"input_ids": seeing, "pixel_values": image, "image_sizes": torch.full((B, 2), 24)},
        "image patches": {
            "input_ids": seeing,
            "pixel_values": torch.randn(B * PATCHES, 3 * 64),
            "image_grid_thw": torch.tensor([[1, 3, 3]] * B),
            "mm_token_type_ids": (seeing == IMAGE_TOKEN).long(),
        },
        "queries": {"input_ids": seeing[:, 8:], "pixel_values": image},
        "image pair": {
            "input_ids": torch.cat([seeing[:, :3], seeing[:, 2:]], dim=1),
            "pixel_values": image,
            "decoder_input_ids": ids[:, :7],
        },
        "photo": {"pixel_values": torch.randn(B, 3, 32, 32)},
        "channels": {"past_values": torch.randn(B, 16, 2)},
        "vectors": {"inputs": torch.randn(B, T, E)},
        "series": {
            "past_values": torch.randn(B, 8),
            "past_time_features": torch.randn(B, 8, 1),
            "past_observed_mask": torch.ones(B, 8),
            "future_values": torch.randn(B, 3),
            "future_time_features": torch.randn(B, 3, 1),
        },
    }[kind]
