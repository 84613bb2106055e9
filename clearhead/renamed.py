"""Old names that still work for one release: each forwards to the new one and warns.

    from clearhead.training.place import Place
    DeprecationWarning: clearhead.training.place.Place is now clearhead.training.state.State

A finder, which Python asks for each module before it looks at the disk, adds the old names to
modules that still exist and stands in for those that are gone. So no other file mentions old names.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def _read_table(text: str) -> dict[str, str]:
    """Lines of two names in clearhead, the old and the new one."""
    pairs = (line.split() for line in text.splitlines() if line)
    return {f"clearhead.{old}": f"clearhead.{new}" for old, new in pairs}


# Old module, and the module that now holds its names.
MODULES = _read_table("""
data.draws                          data.randomness
data.drawings                       data.digits
data.inert_pickle                   files.pickles
data.tokenizers.prose               data.tokenizers.detokenize
data.tokenizers.scored_pairs        data.tokenizers.sentence_pieces
data.tokenizers.subwords            data.tokenizers.subword_tokenizer
files.regular                       files.reading
positions.distance                  positions.tables
models.building                     models.registry
generation.packed_gpt               generation.fast.packed_gpt
generation.products                 generation.fast.layouts
generation.step                     generation.reader
generation.step_fast                generation.fast.packed_reader
training.answerers                  training.tasks
training.answerers.answerer         training.tasks.task
training.checkpoint                 runs.checkpoint
training.finite                     training.gradient
training.learner                    training.gradient
training.ngrams                     models.ngrams
training.place                      training.state
training.run                        runs.run
training.run_folder                 runs.folder
training.starting                   runs.resume
training.stopping                   runs.signals
inspection.report_html              inspection.report.html
inspection.report_looks             inspection.report.attention
inspection.report_pictures          inspection.report.curves
inspection.report                   inspection.report.page
lab.finding                         lab.tools.finding
lab.measuring                       lab.tools.measuring
lab.page                            lab.tools.page
interop.any_kind                    interop.load
interop.exporting                   interop.export
interop.loading                     interop.hugging_face
interop.mapping                     interop.name_table
interop.settings                    interop.config_json
interop.weights                     interop.weight_files
""")

# Old and new names, where more than the module changed.
NAMES = _read_table("""
shapes.shape_text                   shapes.format_shape
shapes.values_at_hand               shapes.can_read_values
files.replacing                     files.replace_file
files.regular.replacing             files.writing.replace_file
data.buckets                        data.bucket
data.packed                         data.join_documents
data.path_of                        data.find_data
data.draws.draws                    data.randomness.draw_bits
data.fetching.catalogue.Kept        data.fetching.catalogue.DataFile
data.fetching.catalogue.path_of     data.fetching.catalogue.find_data
data.fetching.clients.NotKept       data.fetching.clients.DiskFault
data.fetching.clients.NotThisWay    data.fetching.clients.AddressUnusable
data.fetching.fetch.NotKept         data.fetching.clients.DiskFault
data.images.CIFAR10_CLASSES         data.cifar10.CIFAR10_CLASSES
data.images.mean_and_std            data.images.compute_mean_and_std
data.images.read_cifar10            data.cifar10.read_cifar10
data.inert_pickle.read_inert        files.pickles.read_pickle
data.packing.buckets                data.packing.bucket
data.packing.packed                 data.packing.join_documents
data.tokenizers.ScoredPairTokenizer data.tokenizers.SentencePieceTokenizer
data.tokenizers.prose.to_prose      data.tokenizers.detokenize.detokenize
data.tokenizers.scored_pairs.ScoredPairTokenizer data.tokenizers.SentencePieceTokenizer
attention.linear.EluFeatures        attention.features.EluFeatures
attention.linear.FourierFeatures    attention.features.FourierFeatures
attention.linear.PositiveFeatures   attention.features.PositiveFeatures
attention.linear.QuadraticFeatures  attention.features.QuadraticFeatures
attention.masks.dense_mask          attention.inputs.dense_mask
layers.block.Stack                  layers.stack.Stack
layers.capped                       layers.apply_soft_cap
layers.soft_cap.capped              layers.soft_cap.apply_soft_cap
models.model.at_rest                models.model.evaluation_mode
models.model.empty_model            models.registry.build_on_meta
generation.packed_gpt.packed        generation.fast.packed_gpt.pack
generation.rolling.Reader           generation.rolling.RollingReader
generation.step.Reader              generation.reader.ModelReader
generation.step_fast.Reader         generation.fast.packed_reader.PackedReader
training.answerers.Answerer         training.tasks.Predictor
training.answerers.answerer.Answerer training.tasks.task.Predictor
training.answerers.CharacterAnswerer training.tasks.CharacterPredictor
training.answerers.DialogueAnswerer training.tasks.DialoguePredictor
training.answerers.PictureAnswerer  training.tasks.PicturePredictor
training.answerers.SequenceAnswerer training.tasks.SequencePredictor
training.answerers.SubstringAnswerer training.tasks.SubstringPredictor
training.answerers.TranslationAnswerer training.tasks.TranslationPredictor
training.checkpoint.places          runs.checkpoint.find_checkpoints
training.learner.Learner            training.gradient.Gradients
training.loop.Interrupted           runs.signals.Interrupted
training.loop.NotFinite             training.gradient.NotFinite
training.loop.Progress              training.progress.Progress
training.loop.RunResult             runs.train_recipe.RunResult
training.loop.train                 runs.train_recipe.train
training.place.Place                training.state.State
training.place.Progress             training.progress.Progress
training.place.RunResult            runs.train_recipe.RunResult
training.recipes.source_of          training.recipes.read_source
training.run_folder.Busy            runs.lock.Busy
inspection.figures.position_table   inspection.position_figures.position_table
inspection.figures.position_waves   inspection.position_figures.position_waves
inspection.figures.toeplitz_matrices inspection.position_figures.toeplitz_matrices
inspection.report.series_of         inspection.report.collect_series
inspection.report_looks.looks       inspection.report.attention.look_at_examples
bench.timing.Row                    bench.row.Row
bench.timing.best_seconds           timing.best_seconds
interop.ScoredPairTokenizer         data.tokenizers.SentencePieceTokenizer
interop.loading.Report              interop.report.Report
interop.weights.Weights             interop.weight_files.WeightFiles
""")

# Class → old and new names of its members.
MEMBERS: dict[str, dict[str, str]] = {
    "clearhead.attention.cache.KVCache": {"kept": "read"},
    "clearhead.attention.multi_head.MultiHeadAttention": {
        "with_position_bias": "add_position_bias"
    },
    "clearhead.models.classifier.SequenceClassifier": {"encoder": "embedding", "decoder": "head"},
    "clearhead.runs.run.Run": {"answerer": "predictor"},
    "clearhead.training.recipe.TrainingConfig": {"optimizer_for": "make_optimizer"},
    "clearhead.training.tasks.task.Predictor": {"decided": "model_sizes"},
    "clearhead.training.tasks.task.DataConfig": {
        "answerer": "load_predictor",
        "decided": "known_sizes",
    },
    "clearhead.training.tasks.task.Task": {
        "answerer": "predictor",
        "prepared": "initialise",
        "changed": "augment",
        "writes": "has_text_samples",
        "compiles": "can_compile",
    },
    "clearhead.training.tasks.dialogue.DialoguePredictor": {
        "prompt": "encode_prompt",
        "written": "write",
    },
    "clearhead.training.tasks.pictures.PicturePredictor": {
        "normalised": "normalise",
        "name_of": "classify",
    },
    "clearhead.training.tasks.sequences.SequencePredictor": {"examples": "encode"},
    "clearhead.training.tasks.translation.TranslationPredictor": {"text_of": "decode"},
}


def forward(module: str, own: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """A `__getattr__` for a module: looks an old name up, warns, and returns the new object.

    own: the module's own `__getattr__`, if it has one, which is asked first.
    """

    def look_up(name: str) -> Any:
        if own is not None:
            with suppress(AttributeError):
                return own(name)
        old = f"{module}.{name}"
        new = NAMES.get(old, f"{MODULES[module]}.{name}" if module in MODULES else "")
        if not new or name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new_name = new.rpartition(".")
        value = getattr(import_module(home), new_name)
        _warn(old, new)
        return value

    return look_up


def rename_members(**names: str) -> Callable[[type[T]], type[T]]:
    """A class decorator: members with an old name, old="new", still work, and warn.

    They can be read and set, and subclasses can still define them.
    """

    def decorate(cls: type[T]) -> type[T]:
        def adopt(sub: type, **options: Any) -> None:
            super(cls, sub).__init_subclass__(**options)  # type: ignore[misc]
            for old in names.keys() & vars(sub).keys():
                _warn(f"{sub.__name__}.{old}", names[old])
                setattr(sub, names[old], vars(sub)[old])

        for old, new in names.items():
            setattr(cls, old, _OldMember(f"{cls.__name__}.{old}", new))
        setattr(cls, "__init_subclass__", classmethod(adopt))  # noqa: B010  # typed as a method
        return cls

    return decorate


class _OldMember:
    """A class attribute that stands for the one with the new name."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def __get__(self, instance: Any, owner: type) -> Any:
        _warn(self.old, self.new)
        return getattr(owner if instance is None else instance, self.new)

    def __set__(self, instance: Any, value: Any) -> None:
        _warn(self.old, self.new)
        setattr(instance, self.new, value)


def _warn(old: str, new: str) -> None:
    words = f"{old} is now {new}; the old name goes with the next release"
    warnings.warn(words, DeprecationWarning, stacklevel=3)


class _Finder(MetaPathFinder):
    """Finds each module with old names, runs it if it still exists, and adds them to it."""

    modules = {name.rpartition(".")[0] for name in (*NAMES, *MEMBERS)} | MODULES.keys()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.modules:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:  # gone; None: only a __pycache__ was left there
            spec = ModuleSpec(fullname, Loader(), is_package=True)
        execute = getattr(spec.loader, "exec_module", lambda module: None)

        def exec_module(module: ModuleType) -> None:
            execute(module)
            vars(module)["__getattr__"] = forward(fullname, vars(module).get("__getattr__"))
            for name, members in MEMBERS.items():
                home, _, cls = name.rpartition(".")
                if home == fullname:
                    rename_members(**members)(vars(module)[cls])

        vars(spec.loader)["exec_module"] = exec_module
        return spec


sys.meta_path.insert(0, _Finder())  # first, so that it also sees the modules that still exist
