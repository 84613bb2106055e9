"""The text view: everything it shows is what record and the model compute."""

import math

import pytest
import torch
from text_models import DOT_PRODUCTS, MAX_LEN, MECHANISMS, NAMES, TEXT, RandomSources, run_python

from clearhead.inspection import ablate
from clearhead.studio.frames import decode_answer, encode_answer
from clearhead.studio.views.changes import Change
from clearhead.studio.views.text import attend
from clearhead.studio.views.tokens import find_tokens

T = len(TEXT) + 1


@pytest.fixture(scope="module")
def models():
    return RandomSources([])


@pytest.mark.parametrize("name", NAMES)
def test_the_python_of_attend_gives_all_its_numbers(models, name):
    answer = attend(models, name, TEXT, temperature=0.5)
    python = run_python(answer)
    assert [layer["name"] for layer in answer["layers"]] == list(python["calls"])
    for layer, call in zip(answer["layers"], python["calls"].values(), strict=True):
        assert torch.equal(layer["weights"], python["weights"][layer["name"]][0])
        assert torch.equal(layer["v"], call.v[0])
        assert torch.equal(layer["output"], call.output[0])
        if layer["mechanism"] == "dot product":
            assert torch.equal(layer["q"], call.q[0])
            assert torch.equal(layer["k"], call.k[0])
    if name == "encoder":
        return
    shown, probs = answer["answer"]["probs"], python["probs"]
    if name == "toeplitz":
        assert torch.equal(shown[:1], probs)
    elif name == "classes":
        assert torch.equal(shown, probs)
    else:
        assert torch.equal(shown, probs.gather(-1, answer["answer"]["ids"]))
        assert torch.equal(shown, probs.topk(7).values)


@pytest.mark.parametrize("name", DOT_PRODUCTS)
def test_the_numbers_of_a_layer_explain_each_weight_and_the_output(models, name):
    for layer in attend(models, name, TEXT)["layers"]:
        q, k, v, H = layer["q"], layer["k"], layer["v"], layer["heads"]
        scores = (q @ k.mT + (0 if layer["bias"] is None else layer["bias"])) / layer["scale"]
        if layer["allowed"] is not None:
            scores = scores.masked_fill(~layer["allowed"], -torch.inf)
        weights = scores.softmax(-1)
        assert weights.shape == (H, T, T) == layer["weights"].shape
        assert layer["scale"] == math.sqrt(q.size(-1))
        torch.testing.assert_close(weights, layer["weights"])
        torch.testing.assert_close(weights @ v, layer["output"])


@pytest.mark.parametrize("name", MECHANISMS)
def test_other_mechanisms_have_weights_and_values_but_no_dot_product(models, name):
    for layer in attend(models, name, TEXT)["layers"]:
        assert layer["mechanism"] == name
        assert layer["q"] is None
        assert layer["scale"] is None
        mixed = layer["weights"] @ layer["v"]
        torch.testing.assert_close(mixed, layer["output"], rtol=1e-4, atol=1e-4)


def test_biases_are_shown_for_each_head_and_masks_once_for_all(models):
    toeplitz = attend(models, "toeplitz", TEXT)["layers"][0]
    assert toeplitz["bias"].shape == (4, T, T)
    assert toeplitz["allowed"] is None
    alibi = attend(models, "alibi", TEXT)["layers"][0]
    assert alibi["bias"].shape == (4, T, T)
    assert alibi["allowed"].shape == (1, T, T)
    assert attend(models, "gpt", TEXT)["layers"][0]["bias"] is None


def test_tokens_have_names_and_layers_have_short_ones(models):
    answer = attend(models, "gpt", "ab|")
    assert answer["names"] == ["[CLS]", "a", "b", "|"]
    assert answer["tokens"] == [0, 1, 2, 5]
    assert [layer["title"] for layer in answer["layers"]] == ["layer 0", "layer 1"]
    assert answer["blocks"] == ["stack.blocks.0", "stack.blocks.1"]
    assert "#6" in answer["answer"]["texts"][0]  # an id without a token


def test_the_next_tokens_are_ranked_at_every_position(models):
    answer = attend(models, "llama", TEXT)["answer"]
    model = models.open("llama").model
    with torch.no_grad():
        logits = model(torch.tensor([models.open("llama").tokenizer.encode(TEXT)]))[0]
    values, ids = logits.softmax(-1).topk(7)
    assert torch.equal(answer["probs"], values)
    assert torch.equal(answer["ids"], ids)
    assert torch.equal(answer["logits"], logits.gather(-1, ids))
    names = [*find_tokens(models, "llama")["texts"], "#6"]
    assert answer["texts"] == [[names[i] for i in row] for row in ids.tolist()]


@pytest.mark.parametrize("text", ["abccab|cca", "abccab|aaa", "cabacab|ba"])
def test_a_classifier_answers_as_its_predictor_does(lecture, text):
    answer = attend(lecture, "substring", text)["answer"]
    found = lecture.open("substring").run.predict(text)
    best = int(answer["probs"].argmax())
    assert answer["texts"][best] == found["answer"]
    assert float(answer["probs"][best]) == pytest.approx(found["probability"], abs=1e-6)
    assert float(answer["probs"].sum()) == pytest.approx(1)


