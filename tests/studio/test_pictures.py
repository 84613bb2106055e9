"""The picture view: what it shows is what the model, picture_map and cover_patches compute."""

import base64
import io

import pytest
import torch
from PIL import Image
from text_models import run_python

from clearhead.inspection import measure_covering, picture_map, record
from clearhead.inspection.picture_maps import build_untrained, cover_patches
from clearhead.runs import load_run
from clearhead.studio.frames import decode_answer, encode_answer
from clearhead.studio.sources import Opened, Source, Sources
from clearhead.studio.views import pictures
from clearhead.training import find_recipe, train, with_changes

SMALL = [
    "data.n_train=20",
    "data.n_test=13",
    "data.size=12",
    "model.patch_size=[4, 6]",
    "model.d_model=12",
    "model.n_heads=3",
    "model.n_layers=2",
    "model.d_ff=10",
    "training.steps=1",
    "training.eval_every=1",
    "training.save_every=1",
    "training.batch_size=8",
    "training.warmup=1",
]
KINDS = {"class": [], "mean": ["model.class_token=false", "model.pool=mean"]}
P = 3 * 2  # patches


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    """The run folder of a small picture model, with a class token or without."""
    recipe = with_changes(find_recipe("vit-digits"), [*SMALL, *KINDS[request.param]])
    return train(recipe, tmp_path_factory.mktemp(request.param), threads=1).run


@pytest.fixture(scope="module")
def models(folder):
    return Sources([str(folder)])


@pytest.fixture(scope="module")
def id(folder):
    return folder.name


@pytest.fixture(scope="module")
def run(folder):
    return load_run(folder, device="cpu")


def read(run, number):
    """A validation picture as the model reads it."""
    return run.predictor.normalise(run.task.validation.images[number : number + 1])


def encode_png(image):
    data = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(data, "PNG")
    return data.getvalue()


def test_pictures_are_listed_with_labels_and_answers(models, id, run):
    answer = pictures.list_pictures(models, id, start=3, n=5)
    validation = run.task.validation
    assert answer["numbers"] == [3, 4, 5, 6, 7]
    assert answer["n_pictures"] == 13
    assert torch.equal(answer["images"], validation.images[3:8])
    assert answer["labels"] == validation.labels[3:8].tolist()
    with torch.no_grad():
        probs = run.model(run.predictor.normalise(validation.images[3:8])).softmax(-1)
    assert answer["answers"] == probs.argmax(-1).tolist()
    assert torch.equal(answer["probs"], probs.amax(-1))
    assert pictures.list_pictures(models, id, start=11)["numbers"] == [11, 12]
    assert pictures.list_pictures(models, id, numbers=[9, 2])["numbers"] == [9, 2]
    none = pictures.list_pictures(models, id, numbers=[])
    assert (none["numbers"], none["answers"]) == ([], [])


def test_mistakes_are_those_of_the_task(models, id, run):
    answers = list(pictures.find_mistakes(models, id))
    assert answers[-1]["numbers"] == run.task.find_mistakes(run.model, 99)
    assert answers[-1]["n_seen"] == answers[-1]["n_pictures"] == 13


def test_a_picture_has_the_probabilities_and_the_maps_of_inspection(models, id, run):
    answer = pictures.look_at_picture(models, id, number=2)
    x = read(run, 2)
    with torch.no_grad(), record(run.model) as trace:
        logits = run.model(x)[0]
    assert torch.equal(answer["logits"], logits)
    assert torch.equal(answer["probs"], logits.softmax(-1))
    assert answer["label"] == int(run.task.validation.labels[2])
    assert answer["grid"] == [3, 2]
    for method in ("mean", "rollout", "gradient"):
        assert torch.equal(answer["maps"][method], picture_map(run.model, x, method)[0])
    untrained = picture_map(build_untrained(run.model), x)[0]
    assert torch.equal(answer["maps"]["untrained"], untrained)
    # The mean over layers and heads of what the head of the model reads is the mean map.
    first = answer["first"]
    assert answer["weights"].shape == (2, 3, first + P)
    mean = answer["weights"].mean((0, 1))[first:].view(3, 2)
    torch.testing.assert_close(mean, answer["maps"]["mean"])
    patch = pictures.look_at_picture(models, id, number=2, patch=4)["weights"]
    assert torch.equal(patch, torch.cat(trace.weights())[:, :, first + 4])


