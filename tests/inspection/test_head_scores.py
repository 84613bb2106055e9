"""head_scores and circuits: heads set by hand are recognised."""

import math

import pytest
import torch
from model_cases import D, H, L, build_case, gpt, randomize
from torch import nn

from clearhead.inspection import (
    composition,
    find_circuit,
    head_scores,
    ov_matrix,
    qk_matrix,
    record,
)
from clearhead.inspection.head_scores import draw_repeated
from clearhead.models import GPT, GPTConfig


def copying_model(n: int = 8, vocab: int = 5) -> GPT:
    """One layer, two heads by position alone: head 0 looks one token back, head 1 n tokens back.

    Positions are one-hot; the query of position t is the key of position t − 1, or t − n.
    """
    width = 2 * n
    config = GPTConfig(
        vocab_size=vocab, max_len=width, d_model=2 * width, n_layers=1, n_heads=2, norm="none"
    )
    model = GPT(config).eval()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    model.positions.weight.data[:, :width] = torch.eye(width)
    attention = model.stack.blocks[0].attention
    for head, back in enumerate((1, n)):
        for t in range(width):
            if t >= back:
                attention.proj_q.weight.data[head * width + t - back, t] = 200.0
            attention.proj_k.weight.data[head * width + t, t] = 1.0
    return model


