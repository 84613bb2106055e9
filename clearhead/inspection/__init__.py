"""Looking inside a model: its calls recorded from outside, measured and drawn.

record.py             with record(model) as trace: the calls of every attention and block
measures.py           entropy, distance, rollout, class-token maps: tensors in, tensors out
figures.py            attention and masks as pictures
position_figures.py   positions as pictures
picture.py            what all pictures share: the style, panels, saving
matrices.py           a matrix as a picture: colours, cells, token names
viewer.py             all heads on one interactive page
smallest_figure.py    the matrices of the smallest transformer, in eight panels
comparison.py         two of them side by side: set by hand, and trained
report/               a run on one page: from inspection.report import write_report
tensorboard.py        a run's metrics for TensorBoard: from inspection.tensorboard import …
"""

from clearhead.inspection.comparison import Comparison, compare, sign_picture
from clearhead.inspection.figures import (
    Picture,
    alignment,
    attention_grid,
    attention_map,
    class_token_overlay,
    mask_picture,
)
from clearhead.inspection.measures import (
    alignment_weights,
    class_token_map,
    distance,
    entropy,
    rollout,
)
from clearhead.inspection.position_figures import (
    position_table,
    position_waves,
    toeplitz_matrices,
)
from clearhead.inspection.record import AttentionCall, BlockCall, Trace, record
from clearhead.inspection.smallest_figure import smallest_panels
from clearhead.inspection.viewer import attention_view

__all__ = [
    "AttentionCall",
    "BlockCall",
    "Comparison",
    "Picture",
    "Trace",
    "alignment",
    "alignment_weights",
    "attention_grid",
    "attention_map",
    "attention_view",
    "class_token_map",
    "class_token_overlay",
    "compare",
    "distance",
    "entropy",
    "mask_picture",
    "position_table",
    "position_waves",
    "record",
    "rollout",
    "sign_picture",
    "smallest_panels",
    "toeplitz_matrices",
]
