"""Looking inside a model: record its calls with hooks, measure them, change them, draw them.

sites.py              the activations of a model, by name
record.py             with record(model) as trace: the calls of every attention and block
interventions.py      with ablate(model, ...): change one activation, and see what it causes
places.py             which heads and positions of a site to change
edits.py              the hooks behind every intervention
residual.py           the residual stream, and how logits are computed from it
logit_lens.py         the logits a model would give after each layer
attribution.py        a logit as the sum of the contributions of all parts
sweeps.py             which heads and positions matter: change each of them, in one batch
sweep_rows.py         that batch: its rows differ in one activation
head_scores.py        induction, previous-token and duplicate-token heads
circuits.py           what a head's weights read and write; composition of heads
measures.py           entropy, distance, rollout, class-token maps: tensors in, tensors out
score_terms.py        the score of one query and one key, term by term
picture_maps.py       heat maps of the patches a VisionTransformer uses, and their faithfulness
figures.py            attention and masks as pictures
cause_figures.py      lens, attribution, sweeps, scores, maps and curves as pictures
position_figures.py   positions as pictures
picture.py            what all pictures share: the style, panels, saving
matrices.py           a matrix as a picture: colours, cells, token names
viewer.py             all heads on one interactive page
smallest_figure.py    the matrices of the smallest transformer, in eight panels
comparison.py         two of them side by side: set by hand, and trained
report/               a run on one page: from inspection.report import write_report
tensorboard.py        a run's metrics for TensorBoard: from inspection.tensorboard import …
"""

from clearhead.inspection.attribution import Attribution, attribution
from clearhead.inspection.cause_figures import (
    attribution_picture,
    faithfulness_picture,
    head_scores_picture,
    lens_picture,
    map_picture,
    sweep_picture,
)
from clearhead.inspection.circuits import (
    Circuit,
    composition,
    find_circuit,
    ov_matrix,
    qk_matrix,
)
from clearhead.inspection.comparison import Comparison, compare, sign_picture
from clearhead.inspection.figures import (
    Picture,
    alignment,
    attention_grid,
    attention_map,
    class_token_overlay,
    mask_picture,
)
from clearhead.inspection.head_scores import HeadScores, head_scores
from clearhead.inspection.interventions import ablate, edit_mask, patch, sharpen
from clearhead.inspection.logit_lens import logit_lens
from clearhead.inspection.measures import (
    alignment_weights,
    class_token_map,
    distance,
    entropy,
    rollout,
)
from clearhead.inspection.picture_maps import (
    Faithfulness,
    measure_covering,
    measure_faithfulness,
    picture_map,
)
from clearhead.inspection.position_figures import (
    position_table,
    position_waves,
    toeplitz_matrices,
)
from clearhead.inspection.record import AttentionCall, BlockCall, Trace, record
from clearhead.inspection.score_terms import ScoreTerms, score_terms
from clearhead.inspection.smallest_figure import smallest_panels
from clearhead.inspection.sweeps import (
    Sweep,
    estimate_sweep,
    head_importance,
    logit_difference,
    patch_sweep,
)
from clearhead.inspection.viewer import attention_view

__all__ = [
    "AttentionCall",
    "Attribution",
    "BlockCall",
    "Circuit",
    "Comparison",
    "Faithfulness",
    "HeadScores",
    "Picture",
    "ScoreTerms",
    "Sweep",
    "Trace",
    "ablate",
    "alignment",
    "alignment_weights",
    "attention_grid",
    "attention_map",
    "attention_view",
    "attribution",
    "attribution_picture",
    "class_token_map",
    "class_token_overlay",
    "compare",
    "composition",
    "distance",
    "edit_mask",
    "entropy",
    "estimate_sweep",
    "faithfulness_picture",
    "find_circuit",
    "head_importance",
    "head_scores",
    "head_scores_picture",
    "lens_picture",
    "logit_difference",
    "logit_lens",
    "map_picture",
    "mask_picture",
    "measure_covering",
    "measure_faithfulness",
    "ov_matrix",
    "patch",
    "patch_sweep",
    "picture_map",
    "position_table",
    "position_waves",
    "qk_matrix",
    "record",
    "rollout",
    "score_terms",
    "sharpen",
    "sign_picture",
    "smallest_panels",
    "sweep_picture",
    "toeplitz_matrices",
]
