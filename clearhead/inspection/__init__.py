"""Looking inside: record what a model does, measure it, draw it. Nothing here is known to the model."""

from clearhead.inspection.figures import (
    Picture,
    alignment,
    attention_grid,
    attention_map,
    class_token_overlay,
    mask_picture,
    position_table,
    position_waves,
    toeplitz_matrices,
)
from clearhead.inspection.measures import class_token_map, distance, entropy, rollout
from clearhead.inspection.record import AttentionCall, BlockCall, Trace, record
from clearhead.inspection.viewer import attention_view

__all__ = [
    "AttentionCall",
    "BlockCall",
    "Picture",
    "Trace",
    "alignment",
    "attention_grid",
    "attention_map",
    "attention_view",
    "class_token_map",
    "class_token_overlay",
    "distance",
    "entropy",
    "mask_picture",
    "position_table",
    "position_waves",
    "record",
    "rollout",
    "toeplitz_matrices",
]
