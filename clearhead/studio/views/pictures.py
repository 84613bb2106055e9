"""Pictures: what a VisionTransformer answers, which patches it uses, the effect of covering them.

A picture is a validation picture of the run, by its `number`, or a PNG or JPEG `file`, as base64.
"""

import math
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch

from clearhead.inspection import measure_covering as compute_effects
from clearhead.inspection import picture_map, record, score_terms
from clearhead.inspection.picture_maps import METHODS, build_untrained, cover_patches
from clearhead.models import VisionTransformer
from clearhead.models.model import evaluation_mode
from clearhead.studio.sources import Sources
from clearhead.studio.views.picture_inputs import (
    check_patch,
    check_picture,
    get_task,
    open_picture_model,
    read_picture,
)

MAX_LISTED = 100  # pictures in one answer
UNTRAINED: WeakKeyDictionary[VisionTransformer, VisionTransformer] = WeakKeyDictionary()


def list_pictures(
    sources: Sources, model: str, start: int = 0, n: int = 24, numbers: list[int] | None = None
) -> dict[str, Any]:
    """The validation pictures with these numbers, or n from `start`, with labels and answers."""
    opened, predictor = open_picture_model(sources, model)
    pictures = get_task(opened).validation
    if numbers is None:
        numbers = list(range(max(0, start), min(start + n, len(pictures))))
    if len(numbers) > MAX_LISTED:
        raise ValueError(f"at most {MAX_LISTED} pictures are listed at once, got {len(numbers)}")
    for number in numbers:
        check_picture(number, len(pictures))
    images, labels = pictures.images[numbers], pictures.labels[numbers]
    answers, probs = labels[:0], labels[:0].float()
    if numbers:
        with evaluation_mode(opened.model):
            logits = opened.model(predictor.normalise(images.to(opened.model.device)))
        probs, answers = logits.softmax(-1).max(-1)
    return {
        "numbers": numbers,
        "n_pictures": len(pictures),
        "classes": list(predictor.class_names),
        "images": images,
        "labels": labels.tolist(),
        "answers": answers.tolist(),
        "probs": probs,
    }


def find_mistakes(sources: Sources, model: str) -> Iterator[dict[str, Any]]:
    """The numbers of the validation pictures with wrong answers, the most confident first.

    A stream: after each batch, all mistakes found in the first "n_seen" of "n_pictures".
    """
    opened, _ = open_picture_model(sources, model)
    task = get_task(opened)
    wrong: list[tuple[float, int]] = []
    for n_seen, found in task.find_wrong_answers(opened.model):
        wrong = sorted(wrong + found, key=lambda pair: (-pair[0], pair[1]))
        yield {
            "numbers": [number for _, number in wrong],
            "n_seen": n_seen,
            "n_pictures": len(task.validation),
        }


def look_at_picture(
    sources: Sources,
    model: str,
    number: int | None = None,
    file: str | None = None,
    patch: int | None = None,
) -> dict[str, Any]:
    """The answer to a picture, its heat maps, and what one token attends to in every head.

    patch: the number of the patch whose attention is shown; by default the attention of what the
    classification head reads: of the class token, or the mean over all patches.
    """
    picture = read_picture(sources, model, number, file)
    config, x = picture.model.config, picture.x
    first = int(config.class_token)  # the token of the first patch
    with evaluation_mode(picture.model), record(picture.model) as trace:
        logits = picture.model(x)[0]
    every = torch.cat(trace.weights())  # (L, H, T, T)
    if patch is not None:
        check_patch("patch", patch, every.size(-1) - first)
        rows, query = every[:, :, first + patch], f"[:, :, {first + patch}]"
    elif config.pool == "class":
        rows, query = every[:, :, 0], "[:, :, 0]"
    else:
        rows, query = every[:, :, first:].mean(2), f"[:, :, {first}:].mean(2)"
    maps = {method: picture_map(picture.model, x, method)[0] for method in METHODS}
    maps["untrained"] = picture_map(_get_untrained(picture.model), x)[0]
    lines = [
        *picture.lines,
        "from clearhead.inspection import picture_map, record",
        "from clearhead.inspection.picture_maps import build_untrained",
        "from clearhead.models.model import evaluation_mode",
        "with evaluation_mode(model), record(model) as trace:",
        "    logits = model(x)[0]",
        "probs = logits.softmax(-1)",
        f"maps = {{method: picture_map(model, x, method)[0] for method in {METHODS}}}",
        'maps["untrained"] = picture_map(build_untrained(model), x)[0]',
        f"weights = torch.cat(trace.weights()){query}  # (layers, heads, tokens)",
    ]
    return {
        "image": picture.image,
        "colour": picture.image.float().mean((-2, -1)),
        "label": picture.label,
        "classes": list(picture.predictor.class_names),
        "grid": list(picture.grid),
        "first": first,
        "pool": config.pool,
        "logits": logits,
        "probs": logits.softmax(-1),
        "maps": maps,
        "weights": rows,
        "python": "\n".join(lines),
    }