def test_a_head_that_looks_one_token_back_and_one_that_looks_at_the_copy_are_found() -> None:
    scores = head_scores(copying_model())
    torch.testing.assert_close(scores.previous[0], torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(scores.duplicate[0], torch.tensor([0.0, 1.0]))
    assert scores.best("previous") == (0, 0)
    assert scores.best("duplicate") == (0, 1)


def test_a_head_that_looks_at_what_followed_is_an_induction_head() -> None:
    model = copying_model(n=8)
    attention = model.stack.blocks[0].attention
    # The second head now looks 7 back: at the token after the first copy.
    attention.proj_q.weight.data[16:] = 0
    for t in range(7, 16):
        attention.proj_q.weight.data[16 + t - 7, t] = 200.0
    scores = head_scores(model)
    torch.testing.assert_close(scores.induction[0], torch.tensor([0.0, 1.0]))
    assert "induction" in repr(scores)


def test_scores_are_means_over_the_second_copy() -> None:
    model = gpt()
    tokens = draw_repeated(model, 6, 4, seed=3)
    with record(model) as trace:
        model(tokens)
    weights = trace["stack.blocks.1.attention"].weights
    by_hand = torch.stack([weights[:, :, t, t - 5] for t in range(6, 12)]).mean(dim=(0, 1))
    found = head_scores(model, n_tokens=6, batch_size=4, seed=3)
    torch.testing.assert_close(found.induction[1], by_hand.detach())
    assert torch.equal(tokens[:, :6], tokens[:, 6:])


def test_a_start_token_stands_before_the_copies_and_is_not_scored() -> None:
    model = gpt()
    tokens = draw_repeated(model, 6, 4, seed=3, start=2)
    assert tokens.shape == (4, 13)
    assert (tokens[:, 0] == 2).all()
    assert not (tokens[:, 1:] == 2).any()
    assert torch.equal(tokens[:, 1:7], tokens[:, 7:])
    with record(model) as trace:
        model(tokens)
    weights = trace["stack.blocks.1.attention"].weights
    by_hand = torch.stack([weights[:, :, t, t - 5] for t in range(7, 13)]).mean(dim=(0, 1))
    found = head_scores(model, n_tokens=6, batch_size=4, seed=3, start=2)
    torch.testing.assert_close(found.induction[1], by_hand.detach())
    with pytest.raises(ValueError, match=r"start must be an id below \d+, got 400"):
        head_scores(model, start=400)


def test_a_picture_model_has_no_tokens_to_repeat() -> None:
    for name in ("vit", "joined heads"):  # one has other settings, the other none
        with pytest.raises(ValueError, match="does not read tokens"):
            head_scores(build_case(name)[0])
    with pytest.raises(ValueError, match="did you mean 'induction'"):
        head_scores(gpt()).best("inductoin")


# Circuits


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_ov_is_what_an_attended_token_adds(name: str) -> None:
    """A sequence of one token attends to itself only, so attention is OV and the biases."""
    model, _ = build_case(name)
    block = model.stack.blocks[1]
    x = torch.randn(1, 1, D, dtype=torch.float64)
    total = sum(x @ ov_matrix(model, 1, head) for head in range(H))
    for layer in (block.attention.proj_v, block.attention.proj_out):
        layer.bias.data.zero_()
    gain = block.norm_attention.gain
    torch.testing.assert_close(block.attention(x * gain), total)


def test_qk_gives_the_scores() -> None:
    model = gpt()
    attention = model.stack.blocks[0].attention
    for layer in (attention.proj_q, attention.proj_k):
        layer.bias.data.zero_()
    x = torch.randn(1, 4, D, dtype=torch.float64)
    gain = model.stack.blocks[0].norm_attention.gain
    with record(attention) as trace:
        attention(x * gain)
    (call,) = trace.attention.values()
    for head in range(H):
        expected = call.q[0, head] @ call.k[0, head].T / math.sqrt(D // H)
        torch.testing.assert_close(x[0] @ qk_matrix(model, 0, head) @ x[0].T, expected)


def test_composition_is_highest_where_a_head_reads_what_another_wrote() -> None:
    config = GPTConfig(vocab_size=7, max_len=9, d_model=D, n_layers=L, n_heads=H, norm="none")
    model = randomize(GPT(config))
    writer, reader = (block.attention for block in model.stack.blocks)
    Dh = D // H
    reader.proj_k.weight.data[Dh : 2 * Dh] = writer.proj_out.weight.data[:, :Dh].T
    scores = composition(model, "k")
    assert scores.shape == (L, H, L, H)
    assert scores[0, :, 1, :].argmax() == 1  # writer 0, reader 1
    assert (scores[1] == 0).all()
    assert (scores[0, :, 0] == 0).all()
    assert (scores <= 1).all()


def test_a_copying_head_writes_the_token_it_reads() -> None:
    config = GPTConfig(vocab_size=7, max_len=9, d_model=14, n_layers=1, n_heads=2, norm="none")
    model = randomize(GPT(config))
    model.embedding.weight.data = torch.eye(7, 14, dtype=torch.float64)
    attention = model.stack.blocks[0].attention
    attention.proj_v.weight.data[:7] = torch.eye(7, 14) * torch.arange(1, 8)[:, None]
    attention.proj_out.weight.data[:, :7] = torch.eye(14, 7)
    circuit = find_circuit(model, 0, 0, k=3, n=1)
    assert circuit.reads.flatten().tolist() == [6, 5, 4]
    assert circuit.writes.flatten().tolist() == [6, 5, 4]
    torch.testing.assert_close(circuit.values, torch.tensor([7.0, 6, 5], dtype=torch.float64))


def test_a_cross_attention_has_the_gain_of_its_norm_on_the_side_of_the_queries_only() -> None:
    model, _ = build_case("translator")
    name = "decoder.blocks.0.cross_attention"
    block, attention = model.decoder.blocks[0], model.get_submodule(name)
    for layer in (attention.proj_q, attention.proj_k, attention.proj_v, attention.proj_out):
        layer.bias.data.zero_()
    x, source = torch.randn(2, 1, 1, D, dtype=torch.float64)
    with record(attention) as trace:
        output = attention(x * block.norm_cross.gain, source)
    (call,) = trace.attention.values()
    scores = (call.q @ call.k.mT).flatten() / math.sqrt(D // H)
    for head in range(H):
        score = x[0] @ qk_matrix(model, name, head) @ source[0].T
        torch.testing.assert_close(score.flatten(), scores[head : head + 1])
    total = sum(source @ ov_matrix(model, name, head) for head in range(H))
    torch.testing.assert_close(output, total)


def test_a_head_that_writes_nothing_composes_with_none() -> None:
    config = GPTConfig(vocab_size=7, max_len=9, d_model=D, n_layers=L, n_heads=H, zero_start=True)
    assert (composition(GPT(config), "v") == 0).all()


def test_circuits_of_other_attentions_are_refused() -> None:
    with pytest.raises(ValueError, match="VisionTransformer has no 'embedding' with a row for"):
        find_circuit(build_case("vit")[0], 0, 0)
    with pytest.raises(ValueError, match="Seq2SeqTransformer write to several streams"):
        composition(build_case("translator")[0])
    with pytest.raises(TypeError, match=r"head must be a whole number, got \[0, 1\]"):
        find_circuit(gpt(), 0, [0, 1])  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="circuits are read from MultiHeadAttention"):
        qk_matrix(build_case("smallest")[0], 0, 0)
    with pytest.raises(ValueError, match="head must be from 0 to 2"):
        ov_matrix(gpt(), 0, 3)
    model = GPT(GPTConfig(vocab_size=5, max_len=4, d_model=D, n_layers=1, n_heads=H, qk_norm=True))
    with pytest.raises(ValueError, match="QK does not exist"):
        qk_matrix(model, 0, 0)