def test_several_classes_are_all_shown(models):
    answer = attend(models, "classes", TEXT)["answer"]
    assert answer["texts"] == ["class 0", "class 1", "class 2"]
    assert float(answer["probs"].sum()) == pytest.approx(1)


def test_an_encoder_shows_maps_and_no_answer(models):
    answer = attend(models, "encoder", TEXT, changes=[Change("silence", 0, 1)])
    assert answer["answer"] is answer["before"] is answer["compared"] is None


def test_a_language_model_reads_no_end_token(sources):
    answer = attend(sources, "dialogue-0001", "the king")
    assert answer["names"][0] == "<start>"
    assert answer["names"][-1] != "<end>"
    python = run_python(answer)
    assert python["tokens"].tolist() == [answer["tokens"]]


def test_without_a_change_there_is_nothing_to_compare(models):
    assert attend(models, "gpt", TEXT)["compared"] is None


def test_before_and_after_are_the_answers_without_and_with_a_change(models):
    answer = attend(models, "gpt", TEXT, changes=[Change("silence", 0, 2)])
    opened = models.open("gpt")
    tokens = torch.tensor([opened.tokenizer.encode(TEXT)])
    with torch.no_grad():
        old = opened.model(tokens)[0]
        with ablate(opened.model, 0, 2):
            new = opened.model(tokens)[0]
    compared, ids = answer["compared"], answer["compared"]["ids"]
    assert torch.equal(compared["logits_before"], old.gather(-1, ids))
    assert torch.equal(compared["logits"], new.gather(-1, ids))
    assert torch.equal(compared["probs_before"], old.softmax(-1).gather(-1, ids))
    assert torch.equal(answer["before"]["probs"], old.softmax(-1).topk(7).values)
    gap = (compared["probs"] - compared["probs_before"]).abs()
    assert torch.equal(compared["largest"][:, 0], gap.argmax(-1))


def test_a_swapped_token_is_compared_with_the_text_as_it_is_written(models):
    ids = models.open("gpt").tokenizer.encode(TEXT)
    swapped = [*ids[:3], 4, *ids[4:]]
    answer = attend(models, "gpt", TEXT, tokens=swapped)
    assert answer["names"][3] == "d"
    assert torch.equal(answer["before"]["probs"], attend(models, "gpt", TEXT)["answer"]["probs"])
    assert torch.equal(run_python(answer)["tokens"], torch.tensor([swapped]))
    assert attend(models, "gpt", TEXT, tokens=ids)["compared"] is None


def test_a_lower_temperature_makes_the_best_token_more_likely(models):
    answer = attend(models, "gpt", TEXT, temperature=0.25)
    assert (answer["answer"]["probs"][:, 0] > answer["before"]["probs"][:, 0]).all()
    assert torch.equal(answer["answer"]["logits"], answer["before"]["logits"])


def test_a_text_unlike_those_of_training_has_a_note(lecture):
    assert attend(lecture, "substring", "abccab|cca")["note"] is None
    assert "the needle has 0 letters" in attend(lecture, "substring", "abc")["note"]


def test_an_answer_can_be_sent_to_the_page(models):
    sent = decode_answer(encode_answer(attend(models, "gpt", TEXT, changes=[Change("silence", 0)])))
    assert sent["layers"][0]["weights"].shape == (4, T, T)
    assert sent["layers"][0]["allowed"].dtype == "uint8"
    assert sent["answer"]["ids"].dtype == "int32"


def test_texts_that_cannot_be_shown_are_refused_with_both_lengths(models, sources):
    words = f"has {MAX_LEN + 2} tokens, but this model reads at most {MAX_LEN}"
    with pytest.raises(ValueError, match=words):
        attend(models, "gpt", "a" * (MAX_LEN + 1))
    with pytest.raises(ValueError, match=r"has 900,000 characters"):
        attend(models, "gpt", "a" * 900_000)
    with pytest.raises(ValueError, match="tokens is empty"):
        attend(models, "gpt", "", tokens=[])
    with pytest.raises(ValueError, match="'z' at index 1"):
        attend(models, "gpt", "az")
    with pytest.raises(ValueError, match=r"ids go from 0 to 6"):
        attend(models, "gpt", "", tokens=[0, 99])
    with pytest.raises(ValueError, match="models that read one text"):
        attend(sources, "identity-0001", "a")
    with pytest.raises(ValueError, match="temperature"):
        attend(models, "gpt", TEXT, temperature=0.0)


def test_a_classifier_without_a_limit_shows_512_tokens(lecture):
    with pytest.raises(ValueError, match="has 602 tokens, but this view shows at most 512"):
        attend(lecture, "substring", "a" * 601)


def test_tokens_of_a_vocabulary_are_found_by_their_text(models, sources):
    everything = find_tokens(models, "gpt")
    assert everything["texts"] == ["[CLS]", "a", "b", "c", "d", "|"]
    assert find_tokens(models, "gpt", "B")["ids"] == [2]
    words = find_tokens(sources, "dialogue-0001", "th")
    assert all("th" in text.lower() for text in words["texts"])
    assert words["n_found"] >= len(words["ids"]) > 1
