"""Small mistakes that the tests must notice.

    python tests/mutants.py             plant each mistake in a copy of the package, run its tests
    python tests/mutants.py mask loss   only those whose name contains one of these words

Each mutant replaces a piece of text wherever it stands in one file. It is killed when one of its
tests fails. test_mutants.py checks that every mutant still applies to the code.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    name: str
    file: str  # in the package
    right: str
    wrong: str
    tests: str  # separated by blanks; a path in the folder of the tests


ATTENTION = [
    Mutant(
        "scores are not divided by the root of the width",
        "attention/inputs.py",
        "scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale",
        "scale = 1.0 if scale is None else scale",
        "attention/test_dot_product.py",
    ),
    Mutant(
        "scores are divided by the root of the number of keys",
        "attention/inputs.py",
        "1 / math.sqrt(q.size(-1))",
        "1 / math.sqrt(k.size(-2))",
        "attention/test_dot_product.py",
    ),
    Mutant(
        "the bias is added after the division",
        "attention/dot_product.py",
        "scores = (x.q @ x.k.mT + x.bias) * x.scale",
        "scores = x.q @ x.k.mT * x.scale + x.bias",
        "attention/test_dot_product.py",
    ),
    Mutant(
        "the weights are returned after dropout",
        "attention/dot_product.py",
        "    output = mix(nn.functional.dropout(weights, dropout), x.v, x.allowed)",
        "    weights = nn.functional.dropout(weights, dropout)\n"
        "    output = mix(weights, x.v, x.allowed)",
        "attention/test_dot_product.py",
    ),
    Mutant(
        "padding in keys is not shielded",
        "attention/inputs.py",
        "v, k = v.masked_fill(unseen, 0.0), k.masked_fill(unseen, 0.0)",
        "v = v.masked_fill(unseen, 0.0)",
        "attention",
    ),
    Mutant(
        "the causal kernel serves any number of keys",
        "attention/dot_product_fast.py",
        "causal = causal and T == S and bias is None",
        "causal = causal and bias is None",
        "attention",
    ),
    Mutant(
        "broken inputs of the kernel are not noticed",
        "attention/dot_product_fast.py",
        "    return _all_finite(call.q, call.k, call.v)\n",
        "    return True\n",
        "attention",
    ),
    Mutant(
        "the kernel gets a bias that is not scaled",
        "attention/fused_kernels.py",
        "added = bias * scale if allowed is None",
        "added = bias if allowed is None",
        "attention/test_dot_product.py",
    ),
    Mutant(
        "the gradient of the bias is not scaled",
        "attention/fused_kernels.py",
        "grad_bias = grad_bias.mul_(scale)",
        "grad_bias = grad_bias.mul_(1.0)",
        "attention",
    ),
    Mutant(
        "the gradient of the values uses the scores",
        "attention/fused_kernels.py",
        "torch.bmm(P.mT, G[matrices], out=grad_v[matrices])",
        "torch.bmm(dS.mT, G[matrices], out=grad_v[matrices])",
        "attention",
    ),
    Mutant(
        "a query that sees nothing spreads over all keys",
        "attention/softmax.py",
        ".softmax(dim=-1).masked_fill(empty, 0.0)",
        ".softmax(dim=-1)",
        "attention",
    ),
    Mutant(
        "a forbidden key beside a NaN gets a weight",
        "attention/softmax.py",
        "return fill_forbidden(weights, allowed, 0.0).to(scores.dtype)",
        "return weights.to(scores.dtype)",
        "attention",
    ),
    Mutant(
        "softmax in half precision",
        "attention/softmax.py",
        "fill_forbidden(widen(scores), allowed, -torch.inf)",
        "fill_forbidden(scores, allowed, -torch.inf)",
        "attention",
    ),
    Mutant(
        "a broken value reaches every query",
        "attention/softmax.py",
        "n_broken > 0, (weights @ v).detach(), weights @ v.masked_fill(broken, 0.0)",
        "n_broken >= 0, weights @ v, weights @ v",
        "attention",
    ),
    Mutant(
        "additive attention without tanh",
        "attention/additive.py",
        ".tanh()",
        "",
        "attention/test_additive.py",
    ),
    Mutant(
        "argmax attention looks at forbidden keys",
        "attention/argmax.py",
        "scores = fill_forbidden(x.q @ x.k.mT + x.bias, x.allowed, -torch.inf)",
        "scores = x.q @ x.k.mT + x.bias",
        "attention/test_argmax.py",
    ),
    Mutant(
        "elu features with a wrong slope",
        "attention/features.py",
        "return x.clamp(max=0.0).exp_() + x.relu()",
        "return x.clamp(max=0.0).exp_() + x.relu() * 2",
        "attention/test_linear.py",
    ),
    Mutant(
        "quadratic features without the root of two",
        "attention/features.py",
        "torch.where(i == j, products, math.sqrt(2.0) * products)",
        "torch.where(i == j, products, products)",
        "attention/test_linear.py",
    ),
    Mutant(
        "Fourier features without the length of the key",
        "attention/features.py",
        "factor = _subtract(self.half_norms(k), shift).exp()",
        "factor = _subtract(0 * self.half_norms(k), shift).exp()",
        "attention/test_linear.py",
    ),
    Mutant(
        "kernel attention divides zero by zero",
        "attention/linear.py",
        "return sums / total.masked_fill(total == 0.0, torch.inf)",
        "return sums / total",
        "attention/test_linear.py",
    ),
    Mutant(
        "running sums forget the state between blocks",
        "attention/running_sums.py",
        "return before.flatten(0, 1), before[:, -1] + new[:, -1]",
        "return before.flatten(0, 1), new[:, -1]",
        "attention/test_linear.py",
    ),
    Mutant(
        "running sums leave out a query's own key",
        "attention/running_sums.py",
        "return pairs.tril_(self.diagonal)",
        "return pairs.tril_(self.diagonal - 1)",
        "attention/test_linear.py",
    ),
    Mutant(
        "running sums mix packed documents",
        "attention/packed_sums.py",
        "return super().hide_pairs(pairs).masked_fill(~self.same, 0.0)",
        "return super().hide_pairs(pairs)",
        "attention/test_linear.py",
    ),
    Mutant(
        "summed scores are not divided",
        "attention/summed.py",
        "(totals / math.sqrt(max(x.size(-2), 1)))",
        "totals",
        "attention/test_summed.py",
    ),
    Mutant(
        "heads are merged in reverse order",
        "attention/multi_head.py",
        "return x.transpose(-3, -2).flatten(-2)",
        "return x.transpose(-3, -2).flip(-2).flatten(-2)",
        "attention/test_multi_head.py",
    ),
    Mutant(
        "shared key heads serve the wrong query heads",
        "attention/multi_head.py",
        "k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)",
        "k, v = k.repeat(1, shared, 1, 1), v.repeat(1, shared, 1, 1)",
        "attention/test_multi_head.py",
    ),
    Mutant(
        "the ALiBi bias is divided with the scores",
        "attention/multi_head.py",
        "if scheme.has_unscaled_bias and self.mechanism.is_scaled:",
        "if False:",
        "attention/test_multi_head.py positions",
    ),
    Mutant(
        "cached tokens all stand at position 0",
        "attention/multi_head.py",
        "positions = torch.arange(S - T, S, device=x.device)",
        "positions = torch.arange(T, device=x.device)",
        "attention/test_cache.py",
    ),
    Mutant(
        "the cache overwrites its last token",
        "attention/cache.py",
        "self._length = end",
        "self._length = start",
        "attention/test_cache.py",
    ),
    Mutant(
        "the cache reorders keys but not values",
        "attention/cache.py",
        "self._k.index_select(0, rows), self._v.index_select(0, rows)",
        "self._k.index_select(0, rows), self._v",
        "attention/test_cache.py",
    ),
    Mutant(
        "beside a NaN score a forbidden key gets NaN",
        "attention/softmax.py",
        "    return fill_forbidden(weights, allowed, 0.0).to(scores.dtype)",
        "    return weights.to(scores.dtype)",
        "attention/test_softmax.py",
    ),
    Mutant(
        "a broken value spoils gradients",
        "attention/softmax.py",
        "(weights @ v).detach()",
        "weights @ v",
        "attention/test_softmax.py",
    ),
    Mutant(
        "a broken query that sees nothing is shown",
        "attention/inputs.py",
        "    return q.masked_fill(sees_nothing, 0.0), k, v",
        "    return q, k, v",
        "attention/test_broken_numbers.py",
    ),
    Mutant(
        "the causal kernel gets any scale",
        "attention/dot_product_fast.py",
        " and scale > SMALLEST_SCALE",
        "",
        "attention/test_dot_product.py",
    ),
    Mutant(
        "a learned bias is constant in a second derivative",
        "attention/fused_kernels.py",
        "if torch.is_grad_enabled():  # the caller",
        "if False:  # the caller",
        "attention/test_dot_product.py",
    ),
    Mutant(
        "values are read inside vmap",
        "shapes.py",
        "    return not torch._C._functorch.is_functorch_wrapped_tensor(x)",
        "    return True",
        "attention/test_dot_product.py",
    ),
]

MASKS_AND_POSITIONS = [
    Mutant(
        "a causal mask hides the query itself",
        "attention/mask_parts.py",
        ".tril(S - T)",
        ".tril(S - T - 1)",
        "attention/test_masks.py",
    ),
    Mutant(
        "a window mask is one wider",
        "attention/mask_parts.py",
        ".abs() < self.n",
        ".abs() <= self.n",
        "attention/test_masks.py",
    ),
    Mutant(
        "a padding mask shows one padded key",
        "attention/mask_parts.py",
        "return torch.arange(S, device=device) < per_query",
        "return torch.arange(S, device=device) <= per_query",
        "attention/test_masks.py",
    ),
    Mutant(
        "a mask of segments shows padding to padding",
        "attention/mask_parts.py",
        " & (ids >= 0)[:, None, :]",
        "",
        "attention/test_masks.py",
    ),
    Mutant(
        "queries are the first of the keys, not the last",
        "attention/mask_parts.py",
        ".tril(S - T)",
        ".tril(0)",
        "attention/test_masks.py",
    ),
    Mutant(
        "distances are those of the first keys, not the last",
        "positions/tables.py",
        "torch.arange(S - T, S, device=device)",
        "torch.arange(0, T, device=device)",
        "attention/test_masks.py",
    ),
    Mutant(
        "a mask counts positions from one",
        "attention/mask_parts.py",
        "- before - 1",
        "- before",
        "attention/test_masks.py",
    ),
    Mutant(
        "joining masks drops a part",
        "attention/masks.py",
        "return Mask(self.parts + new)",
        "return Mask(self.parts + new[1:])",
        "attention/test_masks.py",
    ),
    Mutant(
        "sinusoids with the exponent of the well-known mistake",
        "positions/tables.py",
        "torch.arange(0, d, 2, dtype=widest_float(device), device=device) / d",
        "torch.arange(0, d, 2, dtype=widest_float(device), device=device) * 2 / d",
        "positions",
    ),
    Mutant(
        "Llama 3 slows down the slowest pairs too much",
        "positions/rotary.py",
        "((turns - low) / (high - low)).clamp(0, 1)",
        "((turns - low) / (high - low)).clamp(max=1)",
        "positions/test_rotary.py",
    ),
    Mutant(
        "a GGUF file keeps the order of our rows",
        "interop/gguf.py",
        "halves.transpose(1, 2).flatten(0, 2)",
        "halves.flatten(0, 2)",
        "interop/test_gguf.py",
    ),
    Mutant(
        "a merge is chosen by a count that has changed",
        "data/tokenizers/merges.py",
        "if pairs[best] != -n:",
        "if not pairs[best]:",
        "data/tokenizers/test_merges.py",
    ),
    Mutant(
        "the Toeplitz matrix is mirrored",
        "positions/toeplitz.py",
        "return diagonals.unfold(-1, S, 1).flip(-2)",
        "return diagonals.unfold(-1, S, 1)",
        "positions",
    ),
    Mutant(
        "rotary positions turn the other way",
        "positions/rotary.py",
        "torch.cat((-sin, sin), -1)",
        "torch.cat((sin, -sin), -1)",
        "positions interop/test_parity.py",
    ),
]

LAYERS_AND_MODELS = [
    Mutant(
        "layer norm divides by the sum of squares",
        "layers/norm.py",
        "variance = centred.square().mean(-1, keepdim=True)",
        "variance = centred.square().sum(-1, keepdim=True)",
        "layers/test_norm.py",
    ),
    Mutant(
        "post-norm normalises the branch alone",
        "layers/block.py",
        "return norm(x + self.dropout(branch(x)))",
        "return x + self.dropout(norm(branch(x)))",
        "layers/test_block.py",
    ),
    Mutant(
        "patches are read column by column",
        "layers/patches.py",
        ".permute(0, 2, 4, 1, 3, 5)",
        ".permute(0, 4, 2, 1, 3, 5)",
        "layers/test_patches.py",
    ),
    Mutant(
        "GPT counts padding as positions",
        "models/gpt.py",
        "positions = allowed.positions(T, past + T, device=tokens.device)",
        "positions = None",
        "models/test_gpt.py",
    ),
    Mutant(
        "exact: the values come from the source of the keys",
        "attention/multi_head.py",
        "self.proj_v(source if values is None else values)",
        "self.proj_v(source)",
        "models/test_courses.py",
    ),
    Mutant(
        "exact: the shift of a norm follows the bias of the layers",
        "layers/block.py",
        "shift = bias if norm_bias is None else norm_bias",
        "shift = bias",
        "models/test_courses.py",
    ),
    Mutant(
        "exact: the biases of attention follow those of the layers",
        "layers/block.py",
        "bias if attention_bias is None else attention_bias",
        "bias",
        "models/test_courses.py",
    ),
    Mutant(
        "exact: attention has a norm although it should not",
        "layers/block.py",
        'attention_norm = norm if norm_attention else "none"',
        "attention_norm = norm",
        "models/test_courses.py",
    ),
    Mutant(
        "exact: pre-norm always ends with a norm",
        "layers/stack.py",
        "if not (self.pre_norm if self.final_norm is None else self.final_norm):",
        "if not self.pre_norm:",
        "models/test_courses.py",
    ),
    Mutant(
        "exact: the final norm has no shift of its own",
        "layers/stack.py",
        "shift = self.bias if self.norm_bias is None else self.norm_bias",
        "shift = self.bias",
        "models/test_courses.py",
    ),
    Mutant(
        "exact: positions are added behind the class token",
        "models/vit.py",
        "torch.cat((token, x + table), dim=1)",
        "torch.cat((token, x), dim=1)",
        "models/test_courses.py",
    ),
    Mutant(
        "exact: the head of a GPT has no bias",
        "models/gpt.py",
        "bias=c.head_bias",
        "bias=False",
        "models/test_courses.py",
    ),
    Mutant(
        "exact: the best word of a packed GPT ignores the bias",
        "generation/fast/packed_gpt.py",
        "            and not self.config.head_bias\n",
        "",
        "generation/fast/test_packed_reader.py",
    ),
    Mutant(
        "exact: a packed GPT has no bias in its head",
        "generation/fast/packed_gpt.py",
        "lay_out([(table, _copy(model.head.bias))])",
        "lay_out([(table, None)])",
        "generation/fast/test_packed_reader.py",
    ),
    Mutant(
        "exact: an activation of the user's is left out",
        "layers/recurrent.py",
        "    y = activation(x)\n",
        "    y = x\n",
        "layers/test_recurrent.py",
    ),
    Mutant(
        "exact: either mask means both",
        "attention/masks.py",
        "Mask((Inverse(Mask((Inverse(self), Inverse(Mask.of(other))))),))",
        "self & other",
        "attention/test_masks.py",
    ),
    Mutant(
        "exact: integers beyond 1 are a mask",
        "shapes.py",
        "is_flag = (x == 0) | (x == 1)",
        "is_flag = x >= 0",
        "attention/test_masks.py",
    ),
    Mutant(
        "exact: the decoder returns the state it was given",
        "models/encoder_decoder.py",
        "state._replace(hidden=hidden)",
        "state",
        "models/test_encoder_decoder.py",
    ),
    Mutant(
        "exact: the weights kept are those of another row",
        "models/encoder_decoder.py",
        "weights.append(self._find_weights(hidden, keys, mask))",
        "weights.append(self._find_weights(hidden.roll(1, 1), keys, mask))",
        "models/test_encoder_decoder.py",
    ),
]

GENERATION = [
    Mutant(
        "temperature multiplies",
        "generation/sampling.py",
        "/ sampling.temperature  # ≤ 0",
        "* sampling.temperature  # ≤ 0",
        "generation/test_sampling.py",
    ),
    Mutant(
        "top-k keeps the best alone",
        "generation/sampling.py",
        "scores.topk(sampling.top_k, dim=-1).values[:, -1:]",
        "scores.topk(sampling.top_k, dim=-1).values[:, :1]",
        "generation/test_sampling.py",
    ),
    Mutant(
        "top-p drops the token that reaches it",
        "generation/sampling.py",
        "count = (before < sampling.top_p)",
        "count = (before + ranked < sampling.top_p)",
        "generation/test_sampling.py",
    ),
    Mutant(
        "min-p is compared with a logarithm",
        "generation/sampling.py",
        "scores < math.log(sampling.min_p)",
        "scores < sampling.min_p",
        "generation/test_sampling.py",
    ),
    Mutant(
        "the repetition penalty helps negative logits",
        "generation/sampling.py",
        "torch.where(logits > 0, logits / penalty, logits * penalty)",
        "logits / penalty",
        "generation/test_sampling.py",
    ),
    Mutant(
        "a stopped row writes on",
        "generation/generate.py",
        "chosen = torch.where(running, chosen, unread[:, -1])",
        "chosen = chosen",
        "generation/test_generate.py",
    ),
    Mutant(
        "all rows draw with the same seed",
        "generation/row_sampler.py",
        "generator.manual_seed(seed + row)",
        "generator.manual_seed(seed)",
        "generation/test_generate.py generation/test_row_sampler.py",
    ),
    Mutant(
        "beam search forgets the length penalty",
        "generation/beam.py",
        "scores = ended_log_probs / length ** float(length_penalty)",
        "scores = ended_log_probs * 1.0",
        "generation/test_beam.py",
    ),
    Mutant(
        "a full context reads one token too many",
        "generation/rolling.py",
        "if known.size(1) > self.max_len:",
        "if known.size(1) > self.max_len + 1:",
        "generation/test_rolling.py",
    ),
    Mutant(
        "a padded row rolls with the longest",
        "generation/rolling.py",
        "kept = torch.where(lengths > self.max_len, half, lengths)",
        "kept = lengths.clamp(max=half)",
        "generation/test_rolling.py",
    ),
    Mutant(
        "calls of other threads are recorded",
        "inspection/record.py",
        "        if threading.get_ident() != self.thread:\n            return\n",
        "",
        "inspection/test_record.py",
    ),
]

TRAINING = [
    Mutant(
        "the loss counts padding",
        "training/losses.py",
        "(targets != IGNORE).sum().clamp(min=1)",
        "targets.numel()",
        "training/test_losses.py",
    ),
    Mutant(
        "the class-token loss reads the last token",
        "training/loss_inputs.py",
        "return widen(logits[:, 0])",
        "return widen(logits[:, -1])",
        "training/test_losses.py",
    ),
    Mutant(
        "a token predicts itself",
        "data/batch.py",
        "targets[:, :-1] = torch.where(follows, tokens[:, 1:], IGNORE)",
        "targets[:, :-1] = torch.where(follows, tokens[:, :-1], IGNORE)",
        "training/test_losses.py data/test_batch.py",
    ),
    Mutant(
        "the vocabulary loss climbs",
        "training/losses_fast.py",
        "torch.full_like(wanted, -1.0)",
        "torch.full_like(wanted, 1.0)",
        "training/test_losses.py",
    ),
    Mutant(
        "the gradient of the vocabulary loss is a sum",
        "training/losses_fast.py",
        "scale = grad / ctx.n",
        "scale = grad",
        "training/test_losses.py",
    ),
    Mutant(
        "the warm-up is one step ahead",
        "training/schedule.py",
        "return step / self.warmup",
        "return (step + 1) / self.warmup",
        "training/test_schedule.py",
    ),
    Mutant(
        "the linear schedule starts below one",
        "training/schedule.py",
        "return (self.max_steps - step) / (self.max_steps - self.warmup)",
        "return (self.max_steps - step) / self.max_steps",
        "training/test_schedule.py",
    ),
    Mutant(
        "Muon without Nesterov's look ahead",
        "training/optimizer.py",
        "found.append(gradient.add(momentum, alpha=self.momentum))",
        "found.append(momentum)",
        "training/test_optimizer.py",
    ),
    Mutant(
        "weight decay pulls vectors",
        "training/optimizer.py",
        "({n: p for n, p in rest.items() if p.ndim < 2}, 0.0)",
        "({n: p for n, p in rest.items() if p.ndim < 2}, weight_decay)",
        "training/test_optimizer.py",
    ),
    Mutant(
        "the gradients of a step are summed",
        "training/gradient.py",
        "gradient, 1 / len(batches))",
        "gradient, 1.0)",
        "training/test_gradient.py",
    ),
    Mutant(
        "dropout of a step depends on earlier steps",
        "training/loop.py",
        'seed_torch(self.device, self.config.seed, "step", step)',
        "pass",
        "training runs",
    ),
    Mutant(
        "gradients are not clipped",
        "training/loop.py",
        "if clip is not None and float(norm) > clip:",
        "if False:",
        "training runs",
    ),
    Mutant(
        "every second epoch is skipped",
        "training/state.py",
        "state.epoch, state.cursor = state.epoch + 1, 0",
        "state.epoch, state.cursor = state.epoch + 2, 0",
        "training/test_state.py training/test_loop.py runs/test_train_recipe.py",
    ),
    Mutant(
        "the fast loss is constant in a second derivative",
        "training/losses_fast.py",
        "if torch.is_grad_enabled():  # create_graph=True",
        "if False:  # create_graph=True",
        "training/test_losses.py",
    ),
    Mutant(
        "a cursor inside a batch goes back",
        "training/state.py",
        "rest = plan[state.cursor - start :]",
        "rest = plan",
        "runs/test_resume.py",
    ),
]

TOKENIZERS = [
    Mutant(
        "the first special token is dropped",
        "data/tokenizers/tokenizer.py",
        "return before + ids + ([]",
        "return ids + ([]",
        "data/tokenizers",
    ),
    Mutant(
        "the alphabet keeps the order of the text",
        "data/tokenizers/characters.py",
        '"".join(sorted(set(text)))',
        '"".join(dict.fromkeys(text))',
        "data/tokenizers",
    ),
    Mutant(
        "an unknown word becomes the start token",
        "data/tokenizers/words.py",
        "known.get(token, unknown)",
        "known.get(token, 0)",
        "data/tokenizers",
    ),
    Mutant(
        "min_count drops words that just reach it",
        "data/tokenizers/words.py",
        "if count >= min_count",
        "if count > min_count",
        "data/tokenizers",
    ),
]

RUNS = [
    Mutant(
        "a checkpoint is checked by size alone",
        "runs/checkpoint.py",
        "    return [size, digest.hexdigest()]",
        '    return [size, ""]',
        "runs/test_checkpoint.py",
    ),
    Mutant(
        "the oldest checkpoint is resumed",
        "runs/checkpoint.py",
        "    for path in reversed(find_checkpoints(folder)):\n        try:\n"
        "            return load(",
        "    for path in find_checkpoints(folder):\n        try:\n            return load(",
        "runs/test_checkpoint.py",
    ),
    Mutant(
        "the best checkpoint is removed",
        "runs/checkpoint.py",
        "for number in (*sorted(last)[-max(1, keep) :], best)",
        "for number in (*sorted(last)[-max(1, keep) :],)",
        "runs/test_checkpoint.py",
    ),
    Mutant(
        "a checkpoint of another run is resumed",
        "runs/checkpoint.py",
        "    if owner != run:\n",
        "    if False:\n",
        "runs/test_checkpoint.py",
    ),
    Mutant(
        "metrics are not cut back on resume",
        "runs/folder.py",
        "            if size > known:\n",
        "            if False:\n",
        "runs",
    ),
    Mutant(
        "code of a foreign run is run without a question",
        "runs/own_code.py",
        "if not trust and not is_known(code):",
        "if False:",
        "cli/test_own_recipe.py",
    ),
    Mutant(
        "other code than that of the run is run",
        "runs/own_code.py",
        'if code.sha256 != about["sha256"]:',
        "if False:",
        "cli/test_own_recipe.py",
    ),
]

FILES = [
    Mutant(
        "a folder gets its name before its files are on the disk",
        "files/writing.py",
        "        sync_folder(temporary)\n",
        "",
        "files/test_writing.py",
    ),
    Mutant(
        "the metrics that a checkpoint counts on are not synced",
        "runs/folder.py",
        "                    os.fsync(file.fileno())\n                    sizes[name]",
        "                    sizes[name]",
        "runs/test_folder.py",
    ),
    Mutant(
        "a link in a run folder is followed",
        "files/writing.py",
        "    if stat.S_ISLNK(found.st_mode):\n",
        "    if False:\n",
        "runs/test_foreign.py",
    ),
    Mutant(
        "a model is built before its weights are compared",
        "runs/run.py",
        "        check_config(recipe.model, found.model)\n",
        "",
        "runs/test_foreign.py",
    ),
]

INSPECTION = [
    Mutant(
        "positions of a change do not count cached tokens",
        "inspection/places.py",
        "first = 0 if is_keys else tracker.count_cached(self.site.name)",
        "first = 0",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "positions of keys count cached tokens twice",
        "inspection/places.py",
        "first = 0 if is_keys else tracker.count_cached(self.site.name)",
        "first = tracker.count_cached(self.site.name)",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "a place in front of the blocks guesses its positions while tokens are cached",
        "inspection/places.py",
        "if self.past and name is not None:",
        "if False:",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "a silenced head keeps the heads that were not asked for",
        "inspection/places.py",
        "selected[heads] = True",
        "selected[:] = True",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "a function writes into the model's own value",
        "inspection/interventions.py",
        "value(old.clone())",
        "value(old)",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "resampling may give a row itself",
        "inspection/interventions.py",
        "torch.randint(int(is_own), len(source)",
        "torch.randint(0, len(source)",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "the mean of an ablation is taken over the batch only",
        "inspection/interventions.py",
        "axes = (0, -2) if source.ndim > 2 else (0,)",
        "axes = (0,)",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "sharpening leaves the bias as it is",
        "inspection/interventions.py",
        "inputs.bias * factors",
        "inputs.bias",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "an edited mask replaces the model's own",
        "inspection/interventions.py",
        "replace(inputs, mask=new_mask & own)",
        "replace(inputs, mask=new_mask)",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "a later change of a place runs before an earlier one",
        "inspection/edits.py",
        "editor.edits = (*editor.edits, edit)",
        "editor.edits = (edit, *editor.edits)",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "calls of other threads are changed too",
        "inspection/edits.py",
        "return self.is_open and self.thread == threading.get_ident()",
        "return self.is_open",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "a shared mechanism is changed wherever it is used",
        "inspection/edits.py",
        "is_open=site.holder is None",
        "is_open=True",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "hooks stay after the last change",
        "inspection/edits.py",
        "if not editor.edits:",
        "if False:",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "a copy of a changed model stays changed",
        "inspection/edits.py",
        "        return _Editor()",
        "        return self",
        "inspection/test_interventions.py",
    ),
    Mutant(
        "rows of a sweep are copies of changed ones",
        "inspection/sweep_rows.py",
        "_repeat_rows(x[:B], n)",
        "_repeat_rows(x[-B:], n)",
        "inspection/test_sweeps.py",
    ),
    Mutant(
        "a sweep changes one entry too far",
        "inspection/sweep_rows.py",
        "changed[copies, :, entries] = new[:, entries]",
        "changed[copies, :, entries] = new[:, [0 for _ in entries]]",
        "inspection/test_sweeps.py",
    ),
    Mutant(
        "rows join a batch whose masks belong to rows",
        "inspection/sweep_rows.py",
        "len(arguments) == 1 and n_stacks == 1",
        "n_stacks >= 1",
        "inspection/test_sweeps.py",
    ),
    Mutant(
        "an estimate forgets what the value was",
        "inspection/sweeps.py",
        "(value - values[name].detach()) * gradient",
        "value * gradient",
        "inspection/test_sweeps.py",
    ),
    Mutant(
        "the share recovered is measured from 0",
        "inspection/sweeps.py",
        "return self.effect / (self.goal - self.unchanged)",
        "return self.effect / self.goal",
        "inspection/test_sweeps.py",
    ),
    Mutant(
        "a term is not centred by a layer norm",
        "inspection/attribution.py",
        "terms = {name: x - x.mean(-1, keepdim=True) for name, x in terms.items()}",
        "terms = dict(terms)",
        "inspection/test_attribution.py",
    ),
    Mutant(
        "each term is divided by its own length",
        "inspection/attribution.py",
        "variance = before.square().mean(-1, keepdim=True)",
        "variance = next(iter(terms.values())).square().mean(-1, keepdim=True)",
        "inspection/test_attribution.py",
    ),
    Mutant(
        "shifts of earlier norms are forgotten",
        "inspection/attribution.py",
        'terms["norm shifts"] = old + norm.shift',
        'terms["norm shifts"] = norm.shift.expand_as(old)',
        "inspection/test_attribution.py",
    ),
    Mutant(
        "the contribution of against is added",
        "inspection/attribution.py",
        "weight, bias = weight - other_weight, bias - other_bias",
        "weight, bias = weight + other_weight, bias + other_bias",
        "inspection/test_attribution.py",
    ),
    Mutant(
        "the lens reads without the last norm",
        "inspection/residual.py",
        "x = x if self.stack.norm is None else self.stack.norm(x)",
        "x = x",
        "inspection/test_attribution.py",
    ),
    Mutant(
        "induction is the weight on the earlier copy",
        "inspection/head_scores.py",
        "look_back(n - 1),",
        "look_back(n),",
        "inspection/test_head_scores.py",
    ),
    Mutant(
        "the gain of a norm is left out of OV",
        "inspection/circuits.py",
        "v = source_gain * attention.proj_v",
        "v = attention.proj_v",
        "inspection/test_head_scores.py",
    ),
    Mutant(
        "a map covers the last patches first",
        "inspection/picture_maps.py",
        "argsort(dim=1, descending=True)",
        "argsort(dim=1)",
        "inspection/test_picture_maps.py",
    ),
    Mutant(
        "a gradient map counts attention against the answer",
        "inspection/picture_maps.py",
        ".clamp(min=0)",
        ".abs()",
        "inspection/test_picture_maps.py",
    ),
]

PROGRAMS = [
    Mutant(
        "a head that copies counts the start token",
        "programs/parts.py",
        '(sharpness if kind == "copy" else 0.0)',
        "0.0",
        "programs/test_compiler.py",
    ),
    Mutant(
        "a conjunction falls back on the start token too early",
        "programs/parts.py",
        "fallback = step * len(matches)",
        "fallback = step * 1",
        "programs/test_compiler.py",
    ),
    Mutant(
        "a feed-forward layer of a program writes at the start token",
        "programs/parts.py",
        "for name in (*gate, TOKEN)]\n    low = step.low + step.strength * len(open_gate)",
        "for name in gate]\n    low = step.low + step.strength * len(open_gate)",
        "programs/test_compiler.py programs/test_library.py",
    ),
    Mutant(
        "a step of a program stands at the edge of its gap",
        "programs/parts.py",
        "below + (above - below) / 4, (above - below) / 2",
        "below, (above - below) / 2",
        "programs/test_error_bounds.py",
    ),
    Mutant(
        "a program's error is that of half its keys",
        "programs/parts.py",
        "noise = max_len * math.exp",
        "noise = max_len / 2 * math.exp",
        "programs/test_error_bounds.py",
    ),
    Mutant(
        "errors of variables do not move the scores of a program",
        "programs/parts.py",
        "shift = 2 * sharpness * sum(errors)",
        "shift = 0.0 * sum(errors)",
        "programs/test_error_bounds.py",
    ),
    Mutant(
        "a program's width ignores its sharpness where it is too soft",
        "programs/parts.py",
        "if worst >= 1:",
        "if False:",
        "programs/test_error_bounds.py",
    ),
    Mutant(
        "not of a selector keeps its ors",
        "programs/clauses.py",
        "if isinstance(selector, Both) == is_positive:",
        "if isinstance(selector, Both):",
        "programs/test_compiler.py",
    ),
    Mutant(
        "a clause replaces those that it covers",
        "programs/clauses.py",
        "merged[number] = wider.join(clause)",
        "merged[number] = wider",
        "programs/test_compiler.py",
    ),
    Mutant(
        "equal names of a program share directions",
        "programs/planner.py",
        "while used & {variable.label, *variable.directions}:",
        "while False:",
        "programs/test_compiler.py",
    ),
    Mutant(
        "directions that are read are removed",
        "programs/plan.py",
        "return {name for name, _, _ in entries} | {name for unit in units for name in unit.reads}",
        "return {name for unit in units for name in unit.reads}",
        "programs/test_compiler.py",
    ),
    Mutant(
        "a program's layer reads what it writes",
        "programs/planner.py",
        "(1 if form.slot % 2 == 0 else 2)",
        "(1 if form.slot % 2 == 0 else 0)",
        "programs/test_compiler.py",
    ),
    Mutant(
        "aggregate copies the first of several values",
        "programs/interpreter.py",
        "if value != chosen[0]:",
        "if False:",
        "programs/test_language.py",
    ),
    Mutant(
        "the mean of nothing is not the default",
        "programs/interpreter.py",
        "return part.default",
        "return None",
        "programs/test_language.py",
    ),
    Mutant(
        "queries and keys of a predicate are swapped",
        "programs/interpreter.py",
        "part.predicate(key, query)",
        "part.predicate(query, key)",
        "programs/test_language.py",
    ),
    Mutant(
        "an answer that may be wrong is accepted",
        "programs/plan.py",
        "if error >= 0.5:",
        "if False:",
        "programs/test_error_bounds.py",
    ),
    Mutant(
        "numbers too close for floating point are told apart",
        "programs/parts.py",
        "if step.width < number.largest_term * Fraction(ROUNDING):",
        "if False:",
        "programs/test_compiler.py",
    ),
    Mutant(
        "terms of one sequence replace each other",
        "programs/sequences.py",
        "factors.get(part, Fraction(0)) + factor * own",
        "factor * own",
        "programs/test_language.py programs/test_compiler.py",
    ),
    Mutant(
        "the default of a copy is not there where something else is selected",
        "programs/heads.py",
        "head.says.append((direction, variable.direction(default), -1.0))",
        "pass",
        "programs/test_compiler.py",
    ),
    Mutant(
        "a mean keeps its default where something is selected",
        "programs/heads.py",
        "number.add(Number({}, default), Fraction(-1)).reads",
        "number.reads",
        "programs/test_compiler.py",
    ),
]

PARALLEL = [
    Mutant(
        "the sums of the chunks are added in a row",
        "training/chunks.py",
        "middle = first + (1 << (end - first - 1).bit_length() - 1)",
        "middle = end - 1",
        "training/test_chunks.py",
    ),
    Mutant(
        "the order of sums depends on the number of processes",
        "parallel/group.py",
        "return add_tree((0, n), known.get)",
        "return rows.sum(0)",
        "parallel/test_group.py",
    ),
    Mutant(
        "all chunks draw the same random numbers",
        "training/chunks.py",
        '"chunk", step, chunk)',
        '"chunk", step)',
        "training/test_chunks.py",
    ),
    Mutant(
        "running statistics change by the sum over the chunks",
        "training/chunks.py",
        "change = piece.view(buffer.shape) / n",
        "change = piece.view(buffer.shape)",
        "training/test_chunks.py",
    ),
    Mutant(
        "a gradient is clipped by the length of the own part",
        "training/chunks.py",
        "torch.linalg.vector_norm(self.group.add_own(lengths))",
        "torch.linalg.vector_norm(lengths)",
        "parallel/test_exact_runs.py",
    ),
    Mutant(
        "the owners of parameters do not send them",
        "parallel/group.py",
        "self.owners.send_parameters()",
        "pass",
        "parallel/test_replicated.py",
    ),
    Mutant(
        "the first process sends the optimizer of all",
        "parallel/owners.py",
        "dist.broadcast(vector, rank)",
        "dist.broadcast(vector, 0)",
        "parallel/test_group.py",
    ),
    Mutant(
        "the optimizer is not collected before a save",
        "training/loop.py",
        "self.group.collect(self.optimizer)",
        "pass",
        "parallel/test_exact_runs.py",
    ),
    Mutant(
        "an example that is only borrowed has a weight",
        "parallel/replicated.py",
        "if len(part) else 0.0",
        "if len(part) else 1.0",
        "parallel/test_replicated.py",
    ),
    Mutant(
        "each process of ddp has the same weight",
        "parallel/replicated.py",
        "(loss * (n * size / n_terms)).backward()",
        "(loss * (size / len(parts))).backward()",
        "parallel/test_replicated.py",
    ),
    Mutant(
        "all processes of ddp drop the same",
        "parallel/replicated.py",
        '"dropout", step, number)',
        '"dropout", step)',
        "parallel/test_replicated.py",
    ),
    Mutant(
        "all processes of ddp change their examples alike",
        "parallel/replicated.py",
        '"chunk", step, number)',
        '"chunk", step)',
        "parallel/test_replicated.py",
    ),
    Mutant(
        "the first pass of ddp moves the running statistics",
        "parallel/replicated.py",
        "            buffer.copy_(value)",
        "            pass",
        "parallel/test_replicated_runs.py",
    ),
    Mutant(
        "the length of a sharded gradient is that of the own rows",
        "parallel/sharded.py",
        "every = self.group.gather_numbers([float(get_total_norm(own))])",
        "every = [[float(get_total_norm(own))]]",
        "parallel/test_sharded.py",
    ),
    Mutant(
        "the rows of a shard are read as the first ones",
        "parallel/shards.py",
        "found[name][a - first : b - first]",
        "found[name][: b - a]",
        "parallel/test_sharded_runs.py",
    ),
    Mutant(
        "numbers that are not finite are found in the shards of the first process only",
        "runs/sharding.py",
        'self.group.find_fault(next(bad, ""))',
        'self.group.find_fault(next(bad, "") if self.is_first else "")',
        "parallel/test_sharded_runs.py",
    ),
    Mutant(
        "a shard that cannot be written stops one process only",
        "runs/sharding.py",
        "self.group.try_together(write)",
        "write()",
        "parallel/test_sharded_runs.py",
    ),
    Mutant(
        "every process of fsdp logs",
        "runs/sharding.py",
        "        if self.is_first:\n            super().add_metrics(values)",
        "        super().add_metrics(values)",
        "parallel/test_sharded_runs.py",
    ),
]

MUTANTS = [
    *ATTENTION,
    *MASKS_AND_POSITIONS,
    *LAYERS_AND_MODELS,
    *GENERATION,
    *TRAINING,
    *TOKENIZERS,
    *RUNS,
    *FILES,
    *INSPECTION,
    *PROGRAMS,
    *PARALLEL,
]


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """Plant the mistake in a copy of the project, run its tests, and take it out again."""
    path = copy / "clearhead" / mutant.file
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(mutant.right, mutant.wrong), encoding="utf-8")
    tests = [str(copy / "tests" / name) for name in mutant.tests.split()]
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider"]
    options = ["-m", "not slow", "-c", str(copy / "pyproject.toml"), "--rootdir", str(copy)]
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*command, *options, *tests], cwd=copy, env=environment, capture_output=True
        )
    finally:
        path.write_text(source, encoding="utf-8")
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(
            f"the tests of {mutant.name!r} could not be run:\n{done.stdout.decode()}"
        )
    return done.returncode != 0


def main(words: list[str]) -> int:
    chosen = [m for m in MUTANTS if not words or any(word in m.name for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("clearhead", "tests", "docs"):
            shutil.copytree(ROOT / part, copy / part)
        for part in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / part, copy / part)
        survived = 0
        for mutant in chosen:
            killed = is_killed(mutant, copy)
            survived += not killed
            print("killed  " if killed else "SURVIVED", mutant.name, flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} killed")
    return min(survived, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
