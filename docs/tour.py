# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # clearhead in fifteen minutes
#
# Transformers you can read, run, check and see through. This page is a notebook and a program:
# `pip install 'clearhead[notebook]'` and `jupytext --to notebook --execute tour.py` make the notebook
# ([tour.ipynb](tour.ipynb)); `python tour.py` runs it and saves the pictures in the folder tour.
#
# 1. attention, by its equation · 2. masks · 3. the fused kernel and its weights · 4. positions · 5. a transformer set
# by hand, and the same one trained · 6. a run, from training to its report · 7. find a head and break it ·
# 8. the laboratory

# %% [markdown]
# ## 1. Attention is a weighted mean
#
# Each query is compared with every key. The softmax of these scores gives the weights, and the output is the weighted
# mean of the values. The reference implementation is one page: `clearhead/attention/dot_product.py`.

# %%
import torch

from clearhead.attention import attend


def show(picture, name):
    """Show a picture: in a notebook below the cell, otherwise in a file."""
    if "get_ipython" in globals():
        return picture
    print("picture:", picture.save(f"tour/{name}.png"))


torch.manual_seed(0)
q, k, v = torch.randn(4, 8), torch.randn(6, 8), torch.randn(6, 3)  # 4 queries, 6 keys and values
output, weights = attend(q, k, v, return_weights=True)
print("output", tuple(output.shape), "weights", tuple(weights.shape))
print("the weights of each query sum to 1:", [round(x, 6) for x in weights.sum(-1).tolist()])

# %% [markdown]
# ## 2. Masks: which query may attend to which key
#
# A mask is a small object, True = may attend; masks are joined by `&`. A query that may attend to no key gets zeros,
# never NaN.

# %%
from clearhead.attention import Mask
from clearhead.inspection import mask_picture

mask = Mask.causal() & Mask.padding(torch.tensor([6, 4]))
print(mask)
show(mask_picture(mask, 6, 6), "mask")

# %% [markdown]
# ## 3. The fused kernel and its weights
#
# `MultiHeadAttention` runs the fused kernel. `record` observes it from outside; the weights are computed when you ask
# for them.

# %%
from clearhead.attention import MultiHeadAttention
from clearhead.inspection import attention_map, record

attention = MultiHeadAttention(d_model=32, n_heads=4)
x = torch.randn(1, 6, 32)
with record(attention) as trace:
    y = attention(x, mask=Mask.causal())
print("output", tuple(y.shape), "weights", tuple(trace[""].weights.shape))
show(
    attention_map(trace[""].weights, head=2, tokens=["the", "cat", "sat", "on", "the", "mat"]),
    "attention",
)

# %% [markdown]
# ## 4. Positions: the order of tokens
#
# Attention alone ignores the order of its tokens. The sinusoidal encoding adds waves of many lengths to them.

# %%
from clearhead.inspection import position_waves

show(position_waves(d_model=20, dimensions=(4, 5, 8, 9), n_positions=60), "positions")

# %% [markdown]
# ## 5. A transformer set by hand, and the same one trained
#
# One layer, one head, weights set by hand, no training. `designs.first` repeats the first token.

# %%
import numpy as np

from clearhead.inspection import smallest_panels
from clearhead.models.smallest import designs

letters = np.eye(3)  # A, B, C
design = designs.first(max_len=6)
print("CAC →", "".join("ABC"[i] for i in design.forward(letters[[2, 0, 2]]).argmax(-1)))
show(smallest_panels(design, letters[[2, 0, 2]], tokens=list("CAC")), "designed")

# %% [markdown]
# The same model in PyTorch learns the rule in seconds. `train` keeps the whole run in a folder, and resumes it if it was
# stopped.

# %%
from clearhead.training import find_recipe, load_run, train

learned = train(find_recipe("first"), "runs", threads=1)
print(f"{learned.steps} steps, {learned.seconds:.1f} s, loss {learned.metrics['val_loss']:.1e}")
print(load_run(learned.run).predict("CAC"))

# %% [markdown]
# ## 6. A run, from training to its report
#
# Does the needle occur in the haystack? The whole recipe takes two minutes; these 60 steps only show the calls, and
# many answers of the model are still wrong. Every setting of a recipe can be changed by its name.

# %%
from clearhead.inspection.report import look_at, write_report
from clearhead.training import with_changes

short = with_changes(find_recipe("substring"), ["training.steps=60", "training.eval_every=30"])
result = train(short, "runs", threads=1)
run = load_run(result.run)
print(f"{result.metrics['val_accuracy']:.0%} right on {run.task.measured_on}")
print(run.predict("abccab|cca"))
print("report:", write_report(result.run))
show(look_at(run, "abccab|cca").picture, "needle")

# %% [markdown]
# From the command line: `clearhead train substring`, `clearhead predict runs/substring-0001 'abccab|cca'`, and
# `clearhead recipes list` for the other recipes.

# %% [markdown]
# ## 7. Find a head and break it
#
# Two layers of attention learn, in half a minute, to continue a text that repeats: … k a r l m k a → r. A head of the
# first layer looks one token back; with its help heads of the second find what followed last time (induction heads).
# `head_scores` finds them, and inside `with ablate(...)` a head adds nothing.

# %%
from clearhead.inspection import ablate, head_scores, head_scores_picture
from clearhead.lab import induction

model = induction.build(seed=0)
induction.train(model, seed=0, steps=450)
texts, period = induction.draw_texts(256, torch.Generator().manual_seed(1), "cpu")
scores = head_scores(model, n_tokens=16)
print(f"all heads: {induction.accuracy(model, texts, period):.0%} right")
silenced = {
    "the previous-token head": scores.best("previous"),
    "one induction head": scores.best(),
    "both": (1, [0, 1]),
}
for name, (layer, head) in silenced.items():
    with ablate(model, layer, head):
        right = induction.accuracy(model, texts, period)
    print(f"without {name} (layer {layer}, {head}): {right:.0%}")
show(head_scores_picture(scores), "heads")

# %% [markdown]
# Silencing one of two induction heads costs little: the other does the same work. Without both, nothing is left but
# chance, 5 %. [inspection](inspection.md#change-one-thing) shows what else can be changed and measured.

# %% [markdown]
# ## 8. The laboratory
#
# Each claim of a course has an experiment, which states the claim, prints its numbers and draws one picture.

# %%
from clearhead import lab

finding = lab.run("purification")
print(finding.claim, finding.text, sep="\n\n")
show(finding.picture, "purification")

# %% [markdown]
# `clearhead lab` lists the experiments, `clearhead lab all --out lab` puts all of them on one page. Read next: the
# [pages of the docs](README.md) and the files they link to.