def measure_covering(
    sources: Sources, model: str, number: int | None = None, file: str | None = None
) -> dict[str, Any]:
    """By how much the logit of the answer falls if one patch is covered: (rows, columns)."""
    picture = read_picture(sources, model, number, file)
    lines = [
        *picture.lines,
        "from clearhead.inspection import measure_covering",
        "effects = measure_covering(model, x)[0]",
    ]
    return {"effects": compute_effects(picture.model, picture.x)[0], "python": "\n".join(lines)}


def cover_picture(
    sources: Sources,
    model: str,
    covered: list[int],
    number: int | None = None,
    file: str | None = None,
) -> dict[str, Any]:
    """The answer before and after these patches are covered with the mean colour."""
    picture = read_picture(sources, model, number, file)
    rows, columns = picture.grid
    is_covered = torch.zeros(1, rows * columns, dtype=torch.bool)
    for patch in covered:
        check_patch("covered", patch, rows * columns)
        is_covered[0, patch] = True
    x = picture.x
    after = cover_patches(x, is_covered.to(x.device), picture.grid)
    with evaluation_mode(picture.model):
        logits = picture.model(torch.cat((x, after)))
    lines = [
        *picture.lines,
        "from clearhead.inspection.picture_maps import cover_patches",
        "from clearhead.models.model import evaluation_mode",
        f"covered = torch.zeros(1, {rows * columns}, dtype=torch.bool)",
        f"covered[0, {sorted(set(covered))}] = True",
        "after = cover_patches(x, covered.to(x.device), model.grid_of(x))",
        "with evaluation_mode(model):",
        "    logits = model(torch.cat((x, after)))",
        "probs = logits.softmax(-1)  # before, after",
    ]
    return {"logits": logits, "probs": logits.softmax(-1), "python": "\n".join(lines)}


def explain_patch(
    sources: Sources,
    model: str,
    layer: int,
    head: int,
    key: int,
    patch: int | None = None,
    number: int | None = None,
    file: str | None = None,
) -> dict[str, Any]:
    """The terms of the weight of key `key` for query `patch`; patch None is the class token."""
    picture = read_picture(sources, model, number, file)
    first = int(picture.model.config.class_token)
    if patch is None and not first:
        raise ValueError("this model has no class token; choose a patch as the query")
    n_patches = math.prod(picture.grid)
    check_patch("key", key, n_patches)
    if patch is not None:
        check_patch("patch", patch, n_patches)
    with evaluation_mode(picture.model), record(picture.model) as trace:
        picture.model(picture.x)
    calls = list(trace.attention.values())
    if not 0 <= layer < len(calls):
        raise IndexError(
            f"layer is {layer}, but this model has {len(calls)}: 0 to {len(calls) - 1}"
        )
    row = 0 if patch is None else first + patch
    found = score_terms(calls[layer], row, first + key, head)
    lines = [
        *picture.lines,
        "from clearhead.inspection import record, score_terms",
        "with torch.no_grad(), record(model) as trace:",
        "    model(x)",
        f"call = list(trace.attention.values())[{layer}]",
        f"found = score_terms(call, row={row}, column={first + key}, head={head})",
    ]
    return {**vars(found), "column": first + key, "python": "\n".join(lines)}


def _get_untrained(model: VisionTransformer) -> VisionTransformer:
    if model not in UNTRAINED:
        UNTRAINED[model] = build_untrained(model).eval()
    return UNTRAINED[model]
