"""The task of naming pictures: what a batch holds, what is lost and won, what is said of a file."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from picture_files import TRAIN, write_cifar10, write_mnist
from PIL import Image
from torch.nn.functional import cross_entropy, log_softmax

from clearhead.data import Pictures, draw_digits
from clearhead.files import BadFile
from clearhead.files.pictures import fit_picture, read_picture
from clearhead.layers import whitening_filters
from clearhead.layers.patches import cut_patches
from clearhead.models import VisionTransformer, ViTConfig
from clearhead.runs.run import config_kinds, load_run
from clearhead.training import train
from clearhead.training.recipe import Recipe, TrainingConfig, with_changes
from clearhead.training.recipes import find_recipe
from clearhead.training.tasks.pictures import PictureData, PictureTask

N, N_TEST, SIZE = 23, 12, 16
DIGITS = PictureData("digits", size=SIZE, n_train=N, n_test=N_TEST)
SMALL = ViTConfig(patch_size=8, d_model=8, n_layers=1, n_heads=2, d_ff=6)
STEM = dataclasses.replace(SMALL, stem="convolution", class_token=False, pool="mean")


def a_task(**changes):
    return dataclasses.replace(DIGITS, **changes).open()


def a_model(task, config=SMALL):
    return VisionTransformer(task.complete(config))


def colours(n=6, height=9, width=10):
    """Random pictures of three classes."""
    images = torch.randint(256, (n, 3, height, width), dtype=torch.uint8)
    return Pictures(images, torch.arange(n) % 3, ("cat", "dog", "frog"))


# The data


def test_mistakes_are_the_wrong_answers_and_the_surest_come_first(monkeypatch):
    monkeypatch.setattr("clearhead.training.tasks.pictures.EVAL_BATCH", 5)
    task = a_task()
    model = a_model(task).eval()
    with torch.no_grad():
        probs = model(task.predictor.normalise(task.validation.images)).softmax(-1)
    sure, answers = probs.max(-1)
    wrong = [i for i in range(N_TEST) if answers[i] != task.validation.labels[i]]
    wrong.sort(key=lambda i: -float(sure[i]))
    assert task.find_mistakes(model, 99) == wrong
    assert task.find_mistakes(model, 2) == wrong[:2]
    batches = list(task.find_wrong_answers(model))
    assert [n_seen for n_seen, _ in batches] == [5, 10, 12]
    assert sorted(number for _, found in batches for _, number in found) == sorted(wrong)


def test_digits_are_drawn_and_those_of_the_test_are_others():
    task = a_task()
    drawn = draw_digits(N + N_TEST, size=SIZE)
    assert torch.equal(task.train.images, drawn.images[:N])
    assert torch.equal(task.validation.images, drawn.images[N:])
    assert torch.equal(task.validation.labels, drawn.labels[N:])
    assert task.class_names == tuple("0123456789")
    assert not torch.equal(a_task(seed=1).train.images, task.train.images)


@pytest.mark.parametrize("form", ["binary", "python", "sprites"])
def test_cifar10_is_read_from_a_folder_in_any_form(tmp_path, form):
    batches = write_cifar10(tmp_path, form)
    task = PictureData("cifar10", path=str(tmp_path)).open()
    assert task.n_examples == len(task.train) == sum(len(batches[name][1]) for name in TRAIN)
    table, labels = batches["test_batch"]
    assert task.validation.images.flatten(1).tolist() == table.tolist()
    assert task.validation.labels.tolist() == labels
    assert task.class_names[:2] == ("airplane", "automobile")
    assert task.complete(ViTConfig(channels=1, n_classes=3)) == ViTConfig()


def test_mnist_is_read_from_a_folder(tmp_path):
    images, labels = write_mnist(tmp_path)
    task = PictureData("mnist", path=str(tmp_path)).open()
    assert torch.equal(task.train.images[:, 0], images)
    assert torch.equal(task.validation.images[:, 0], images.flip(1))
    assert task.validation.labels.tolist() == labels


def test_sets_that_were_not_fetched_are_answered_with_the_command(tmp_path):
    for name in ("mnist", "cifar10"):
        with pytest.raises(ValueError, match=f"clearhead data get {name}"):
            PictureData(name).open()
    with pytest.raises(BadFile, match="holds no CIFAR-10"):
        PictureData("cifar10", path=str(tmp_path)).open()


def test_the_data_decide_classes_channels_and_size():
    task = a_task()
    assert task.complete(SMALL) == dataclasses.replace(SMALL, channels=1, image_size=SIZE)
    three = PictureTask(DIGITS, colours(), colours())
    config = three.complete(dataclasses.replace(SMALL, patch_size=1))
    assert (config.n_classes, config.channels, config.image_size) == (3, 3, (9, 10))
    with pytest.raises(ValueError, match="image height is 9, which patch height=8"):
        three.complete(SMALL)


def test_T24_every_byte_and_label_counts_for_the_fingerprint():
    task = a_task()
    assert task.fingerprint == a_task().fingerprint
    assert len(task.fingerprint) == 64
    for part in ("train", "validation"):
        for change in ("images", "labels"):
            changed = {"train": task.train, "validation": task.validation}
            tensor = getattr(changed[part], change).clone()
            tensor.flatten()[-1] ^= 1
            changed[part] = dataclasses.replace(changed[part], **{change: tensor})
            assert PictureTask(DIGITS, **changed).fingerprint != task.fingerprint


def test_pictures_that_are_held_out_are_the_last_and_the_run_is_judged_by_them(monkeypatch):
    whole = a_task()
    monkeypatch.setattr(PictureData, "read", _no_test_pictures(PictureData.read))
    task = a_task(held_out=5)
    assert task.n_examples == len(task.train) == N - 5
    assert torch.equal(task.train.images, whole.train.images[: N - 5])
    assert torch.equal(task.validation.images, whole.train.images[N - 5 :])
    assert torch.equal(task.validation.labels, whole.train.labels[N - 5 :])
    assert sorted(i for plan in task.plans(0, 0, 4) for i in plan) == list(range(N - 5))
    images = task.predictor.normalise(task.train.images)  # those held out do not count for it
    assert float(images.mean()) == pytest.approx(0, abs=1e-5)
    assert task.fingerprint != whole.fingerprint
    model = a_model(task)
    logits = model.eval()(task.predictor.normalise(task.validation.images)).detach()
    right = float((logits.argmax(-1) == task.validation.labels).double().mean())
    assert task.evaluate(model)["val_accuracy"] == right
    assert int(task.confusion(model).sum()) == 5


def _no_test_pictures(read):
    def checked(self, split):
        assert split == "train", "settings are chosen without looking at the test pictures"
        return read(self, split)

    return checked


@pytest.mark.parametrize("held_out", [N, N + 1])
def test_some_pictures_must_be_left_to_learn_from(held_out):
    words = f"data.held_out is {held_out}, but there are {N} training pictures, of which some must"
    with pytest.raises(ValueError, match=words):
        a_task(held_out=held_out)
    assert a_task(held_out=N - 1).n_examples == 1


def test_it_is_told_which_pictures_it_is_measured_on():
    assert a_task().measured_on == f"the {N_TEST} test pictures, which it did not learn from"
    assert a_task(held_out=5).measured_on.startswith("5 training pictures that were held out")
    assert a_task().learned_from == f"{N} pictures"
    assert a_task(shift=1).learned_from == f"{N} pictures, changed a little each time"


# What the model reads


def test_the_training_pictures_as_the_model_reads_them_have_mean_0_and_deviation_1():
    task = PictureTask(DIGITS, colours(50), colours())
    x = task.predictor.normalise(task.train.images)
    assert torch.allclose(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(x.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


# Batches


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("batch_size", [1, 5, 23, 40])
def test_T26_an_epoch_has_every_picture_once(mirror, batch_size):
    task = a_task(mirror=mirror)
    plans = task.plans(3, 2, batch_size)
    assert [len(plan) for plan in plans[:-1]] == [batch_size] * (len(plans) - 1)
    assert sorted(i % N for plan in plans for i in plan) == list(range(N))
    assert plans == task.plans(3, 2, batch_size)
    assert plans != task.plans(3, 3, batch_size)
    assert plans != task.plans(4, 2, batch_size)


def test_a_picture_is_mirrored_in_every_second_epoch():
    task = a_task(mirror=True)

    def mirrored(seed, epoch):
        return {i - N for plan in task.plans(seed, epoch, 4) for i in plan if i >= N}

    first, second = mirrored(0, 0), mirrored(0, 1)
    assert first | second == set(range(N))
    assert not first & second
    assert mirrored(0, 2) == first
    assert 4 < len(first) < N - 4  # a toss for each
    assert mirrored(1, 0) not in (first, second)


def test_a_batch_holds_the_bytes_of_its_pictures_mirrored_or_not():
    task = a_task(mirror=True)
    batch = task.batch([4, 2 + N, 7])
    assert batch.inputs.dtype == torch.uint8
    assert torch.equal(batch.inputs[0], task.train.images[4])
    assert torch.equal(batch.inputs[1], task.train.images[2].flip(-1))
    assert batch.targets.tolist() == task.train.labels[[4, 2, 7]].tolist()


def test_nothing_is_changed_unless_it_is_asked_for():
    task = a_task()
    batch = task.batch([4, 2, 7])
    changed = task.augment(batch)
    images, targets = changed.inputs, changed.targets
    assert torch.equal(images, task.predictor.normalise(batch.inputs))
    assert torch.equal(targets.argmax(1), batch.targets)
    assert torch.equal(targets.sum(1), torch.ones(3))
    assert torch.equal(targets.amax(1), torch.ones(3))


def test_shifted_pictures_are_somewhere_within_the_reflected_ones():
    task = a_task(shift=2)
    batch = task.batch(list(range(N)))
    images = task.augment(batch).inputs
    wide = torch.nn.functional.pad(task.predictor.normalise(batch.inputs), (2,) * 4, mode="reflect")
    found = [
        {
            (down, right)
            for down in range(5)
            for right in range(5)
            if torch.equal(image, place[:, down : down + SIZE, right : right + SIZE])
        }
        for image, place in zip(images, wide, strict=True)
    ]
    assert all(len(places) == 1 for places in found)
    assert len(set.union(*found)) > 8


def test_a_cutout_takes_the_mean_of_the_pictures():
    task = a_task(cutout=6)
    batch = task.batch([4, 2, 7])
    images = task.augment(batch).inputs
    lost = images != task.predictor.normalise(batch.inputs)
    assert ((images == 0) == lost).all()
    assert 3 * 9 <= int(lost.sum()) <= 3 * 36


def test_mixup_mixes_pictures_and_classes_alike():
    task = PictureTask(dataclasses.replace(DIGITS, mixup=1.0), colours(), colours())
    changed = task.augment(task.batch([0, 1, 2]))
    images, targets = changed.inputs, changed.targets
    plain = task.predictor.normalise(task.train.images[:3])
    assert torch.allclose(images, torch.einsum("bc,cxyz->bxyz", targets, plain), atol=1e-5)
    assert not torch.allclose(images, plain)


@pytest.mark.parametrize("change", [{"shift": 3}, {"cutout": 4}, {"mixup": 0.3}])
def test_what_is_changed_depends_on_the_seed_of_the_step_alone(change):
    task = a_task(**change)
    batch = task.batch([4, 2, 7, 1])

    def changed(seed):
        torch.manual_seed(seed)
        return task.augment(batch)

    assert torch.equal(changed(1).inputs, changed(1).inputs)
    assert torch.equal(changed(1).targets, changed(1).targets)
    assert not torch.equal(changed(1).inputs, changed(2).inputs)


def test_a_share_of_the_patches_is_read_until_most_steps_are_made():
    task = a_task(keep=0.5, keep_until=0.8)
    model = task.initialise(a_model(task))
    batch, P = task.batch([4, 2, 7]), model.patches.n_patches
    kept = task.augment(batch, progress=0.79).positions
    assert kept.shape == (3, round(P / 2))
    assert all(len(set(row)) == len(row) and 0 <= min(row) <= max(row) < P for row in kept.tolist())
    assert sorted(kept[0].tolist()) != sorted(kept[1].tolist())
    assert task.augment(batch, progress=0.8).positions is None
    assert a_task(keep=1.0).augment(batch, progress=0.0).positions is None


def test_the_loss_reads_the_kept_patches_alone():
    task = a_task(keep=0.5)
    model = task.initialise(a_model(task))
    changed = task.augment(task.batch([4, 2, 7]))
    lost = [
        sorted(set(range(model.patches.n_patches)) - set(row)) for row in changed.positions.tolist()
    ]
    inputs = changed.inputs.clone().requires_grad_()
    task.loss(model, dataclasses.replace(changed, inputs=inputs)).backward()
    patches = cut_patches(inputs.grad, model.config.patch_size).abs().sum(-1)  # (B, P)
    for row, left_out in zip(patches, lost, strict=True):
        assert [i for i, change in enumerate(row.tolist()) if change == 0] == left_out


def test_patches_left_out_resume_bit_for_bit():
    """The patches of a step follow from the seed and the step, so they do after a resume."""
    task = a_task(keep=0.25)
    task.initialise(a_model(task))
    batch = task.batch([4, 2, 7])
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(task.augment(batch).positions)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


# Loss and measures


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_by_hand(smoothing):
    task = a_task(smoothing=smoothing)
    model, batch = a_model(task), task.batch([4, 2, 7])
    logs = log_softmax(model(task.predictor.normalise(batch.inputs)), -1)
    costs = [
        -(1 - smoothing) * row[label] - smoothing * row.mean()
        for row, label in zip(logs, batch.targets, strict=True)
    ]
    assert torch.allclose(task.loss(model, task.augment(batch)), torch.stack(costs).mean())


def test_a_new_stem_is_whitened_by_the_training_pictures_before_the_first_step_and_never_again():
    task = a_task()
    model = task.initialise(a_model(task, STEM))
    filters = whitening_filters(task.predictor.normalise(task.train.images))
    assert torch.equal(model.patches.whitening, filters)
    other = PictureTask(DIGITS, task.validation, task.validation)
    other.initialise(model)
    assert torch.equal(model.patches.whitening, filters)
    task.initialise(a_model(task))  # one of patches has nothing to whiten


@pytest.mark.parametrize("config", [SMALL, STEM])
def test_measures_of_all_test_pictures_by_hand(config, monkeypatch):
    monkeypatch.setattr("clearhead.training.tasks.pictures.EVAL_BATCH", 5)  # 5 + 5 + 2
    task = a_task(shift=2, cutout=4, mixup=1.0, smoothing=0.1, mirror=True)
    model = a_model(task, config)
    state = {name: x.clone() for name, x in model.state_dict().items()}
    measured, again = task.evaluate(model), task.evaluate(model)
    assert measured == again
    assert model.training
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    model.eval()
    logits, labels = (
        model(task.predictor.normalise(task.validation.images)).detach(),
        task.validation.labels,
    )
    assert measured["val_loss"] == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-5)
    assert measured["val_accuracy"] == float((logits.argmax(-1) == labels).double().mean())
    table = task.confusion(model)
    for right in range(10):
        for said in range(10):
            count = int(((labels == right) & (logits.argmax(-1) == said)).sum())
            assert table[right, said] == count
    assert int(table.sum()) == N_TEST
    assert int(table.trace()) == round(measured["val_accuracy"] * N_TEST)


def test_pictures_learned_by_heart_are_few_and_not_changed():
    task = a_task(mirror=True, shift=2, cutout=4, mixup=1.0, smoothing=0.1)
    fingerprint = task.fingerprint
    few = task.overfit(4)
    assert few.n_examples == 4
    assert torch.equal(few.validation.images, few.train.images)
    plans = few.plans(0, 1, 3)
    assert sorted(i for plan in plans for i in plan) == [0, 1, 2, 3]
    changed = few.augment(few.batch([0, 3]))
    images, targets = changed.inputs, changed.targets
    assert torch.equal(images, few.predictor.normalise(few.train.images[[0, 3]]))
    assert targets.max() == 1
    assert few.fingerprint == fingerprint


# Examples and answers


def test_examples_are_one_of_each_class_then_further_ones():
    labels = torch.tensor([2, 2, 0, 2, 1, 0])
    test = dataclasses.replace(colours(), labels=labels)
    task = PictureTask(DIGITS, colours(), test)
    for n, rows in ((2, [2, 4]), (3, [2, 4, 0]), (5, [2, 4, 0, 5, 1]), (10, [2, 4, 0, 5, 1, 3])):
        assert test.choose_examples(n) == rows
        assert task.pictures(None) == [("2,4,0,5,1,3", "pictures it is measured on")]
    ((numbers, _),) = a_task().pictures(None)
    assert len(numbers.split(",")) == 10


def test_a_picture_is_named_from_its_file(tmp_path):
    train, test = colours(), colours(1)
    task = PictureTask(DIGITS, train, test)
    model = a_model(task, dataclasses.replace(SMALL, image_size=(9, 10), patch_size=(3, 5)))
    path = tmp_path / "cat.png"
    Image.fromarray(test.images[0].permute(1, 2, 0).numpy()).save(path)
    found = task.predictor.predict(model, str(path))
    probs = model(task.predictor.normalise(test.images))[0].softmax(-1).detach()
    assert found["input"] == str(path)
    assert found["answer"] == train.class_names[int(probs.argmax())]
    assert found["probability"] == pytest.approx(float(probs.max()))
    with pytest.raises(BadFile, match=r"no\.png"):
        task.predictor.predict(model, str(tmp_path / "no.png"))


def test_the_sample_tells_which_pictures_were_recognised():
    task = a_task()
    model = a_model(task)
    torch.nn.init.zeros_(model.head.weight)
    with torch.no_grad():
        model.head.bias[:] = torch.arange(10) == 1  # it says 1, whatever it sees
    shown = task.validation.labels[task.validation.choose_examples(3)].tolist()
    for line, label in zip(task.sample(model).splitlines(), shown, strict=True):
        word = "right" if label == 1 else "taken for 1"
        assert line == f"{label:<10} {word} ({torch.e / (torch.e + 9):.3f})"


def test_what_a_run_keeps_can_be_tried_at_once(tmp_path):
    for task in (a_task(), PictureTask(DIGITS, colours(), colours())):
        task.save(tmp_path)
        assert task.data.load_predictor(tmp_path).class_names == task.class_names
        assert task.next_command(tmp_path) == f"clearhead predict {tmp_path} {tmp_path}/example.png"
        shown = fit_picture(read_picture(tmp_path / "example.png"), *_size(task))
        assert torch.equal(shown, task.validation.images[0])


def _size(task):
    channels, *size = task.train.images.shape[1:]
    return channels, size


# Refusals


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"pictures": "cats"}, ValueError, "pictures must be one of 'digits', 'mnist', 'cifar10'"),
        ({"size": 0}, ValueError, "size must be at least 1, got 0"),
        ({"n_train": 0}, ValueError, "n_train must be at least 1, got 0"),
        ({"n_test": 0}, ValueError, "n_test must be at least 1, got 0"),
        ({"held_out": -1}, ValueError, "held_out must not be negative, got -1"),
        ({"shift": -1}, ValueError, "shift must not be negative, got -1"),
        ({"cutout": -1}, ValueError, "cutout must not be negative, got -1"),
        ({"mixup": -0.1}, ValueError, r"mixup must not be negative, got -0\.1"),
        ({"keep": 0.0}, ValueError, "keep must be a share above 0 and at most 1, got 0.0"),
        ({"keep": float("nan")}, ValueError, "keep must be"),
        ({"keep_until": 1.5}, ValueError, "keep_until must be between 0 and 1, got 1.5"),
        ({"smoothing": 1.0}, ValueError, "smoothing must be at least 0 and less than 1, got 1.0"),
        ({"path": "/data"}, ValueError, "digits are drawn; leave data.path out"),
        ({"shift": 1.5}, TypeError, "shift must be a whole number, got 1.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, error, words):
    with pytest.raises(error, match=words):
        dataclasses.replace(DIGITS, **changes)


def test_a_shift_wider_than_the_pictures_is_refused():
    task = a_task(shift=SIZE)
    with pytest.raises(ValueError, match="most must be less than the side of the images, 16"):
        task.augment(task.batch([0]))


def test_a_file_is_no_folder_of_pictures(tmp_path):
    (tmp_path / "it").write_bytes(b"")
    for pictures in ("mnist", "cifar10"):
        with pytest.raises(BadFile, match=f"it .*name the folder of your copy.* get {pictures}"):
            PictureData(pictures, path=str(tmp_path / "it")).open()


# Whole runs


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        (["data.size=16", "model.patch_size=8"], 16),
        (["model.patch_size=8", "data.size=16"], 16),
        (["data.pictures=cifar10", "model.patch_size=8"], 32),
        (["data.pictures=mnist", "model.patch_size=14"], 28),
        (["data.pictures=mnist", "model.image_size=30", "model.patch_size=10"], 30),
    ],
)
def test_a_changed_model_is_checked_against_the_pictures_it_will_see(changes, size):
    assert with_changes(find_recipe("vit-digits"), changes).model.image_size == size
    with pytest.raises(ValueError, match=f"image height.* {size}"):
        with_changes(find_recipe("vit-digits"), [*changes, "model.patch_size=9"])


def test_data_and_a_model_that_do_not_go_together_are_left_to_the_task():
    recipe = dataclasses.replace(find_recipe("vit-digits"), model=find_recipe("substring").model)
    assert with_changes(recipe, ["data.size=16"]).model == recipe.model


@pytest.mark.parametrize("name", ["vit-digits", "vit-cifar10", "vit-cifar10-plain"])
def test_the_recipes_can_be_written_down_and_built(name):
    recipe = find_recipe(name)
    assert recipe.name == name
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())), config_kinds()) == recipe
    model = VisionTransformer(recipe.model)
    side, channels = recipe.model.image_size, recipe.model.channels
    assert model(torch.randn(2, channels, side, side)).shape == (2, 10)


def a_recipe(workers=1, **training):
    """Dropout is for one worker."""
    return Recipe(
        "pictures",
        data=dataclasses.replace(DIGITS, mirror=True, shift=2, mixup=0.5, smoothing=0.1),
        model=dataclasses.replace(STEM, dropout=0.1 if workers == 1 else 0.0, qk_norm=True),
        training=TrainingConfig(
            **{"steps": 7, "batch_size": 5, "accumulate": 2, "eval_every": 2, "save_every": 2}
            | {"log_every": 1, "keep": 9, "optimizer": "muon"}
            | {"workers": workers, **training}
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_T03_a_run_with_batch_norm_resumes_bit_for_bit(tmp_path, workers):
    """From each of its checkpoints, mid-epoch and at an epoch's end."""
    recipe = a_recipe(workers=workers)
    whole = train(recipe, tmp_path / "a", threads=workers).run
    last = "checkpoints/step-0000007/model.safetensors"
    for step in (2, 4, 6):
        cut = tmp_path / f"b{step}" / whole.name
        shutil.copytree(whole, cut)
        for place in (cut / "checkpoints").iterdir():
            if int(place.name.removeprefix("step-")) > step:
                shutil.rmtree(place)
        train(recipe, cut.parent, threads=workers)
        for name in (last, "metrics.jsonl"):
            assert (cut / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_T18_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path, workers):
    one, same, other = (
        train(a_recipe(seed=seed, workers=workers), tmp_path / name, threads=workers).run
        / "metrics.jsonl"
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert one.read_bytes() == same.read_bytes()
    assert one.read_bytes() != other.read_bytes()


@pytest.mark.slow
def test_a_run_is_loaded_with_its_whitening_and_names_its_own_example(tmp_path):
    run = load_run(train(a_recipe(), tmp_path, threads=1).run)
    assert run.model.patches.is_whitened
    assert run.evaluate() == run.evaluate()
    found = run.predict(str(run.folder / "example.png"))
    assert found["answer"] in "0123456789"


@pytest.mark.slow
@pytest.mark.parametrize("config", [SMALL, STEM])
def test_ten_pictures_are_learned_by_heart(tmp_path, config):
    recipe = dataclasses.replace(
        a_recipe(steps=150, batch_size=10, accumulate=1, lr=0.02, eval_every=150),
        model=dataclasses.replace(config, d_model=16, n_layers=2),
    )
    result = train(recipe, tmp_path, overfit=10, threads=1)
    assert result.metrics["val_accuracy"] == 1
    assert result.metrics["val_loss"] < 0.05


def test_a_batch_of_one_can_be_learned_from():
    task = a_task()
    model = a_model(task, STEM)
    task.loss(model, task.augment(task.batch([0]))).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert np.isfinite(task.evaluate(model)["val_loss"])


def test_a_picture_of_another_size_is_noted(tmp_path):
    task = a_task()
    model = a_model(task)
    for size, note in (
        ((SIZE, SIZE), None),
        (
            (SIZE + 3, SIZE),
            f"the picture has {SIZE + 3} × {SIZE} pixels, but those of training had",
        ),
    ):
        Image.new("L", size).save(tmp_path / "x.png")
        found = task.data.describe_unfamiliar(task.predictor, model, str(tmp_path / "x.png"))
        assert found is None if note is None else found.startswith(note)
