"""The exercises, one file each: formula, named mistakes, cases. In the order of a course:

masked_softmax.py         a softmax over the first entries of each row
attention.py              scaled dot-product attention
attention_head.py         a head with a 0/1 mask
argmax_attention.py       the value of the best key alone
additive_attention.py     scores by a small network
self_attention.py         a module with its own queries, keys and values
cross_attention.py        queries from one sequence, keys and values from another
joined_heads.py           heads from a list, side by side
split_heads.py            (B, T, D) → (B, H, T, Dh)
merge_heads.py            the inverse
multi_head_attention.py   all heads in one module
toeplitz_bias.py          a bias for each distance
sinusoidal_positions.py   sines and cosines of the position
learned_positions.py      a table of positions
feed_forward.py           each token by itself, through a wider space
transformer_layer.py      attention and feed-forward layer, with residuals and norms
classifier.py             an encoder with a head that reads the first token
patch_embedding.py        a picture becomes tokens
vit.py                    the Vision Transformer
char_tokenizer.py         characters as one-hot rows, [CLS] first
word_tokenizer.py         words and punctuation, with start and unk
padded_batch.py           rows of unequal length, and their mask
causal_mask.py            which tokens a token may attend to
language_model_loss.py    each token predicts the next
generate.py               append the most likely next token, n times
generate_cached.py        the same with a cache: each token is read once
warmup_schedule.py        the learning rate goes up, then down
class_token_loss.py       loss and accuracy of [CLS]
gru_encoder.py            a GRU that reads the source
attention_decoder.py      a GRU that writes the target and attends to the source
quadratic_features.py     the features of (q·k + 1)²
fourier_features.py       random Fourier features
kernel_attention.py       attention by features, in O(N)
summed_attention.py       one score for each token, pair by pair or rearranged
linear_rnn.py             a linear recurrence and its closed form
purification.py           the matrix that purifies a mixture
smallest_transformer.py   one layer, one head, in NumPy and in PyTorch
hand_identity.py          each token comes out as it went in
hand_first.py             each token comes out as the first one
hand_unique.py            which tokens occur once
shared/                   what several exercises have in common
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.exercises.exercise import Exercise

__all__ = ["EXERCISES", "check_name", "find_exercise"]

# Name of the exercise → (file, class), in reading order.
EXERCISES = {
    "masked_softmax": ("masked_softmax", "MaskedSoftmax"),
    "attention": ("attention", "Attention"),
    "attention_head": ("attention_head", "AttentionHead"),
    "argmax_attention": ("argmax_attention", "ArgmaxAttention"),
    "additive_attention": ("additive_attention", "AdditiveAttention"),
    "self_attention": ("self_attention", "SelfAttention"),
    "cross_attention": ("cross_attention", "CrossAttention"),
    "joined_heads": ("joined_heads", "JoinedHeads"),
    "split_heads": ("split_heads", "SplitHeads"),
    "merge_heads": ("merge_heads", "MergeHeads"),
    "multi_head_attention": ("multi_head_attention", "MultiHeadAttention"),
    "toeplitz_bias": ("toeplitz_bias", "ToeplitzBias"),
    "sinusoidal_positions": ("sinusoidal_positions", "SinusoidalPositions"),
    "learned_positions": ("learned_positions", "LearnedPositions"),
    "feed_forward": ("feed_forward", "FeedForward"),
    "transformer_layer": ("transformer_layer", "TransformerLayer"),
    "classifier": ("classifier", "Classifier"),
    "patch_embedding": ("patch_embedding", "PatchEmbedding"),
    "vit": ("vit", "VisionTransformer"),
    "char_tokenizer": ("char_tokenizer", "CharTokenizer"),
    "word_tokenizer": ("word_tokenizer", "WordTokenizer"),
    "padded_batch": ("padded_batch", "PaddedBatch"),
    "causal_mask": ("causal_mask", "CausalMask"),
    "language_model_loss": ("language_model_loss", "LanguageModelLoss"),
    "generate": ("generate", "Generate"),
    "generate_cached": ("generate_cached", "GenerateCached"),
    "warmup_schedule": ("warmup_schedule", "WarmupSchedule"),
    "class_token_loss": ("class_token_loss", "ClassTokenLoss"),
    "gru_encoder": ("gru_encoder", "GRUEncoder"),
    "attention_decoder": ("attention_decoder", "AttentionDecoder"),
    "quadratic_features": ("quadratic_features", "QuadraticFeatures"),
    "fourier_features": ("fourier_features", "FourierFeatures"),
    "kernel_attention": ("kernel_attention", "KernelAttention"),
    "summed_attention": ("summed_attention", "SummedAttention"),
    "linear_rnn": ("linear_rnn", "LinearRNN"),
    "purification": ("purification", "Purification"),
    "smallest_transformer": ("smallest_transformer", "SmallestTransformer"),
    "hand_identity": ("hand_identity", "HandIdentity"),
    "hand_first": ("hand_first", "HandFirst"),
    "hand_unique": ("hand_unique", "HandUnique"),
}


def check_name(name: str) -> None:
    """Raise ValueError for a name that no exercise has."""
    if name not in EXERCISES:
        from clearhead.config import suggest

        known = ", ".join(EXERCISES)
        raise ValueError(f"exercise must be one of {known}, got {name!r}{suggest(name, EXERCISES)}")


def find_exercise(name: str) -> "Exercise":
    """Build the exercise of this name; this imports torch."""
    check_name(name)
    file, kind = EXERCISES[name]
    found: Exercise = getattr(import_module(f"clearhead.exercises.contracts.{file}"), kind)()
    return found
