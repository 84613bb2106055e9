"""A GRU encoder and an attention decoder as loops: row by row, token by token, layer by layer."""

import math

import torch

from clearhead.attention import AdditiveAttention


def cell(gru, layer, x, hidden):
    """One step of one layer for one row, (inputs,) and (H,) → (H,), by Cho et al. 2014."""
    w_x, w_h = getattr(gru, f"weight_ih_l{layer}"), getattr(gru, f"weight_hh_l{layer}")
    b_x, b_h = getattr(gru, f"bias_ih_l{layer}"), getattr(gru, f"bias_hh_l{layer}")
    reset_x, update_x, new_x = (w_x @ x + b_x).chunk(3)
    reset_h, update_h, new_h = (w_h @ hidden + b_h).chunk(3)
    reset, update = torch.sigmoid(reset_x + reset_h), torch.sigmoid(update_x + update_h)
    new = torch.tanh(new_x + reset * new_h)
    return (1 - update) * new + update * hidden


def layers(gru, x, hidden):
    """One step of all layers: (inputs,), (n_layers, H) → (n_layers, H)."""
    after = []
    for layer in range(gru.num_layers):
        x = cell(gru, layer, x, hidden[layer])
        after.append(x)
    return torch.stack(after)


def read(encoder, tokens):
    """All tokens of one row → outputs (S, H), hidden (n_layers, H)."""
    shape, outputs = (encoder.gru.num_layers, encoder.gru.hidden_size), []
    hidden = torch.zeros(shape, dtype=torch.float64)
    for token in tokens.tolist():
        hidden = layers(encoder.gru, encoder.embedding.weight[token], hidden)
        outputs.append(hidden[-1])
    return torch.stack(outputs), hidden


def attention_weights(attention, query, outputs):
    """One query (H,) → (S,)."""
    if isinstance(attention, AdditiveAttention):
        w_q, w_k, w = (
            attention.proj_q.weight,
            attention.proj_k.weight,
            attention.proj_score.weight[0],
        )
        scores = [w @ torch.tanh(w_q @ query + w_k @ key) for key in outputs]
    else:
        scores = [query @ key / math.sqrt(len(query)) for key in outputs]
    powers = [torch.exp(score) for score in scores]
    return torch.stack(powers) / sum(powers)


def write(decoder, words, outputs, hidden):
    """All words of one row → logits (T, V) and weights (T, S)."""
    logits, weights = [], []
    for word in words.tolist():
        weights.append(attention_weights(decoder.attention, hidden[-1], outputs))
        context = weights[-1] @ outputs
        x = torch.cat((context, decoder.embedding.weight[word]))
        hidden = layers(decoder.gru, x, hidden)
        logits.append(decoder.head.weight @ hidden[-1] + decoder.head.bias)
    return torch.stack(logits), torch.stack(weights)