@pytest.mark.parametrize("patch", [None, 3])
def test_the_python_of_a_picture_gives_all_its_numbers(models, id, patch):
    answer = pictures.look_at_picture(models, id, number=5, patch=patch)
    python = run_python(answer)
    for name in ("logits", "probs", "weights", "image"):
        assert torch.equal(answer[name], python[name])
    assert answer["maps"].keys() == python["maps"].keys()
    for name, values in answer["maps"].items():
        assert torch.equal(values, python["maps"][name])
    assert decode_answer(encode_answer(answer))["maps"]["mean"].shape == (3, 2)


def test_covered_patches_change_the_answer_as_cover_patches_does(models, id, run):
    answer = pictures.cover_picture(models, id, [4, 1], number=7)
    x = read(run, 7)
    covered = torch.tensor([[False, True, False, False, True, False]])
    with torch.no_grad():
        before, after = run.model(x), run.model(cover_patches(x, covered, (3, 2)))
    torch.testing.assert_close(answer["logits"], torch.cat((before, after)))
    assert not torch.allclose(answer["probs"][0], answer["probs"][1], rtol=0, atol=1e-6)
    python = run_python(answer)
    assert torch.equal(answer["logits"], python["logits"])
    assert torch.equal(answer["probs"], python["probs"])
    none = pictures.cover_picture(models, id, [], number=7)
    assert torch.equal(none["logits"][0], none["logits"][1])
    assert torch.equal(none["probs"], run_python(none)["probs"])


def test_the_effect_of_each_patch_is_that_of_covering_it_alone(models, id, run):
    answer = pictures.measure_covering(models, id, number=1)
    assert torch.equal(answer["effects"], measure_covering(run.model, read(run, 1))[0])
    assert torch.equal(answer["effects"], run_python(answer)["effects"])
    for patch in range(P):
        before, after = pictures.cover_picture(models, id, [patch], number=1)["logits"]
        best = int(before.argmax())
        effect = answer["effects"].flatten()[patch]
        torch.testing.assert_close(before[best] - after[best], effect)


def test_a_weight_is_explained_by_its_scores(models, id):
    look = pictures.look_at_picture(models, id, number=3, patch=2)
    answer = pictures.explain_patch(models, id, layer=1, head=2, key=4, patch=2, number=3)
    assert torch.equal(answer["weights"], look["weights"][1, 2])
    torch.testing.assert_close(answer["scores"].softmax(-1), look["weights"][1, 2])
    score = (float(answer["terms"].sum()) + answer["bias"]) * answer["scale"]
    assert float(answer["scores"][answer["column"]]) == pytest.approx(score, rel=1e-5)
    found = run_python(answer)["found"]
    assert torch.equal(answer["terms"], found.terms)
    assert torch.equal(answer["scores"], found.scores)


def test_a_file_is_read_as_predict_reads_it(models, id, run, tmp_path, monkeypatch):
    colours = torch.randint(256, (3, 17, 40), dtype=torch.uint8)
    data = encode_png(colours)
    (tmp_path / "picture.png").write_bytes(data)
    text = base64.b64encode(data).decode()
    answer = pictures.look_at_picture(models, id, file=text)
    assert answer["label"] is None
    assert torch.equal(answer["image"], run.predictor.read(run.model, tmp_path / "picture.png"))
    monkeypatch.chdir(tmp_path)
    assert torch.equal(answer["probs"], run_python(answer)["probs"])
    covered = pictures.cover_picture(models, id, [0], file=text)
    assert torch.equal(covered["probs"], run_python(covered)["probs"])


