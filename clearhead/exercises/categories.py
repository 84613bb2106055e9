"""The categories of DEFault++ (arXiv 2604.28118), and those that our mistakes belong to.

DEFault++ watches the training of a transformer and says which part of it is faulty. It knows twelve
parts: Embedding, LayerNorm, FFN, Residual, Output, Masking, QKV, Kernel, Positional, Score, KV
cache and Variant. The term of a mistake gives its category, where there is one. Losses, tokenizers
and recurrent networks have none, and Kernel is about fused programs, which no exercise has.
"""

DOT_PRODUCT = {
    **dict.fromkeys(("score", "scale", "weigh"), "Score"),
    **dict.fromkeys(("hide", "allow", "share", "repeat", "past", "clear"), "Masking"),
    **dict.fromkeys(("order", "split", "merge", "heads"), "QKV"),
}
PROJECTED = {**DOT_PRODUCT, "project": "QKV"}
WHOLE_MODEL = {"finish": "Output", "locate": "Positional"}
TERMS = {  # of an exercise, by term; "*" for all other terms
    "masked_softmax": {**DOT_PRODUCT, "combine": "Masking"},
    "attention": DOT_PRODUCT,
    "attention_head": PROJECTED,
    "additive_attention": {**DOT_PRODUCT, "squash": "Score", "reduce": "Score"},
    "self_attention": PROJECTED,
    "cross_attention": PROJECTED,
    "split_heads": {"*": "QKV"},
    "merge_heads": {"*": "QKV"},
    "multi_head_attention": PROJECTED,
    "toeplitz_bias": {"*": "Positional"},
    "sinusoidal_positions": {"*": "Positional"},
    "learned_positions": {"*": "Positional"},
    "feed_forward": {"*": "FFN"},
    "transformer_layer": {
        **DOT_PRODUCT,
        "feed": "FFN",
        **dict.fromkeys(("norms", "place"), "LayerNorm"),
        **dict.fromkeys(("join", "join_attention", "join_feed_forward"), "Residual"),
    },
    "classifier": WHOLE_MODEL,
    "patch_embedding": {"*": "Embedding"},
    "vit": {**WHOLE_MODEL, "cut": "Embedding"},
    "padded_batch": {"count": "Masking"},
    "causal_mask": {"*": "Masking"},
    "generate_cached": dict.fromkeys(("position", "feed", "keep"), "KV cache"),
    "attention_decoder": {"allow": "Masking", "score": "Score", "weigh": "Score"},
    "summed_attention": dict.fromkeys(("scale", "weigh"), "Score"),
    "smallest_transformer": {**PROJECTED, "place": "Positional"},
}
MISTAKES: dict[str, str | None] = {  # whose category is not that of their term
    "scaled_after_softmax": "Score",
    "mask_after_softmax": "Masking",
    "swapped_queries_and_keys": "QKV",
    "detached_weights": "QKV",  # their gradients do not flow
    "mixes_keys": "QKV",
    "causal_layers": "Variant",
    "no_residual": "Residual",
    "residual_inside": "Residual",
    "norm_of_the_branch": "LayerNorm",
    "mixed_norms": "LayerNorm",
}


def find_category(exercise: str, term: str, mistake: str) -> str | None:
    """The category of a mistake in a term of an exercise; None if it has none."""
    terms = TERMS.get(exercise)
    if terms is None:
        return None
    return MISTAKES.get(mistake) or terms.get(term) or terms.get("*")