@pytest.mark.parametrize(
    ("question", "arguments", "message"),
    [
        ("list_pictures", {"numbers": [13]}, "no validation picture 13: they go from 0 to 12"),
        ("list_pictures", {"numbers": [0] * 101}, "at most 100 pictures are listed at once"),
        ("look_at_picture", {"number": -1}, "no validation picture -1"),
        ("look_at_picture", {}, "the number of a validation picture, or a file, not both"),
        ("look_at_picture", {"number": 1, "file": "AA=="}, "or a file, not both"),
        ("look_at_picture", {"file": "no base64"}, "must be the bytes of a PNG or JPEG picture"),
        ("look_at_picture", {"file": "AAAA"}, "the file is not a complete PNG or JPEG picture"),
        ("look_at_picture", {"file": "A" * (1 << 20) + "A"}, "more than the 1,048,576 read here"),
        ("look_at_picture", {"number": 1, "patch": 6}, "no patch 6; patches go from 0 to 5"),
        ("cover_picture", {"number": 1, "covered": [-1]}, "covered: there is no patch -1"),
        ("explain_patch", {"number": 1, "layer": 2, "head": 0, "key": 0, "patch": 1}, "layer is 2"),
        ("explain_patch", {"number": 1, "layer": 0, "head": 3, "key": 0, "patch": 1}, "head is 3"),
        (
            "explain_patch",
            {"number": 1, "layer": 0, "head": 0, "key": -1, "patch": 1},
            "key: .* -1",
        ),
        ("explain_patch", {"number": 1, "layer": 0, "head": 0, "key": 6, "patch": 1}, "key: .* 6;"),
        (
            "explain_patch",
            {"number": 1, "layer": 0, "head": 0, "key": 0, "patch": -1},
            "patch: .* -1",
        ),
    ],
)
def test_wrong_input_is_refused_in_words(models, id, question, arguments, message):
    with pytest.raises((ValueError, IndexError), match=message) as fault:
        getattr(pictures, question)(models, id, **arguments)
    assert type(fault.value) in (ValueError, IndexError)  # a BadFile would be a fault of a run


def test_the_class_token_is_explained_if_there_is_one(models, id, run):
    if run.model.config.class_token:
        answer = pictures.explain_patch(models, id, layer=0, head=0, key=0, number=1)
        look = pictures.look_at_picture(models, id, number=1)
        assert torch.equal(answer["weights"], look["weights"][0, 0])
    else:
        with pytest.raises(ValueError, match="no class token; choose a patch as the query"):
            pictures.explain_patch(models, id, layer=0, head=0, key=0, number=1)


WEIGHTS = [  # of another project: no run, no names of classes
    "import torch",
    "from clearhead.models import VisionTransformer, ViTConfig",
    "torch.manual_seed(0)",
    "config = ViTConfig(n_classes=4, image_size=8, patch_size=4, d_model=6, n_layers=1, n_heads=2)",
    "model = VisionTransformer(config).eval()",
]


class OtherSources(Sources):
    """One model that was not trained here."""

    def open(self, id):
        names = {}
        exec("\n".join(WEIGHTS), names)
        return Opened(Source(id, id, is_run=False), names["model"], None, None, WEIGHTS)


def test_weights_of_other_projects_read_files_only(tmp_path, monkeypatch):
    others = OtherSources([])
    data = encode_png(torch.randint(256, (3, 9, 8), dtype=torch.uint8))
    (tmp_path / "picture.png").write_bytes(data)
    answer = pictures.look_at_picture(others, "vit", file=base64.b64encode(data).decode())
    assert answer["classes"] == ["class 0", "class 1", "class 2", "class 3"]
    monkeypatch.chdir(tmp_path)
    assert torch.equal(answer["probs"], run_python(answer)["probs"])
    with pytest.raises(ValueError, match="vit was not trained here, so it has no validation"):
        pictures.list_pictures(others, "vit")


def test_other_models_are_refused(sources):
    with pytest.raises(ValueError, match=r"substring-0001 is a .* models that read pictures"):
        pictures.list_pictures(sources, "substring-0001")


def test_the_built_in_digits_are_read_well(lecture):
    answer = pictures.list_pictures(lecture, "digits", n=100)
    pairs = zip(answer["labels"], answer["answers"], strict=True)
    assert sum(label == answer for label, answer in pairs) >= 90
