"""Old names that still work: each forwards to the new one and warns. For one release.

    from clearhead.training.place import Place
    DeprecationWarning: clearhead.training.place.Place is now clearhead.training.state.State

A finder, which Python asks for each module before it looks at the disk, adds the old names to
modules that still exist and stands in for those that are gone. So no other file mentions old names.
A class whose members were renamed is decorated by `rename_members`.
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

# Old module → the module that now holds its names.
MODULES: dict[str, str] = {
    # attention, positions
    # config, layers, models
    "clearhead.models.building": "clearhead.models.registry",
    # data, files
    "clearhead.data.draws": "clearhead.data.randomness",
    "clearhead.data.drawings": "clearhead.data.digits",
    "clearhead.data.inert_pickle": "clearhead.files.pickles",
    "clearhead.data.tokenizers.prose": "clearhead.data.tokenizers.detokenize",
    "clearhead.data.tokenizers.scored_pairs": "clearhead.data.tokenizers.sentence_pieces",
    "clearhead.data.tokenizers.subwords": "clearhead.data.tokenizers.subword_tokenizer",
    "clearhead.files.regular": "clearhead.files.reading",
    # generation
    "clearhead.generation.best_word": "clearhead.generation.fast.best_word",
    "clearhead.generation.growing_text": "clearhead.generation.row_text",
    "clearhead.generation.packed_gpt": "clearhead.generation.fast.packed_gpt",
    "clearhead.generation.products": "clearhead.generation.fast.layouts",
    "clearhead.generation.step": "clearhead.generation.reader",
    "clearhead.generation.step_fast": "clearhead.generation.fast.packed_reader",
    # training, runs
    "clearhead.training.checkpoint": "clearhead.runs.checkpoint",
    "clearhead.training.finite": "clearhead.training.gradient",
    "clearhead.training.learner": "clearhead.training.gradient",
    "clearhead.training.place": "clearhead.training.state",
    "clearhead.training.run": "clearhead.runs.run",
    "clearhead.training.run_folder": "clearhead.runs.folder",
    "clearhead.training.starting": "clearhead.runs.resume",
    "clearhead.training.stopping": "clearhead.runs.signals",
    # tasks, report
    "clearhead.training.answerers": "clearhead.training.tasks",
    "clearhead.training.answerers.answerer": "clearhead.training.tasks.task",
    "clearhead.training.answerers.characters": "clearhead.training.tasks.characters",
    "clearhead.training.answerers.dialogue": "clearhead.training.tasks.dialogue",
    "clearhead.training.answerers.pictures": "clearhead.training.tasks.pictures",
    "clearhead.training.answerers.sequences": "clearhead.training.tasks.sequences",
    "clearhead.training.answerers.substrings": "clearhead.training.tasks.substrings",
    "clearhead.training.answerers.translation": "clearhead.training.tasks.translation",
    "clearhead.training.ngrams": "clearhead.models.ngrams",
    "clearhead.inspection.report": "clearhead.inspection.report.page",
    "clearhead.inspection.report_html": "clearhead.inspection.report.html",
    "clearhead.inspection.report_looks": "clearhead.inspection.report.attention",
    "clearhead.inspection.report_pictures": "clearhead.inspection.report.curves",
    # inspection, lab, bench
    "clearhead.lab.all_sequences": "clearhead.lab.learned_vs_designed.all_sequences",
    "clearhead.lab.finding": "clearhead.lab.tools.finding",
    "clearhead.lab.kernel_cost": "clearhead.lab.kernels.cost",
    "clearhead.lab.kernel_report": "clearhead.lab.kernels.report",
    "clearhead.lab.kernels": "clearhead.lab.kernels.features",
    "clearhead.lab.learned_vs_designed": "clearhead.lab.learned_vs_designed.comparison",
    "clearhead.lab.measuring": "clearhead.lab.tools.measuring",
    "clearhead.lab.page": "clearhead.lab.tools.page",
    "clearhead.lab.position_report": "clearhead.lab.positions.report",
    "clearhead.lab.position_rule": "clearhead.lab.positions.rule",
    "clearhead.lab.positions": "clearhead.lab.positions.schemes",
    "clearhead.lab.same_names": "clearhead.lab.learned_vs_designed.shared_basis",
    # interop, cli
    "clearhead.interop.any_kind": "clearhead.interop.load",
    "clearhead.interop.exporting": "clearhead.interop.export",
    "clearhead.interop.loading": "clearhead.interop.hugging_face",
    "clearhead.interop.mapping": "clearhead.interop.name_table",
    "clearhead.interop.settings": "clearhead.interop.config_json",
    "clearhead.interop.weights": "clearhead.interop.weight_files",
}

_DESIGNED = "clearhead.lab.learned_vs_designed"
_POSITION_FIGURES = "clearhead.inspection.position_figures"

# Old name → new name, where more than the module changed.
NAMES: dict[str, str] = {
    # attention, positions
    **{
        f"clearhead.attention.{old}": f"clearhead.attention.{new}"
        for old, new in {
            "linear.EluFeatures": "features.EluFeatures",
            "linear.FourierFeatures": "features.FourierFeatures",
            "linear.PositiveFeatures": "features.PositiveFeatures",
            "linear.QuadraticFeatures": "features.QuadraticFeatures",
            "linear.HARMLESS": "features.SAFE_EXPONENTS",
            "linear.quotient": "linear.divide",
        }.items()
    },
    # shapes
    "clearhead.shapes.shape_text": "clearhead.shapes.format_shape",
    "clearhead.shapes.values_at_hand": "clearhead.shapes.can_read_values",
    # config, layers, models
    "clearhead.layers.block.Stack": "clearhead.layers.stack.Stack",
    "clearhead.layers.capped": "clearhead.layers.apply_soft_cap",
    "clearhead.layers.soft_cap.capped": "clearhead.layers.soft_cap.apply_soft_cap",
    "clearhead.models.checks.numbers": "clearhead.models.checks.check_finite",
    "clearhead.models.model.at_rest": "clearhead.models.model.evaluation_mode",
    "clearhead.models.model.empty_model": "clearhead.models.registry.build_on_meta",
    "clearhead.models.seq2seq.real_tokens": "clearhead.models.seq2seq.find_real_tokens",
    # data, files
    "clearhead.data.fetching.download.has_sum": "clearhead.data.fetching.download.matches_checksum",
    "clearhead.data.number_words.number_words": "clearhead.data.number_words.spell_number",
    "clearhead.data.number_words.year_words": "clearhead.data.number_words.spell_year",
    "clearhead.data.number_words.ordinal_words": "clearhead.data.number_words.spell_ordinal",
    "clearhead.data.number_words.ordinal": "clearhead.data.number_words.format_ordinal",
    "clearhead.files.regular.shown": "clearhead.files.reading.quote",
    "clearhead.files.regular.named_faults": "clearhead.files.reading.prefix_errors",
    "clearhead.files.regular.replacing": "clearhead.files.writing.replace_file",
    "clearhead.files.regular.new_folder": "clearhead.files.writing.create_folder",
    "clearhead.files.regular.sync_folder": "clearhead.files.writing.sync_folder",
    "clearhead.files.regular.DISK_FAULTS": "clearhead.files.writing.DISK_FAULTS",
    "clearhead.files.replacing": "clearhead.files.replace_file",
    "clearhead.files.strict_json.digest_of": "clearhead.files.strict_json.hash_json",
    "clearhead.files.pictures.fitted": "clearhead.files.pictures.fit_picture",
    "clearhead.data.inert_pickle.read_inert": "clearhead.files.pickles.read_pickle",
    "clearhead.data.inert_pickle.byte_array": "clearhead.files.pickles.read_byte_table",
    "clearhead.data.draws.draws": "clearhead.data.randomness.draw_bits",
    "clearhead.data.draws.below": "clearhead.data.randomness.choose_below",
    "clearhead.data.draws.row_keys": "clearhead.data.randomness.hash_rows",
    "clearhead.data.draws.whole_number": "clearhead.data.randomness.check_integer",
    "clearhead.data.draws.counting_number": "clearhead.data.randomness.check_index",
    "clearhead.data.draws.counting_numbers": "clearhead.data.randomness.check_indices",
    "clearhead.data.batch.in_batches": "clearhead.data.batch.plan_batches",
    "clearhead.data.packing.buckets": "clearhead.data.packing.bucket",
    "clearhead.data.packing.packed": "clearhead.data.packing.join_documents",
    "clearhead.data.buckets": "clearhead.data.bucket",
    "clearhead.data.packed": "clearhead.data.join_documents",
    "clearhead.data.images.mean_and_std": "clearhead.data.images.compute_mean_and_std",
    "clearhead.data.images.read_cifar10": "clearhead.data.cifar10.read_cifar10",
    "clearhead.data.fetching.catalogue.path_of": "clearhead.data.fetching.catalogue.find_data",
    "clearhead.data.path_of": "clearhead.data.find_data",
    "clearhead.data.tokenizers.prose.to_prose": "clearhead.data.tokenizers.detokenize.detokenize",
    "clearhead.data.tokenizers.scored_pairs.ScoredPairTokenizer": "clearhead.data.tokenizers.sentence_pieces.SentencePieceTokenizer",  # noqa: E501
    "clearhead.data.tokenizers.scored_pairs.byte_name": "clearhead.data.tokenizers.sentence_pieces.format_byte",  # noqa: E501
    "clearhead.data.tokenizers.ScoredPairTokenizer": "clearhead.data.tokenizers.SentencePieceTokenizer",  # noqa: E501
    "clearhead.data.tokenizers.subwords.join_pairs": "clearhead.data.tokenizers.merges.merge_pairs",
    "clearhead.data.tokenizers.subwords.read_merges": "clearhead.data.tokenizers.merges.read_merges",  # noqa: E501
    "clearhead.data.tokenizers.subwords.tokens_by_id": "clearhead.data.tokenizers.subword_tokenizer.sort_by_id",  # noqa: E501
    "clearhead.interop.ScoredPairTokenizer": "clearhead.data.tokenizers.SentencePieceTokenizer",
    "clearhead.data.images.CIFAR10_CLASSES": "clearhead.data.cifar10.CIFAR10_CLASSES",
    # generation
    "clearhead.generation.growing_text.GrowingText": "clearhead.generation.row_text.RowText",
    "clearhead.generation.growing_text.HALF": "clearhead.generation.row_text.INCOMPLETE",
    "clearhead.generation.growing_text.growing_texts": "clearhead.generation.row_text.start_texts",
    "clearhead.generation.packed_gpt.Layer": "clearhead.generation.fast.packed_gpt.PackedBlock",
    "clearhead.generation.packed_gpt.packed": "clearhead.generation.fast.packed_gpt.pack",
    "clearhead.generation.products.lay_out": "clearhead.generation.fast.layouts.choose_layout",
    "clearhead.generation.products.safe_levels": "clearhead.generation.fast.layouts.find_levels",
    "clearhead.generation.products.to_int8": "clearhead.generation.fast.layouts.round_to_int8",
    "clearhead.generation.products.whole_product": "clearhead.generation.fast.layouts.matmul_int8",
    "clearhead.generation.rolling.Reader": "clearhead.generation.rolling.RollingReader",
    "clearhead.generation.rolling.Reading": "clearhead.generation.reader.Reader",
    "clearhead.generation.step.Reader": "clearhead.generation.reader.ModelReader",
    "clearhead.generation.step_fast.Reader": "clearhead.generation.fast.packed_reader.PackedReader",
    # training, runs
    "clearhead.training.checkpoint.places": "clearhead.runs.checkpoint.find_checkpoints",
    "clearhead.training.checkpoint.step_of": "clearhead.runs.checkpoint.parse_step",
    "clearhead.training.finite.check_step": "clearhead.training.gradient.check_finite_step",
    "clearhead.training.learner.Learner": "clearhead.training.gradient.Gradients",
    "clearhead.training.loop.Interrupted": "clearhead.runs.signals.Interrupted",
    "clearhead.training.loop.Progress": "clearhead.training.progress.Progress",
    "clearhead.training.loop.RunResult": "clearhead.runs.train_recipe.RunResult",
    "clearhead.training.loop.train": "clearhead.runs.train_recipe.train",
    "clearhead.training.losses.check_prediction": "clearhead.training.loss_inputs.check_head",
    "clearhead.training.optimizer.inner_matrices": "clearhead.training.optimizer.find_inner_matrices",  # noqa: E501
    "clearhead.training.optimizer.orthogonal": "clearhead.training.optimizer.orthogonalise",
    "clearhead.training.place.Place": "clearhead.training.state.State",
    "clearhead.training.place.Plans": "clearhead.training.state.DataOrder",
    "clearhead.training.place.Progress": "clearhead.training.progress.Progress",
    "clearhead.training.place.RunResult": "clearhead.runs.train_recipe.RunResult",
    "clearhead.training.place.Tell": "clearhead.training.progress.Tell",
    "clearhead.training.run.fill": "clearhead.models.model.load_weights",
    "clearhead.training.run_folder.Busy": "clearhead.runs.lock.Busy",
    "clearhead.training.run_folder.environment": "clearhead.runs.folder.describe_environment",
    "clearhead.training.starting.adopt": "clearhead.runs.resume.record_forced",
    "clearhead.training.starting.threads_of": "clearhead.runs.resume.decide_threads",
    "clearhead.training.starting.unfinished_run": "clearhead.runs.resume.find_unfinished",
    "clearhead.training.stopping.Stop": "clearhead.training.loop.Stop",
    # tasks, report
    "clearhead.training.answerers.Answerer": "clearhead.training.tasks.Predictor",
    "clearhead.training.answerers.CharacterAnswerer": "clearhead.training.tasks.CharacterPredictor",
    "clearhead.training.answerers.DialogueAnswerer": "clearhead.training.tasks.DialoguePredictor",
    "clearhead.training.answerers.PictureAnswerer": "clearhead.training.tasks.PicturePredictor",
    "clearhead.training.answerers.SequenceAnswerer": "clearhead.training.tasks.SequencePredictor",
    "clearhead.training.answerers.SubstringAnswerer": "clearhead.training.tasks.SubstringPredictor",
    "clearhead.training.answerers.TranslationAnswerer": "clearhead.training.tasks.TranslationPredictor",  # noqa: E501
    "clearhead.training.answerers.answerer.Answerer": "clearhead.training.tasks.task.Predictor",
    "clearhead.training.answerers.characters.CharacterAnswerer": "clearhead.training.tasks.characters.CharacterPredictor",  # noqa: E501
    "clearhead.training.answerers.dialogue.DialogueAnswerer": "clearhead.training.tasks.dialogue.DialoguePredictor",  # noqa: E501
    "clearhead.training.answerers.pictures.PictureAnswerer": "clearhead.training.tasks.pictures.PicturePredictor",  # noqa: E501
    "clearhead.training.answerers.sequences.SequenceAnswerer": "clearhead.training.tasks.sequences.SequencePredictor",  # noqa: E501
    "clearhead.training.answerers.substrings.SubstringAnswerer": "clearhead.training.tasks.substrings.SubstringPredictor",  # noqa: E501
    "clearhead.training.answerers.translation.TranslationAnswerer": "clearhead.training.tasks.translation.TranslationPredictor",  # noqa: E501
    "clearhead.training.answerers.answerer.TextAnswerer": "clearhead.training.tasks.task.TextPredictor",  # noqa: E501
    "clearhead.training.ngrams.best_order": "clearhead.models.ngrams.find_best_order",
    "clearhead.training.recipes.source_of": "clearhead.training.recipes.read_source",
    "clearhead.training.tasks.characters.EVALUATED": "clearhead.training.tasks.characters.EVAL_BATCH",  # noqa: E501
    "clearhead.training.tasks.characters.shakespeare": "clearhead.training.tasks.characters.read_shakespeare",  # noqa: E501
    "clearhead.training.tasks.characters.windows": "clearhead.training.tasks.characters.cut_windows",  # noqa: E501
    "clearhead.training.tasks.dialogue.EVALUATED": "clearhead.training.tasks.dialogue.EVAL_BATCH",
    "clearhead.training.tasks.dialogue.shakespeare": "clearhead.training.tasks.dialogue.read_shakespeare",  # noqa: E501
    "clearhead.training.tasks.pictures.EVALUATED": "clearhead.training.tasks.pictures.EVAL_BATCH",
    "clearhead.training.tasks.substrings.EVALUATED": "clearhead.training.tasks.substrings.EVAL_BATCH",  # noqa: E501
    "clearhead.training.tasks.translation.EVALUATED": "clearhead.training.tasks.translation.EVAL_BATCH",  # noqa: E501
    "clearhead.inspection.report.series_of": "clearhead.inspection.report.collect_series",
    "clearhead.inspection.report_html.drawn": "clearhead.inspection.report.html.embed",
    "clearhead.inspection.report_looks.looks": "clearhead.inspection.report.attention.look_at_examples",  # noqa: E501
    "clearhead.inspection.report_pictures.compared": "clearhead.inspection.report.curves.compare_runs",  # noqa: E501
    # inspection, lab, bench
    "clearhead.bench.timing.Row": "clearhead.bench.row.Row",
    "clearhead.bench.timing.best_seconds": "clearhead.timing.best_seconds",
    "clearhead.cli.progress.duration": "clearhead.timing.format_duration",
    "clearhead.inspection.figures.position_table": f"{_POSITION_FIGURES}.position_table",
    "clearhead.inspection.figures.position_waves": f"{_POSITION_FIGURES}.position_waves",
    "clearhead.inspection.figures.toeplitz_matrices": f"{_POSITION_FIGURES}.toeplitz_matrices",
    "clearhead.inspection.report_html.duration": "clearhead.timing.format_duration",
    "clearhead.lab.all_sequences.apart": f"{_DESIGNED}.all_sequences.compare_passes",
    "clearhead.lab.finding.written": "clearhead.lab.tools.finding.format_cell",
    "clearhead.lab.heads.attended": "clearhead.lab.heads.mean_weights",
    "clearhead.lab.heads.without": "clearhead.lab.heads.silence_heads",
    "clearhead.lab.kernel_cost.crossover": "clearhead.lab.kernels.cost.find_crossover",
    "clearhead.lab.kernel_cost.ways": "clearhead.lab.kernels.cost.build_ways",
    "clearhead.lab.kernel_report.story": "clearhead.lab.kernels.report.describe",
    "clearhead.lab.kernel_report.tables": "clearhead.lab.kernels.report.tabulate",
    "clearhead.lab.kernel_report.two_digits": "clearhead.lab.kernels.report.round_length",
    "clearhead.lab.learned_vs_designed.measured": f"{_DESIGNED}.comparison.measure",
    "clearhead.lab.learned_vs_designed.trained": f"{_DESIGNED}.comparison.train_pair",
    "clearhead.lab.measuring.fitted_slope": "clearhead.lab.tools.measuring.fit_slope",
    "clearhead.lab.position_report.story": "clearhead.lab.positions.report.describe",
    "clearhead.lab.position_report.tables": "clearhead.lab.positions.report.tabulate",
    "clearhead.lab.positions.answers": "clearhead.lab.positions.schemes.score_models",
    "clearhead.lab.positions.laws": "clearhead.lab.positions.schemes.measure_order",
    "clearhead.lab.positions.likeness": "clearhead.lab.positions.schemes.similarity",
    "clearhead.lab.positions.pairs": "clearhead.lab.positions.schemes.compare_pairs_with_sines",
    "clearhead.lab.positions.refusals": "clearhead.lab.positions.schemes.try_one_token_more",
    "clearhead.lab.positions.turned_likeness": "clearhead.lab.positions.schemes.rotary_similarity",
    "clearhead.lab.same_names.alike": f"{_DESIGNED}.shared_basis.scale_between",
    "clearhead.lab.same_names.difference": f"{_DESIGNED}.shared_basis.compare",
    "clearhead.lab.same_names.names_of": f"{_DESIGNED}.shared_basis.list_names",
    "clearhead.lab.same_names.renamed": f"{_DESIGNED}.shared_basis.rewrite",
    "clearhead.lab.same_names.rows_of": f"{_DESIGNED}.shared_basis.input_rows",
    "clearhead.lab.same_names.scores_of": f"{_DESIGNED}.shared_basis.token_scores",
    "clearhead.lab.same_names.table_of": f"{_DESIGNED}.shared_basis.score_table",
    "clearhead.lab.same_names.unlike": f"{_DESIGNED}.shared_basis.dissimilarity",
    # interop, cli
    "clearhead.cli.eval.loaded_run": "clearhead.cli.eval.open_run",
    "clearhead.cli.interrupts.leaving_at_once": "clearhead.cli.interrupts.exit_on_interrupt",
    "clearhead.cli.main.CODES": "clearhead.cli.main.EXIT_CODES",
    "clearhead.cli.options.device_named": "clearhead.cli.options.find_device",
    "clearhead.cli.options.thread_count": "clearhead.cli.options.set_threads",
    "clearhead.cli.progress.measures": "clearhead.cli.progress.format_metrics",
    "clearhead.cli.progress.progress_shown": "clearhead.cli.progress.show_progress",
    "clearhead.cli.recipes.recipe_named": "clearhead.cli.recipes.build_recipe",
    "clearhead.interop.any_kind.MODELS": "clearhead.interop.load.FETCHED",
    "clearhead.interop.exporting.THEIR_NAMES": "clearhead.interop.export.THEIR_ACTIVATIONS",
    "clearhead.interop.loading.Report": "clearhead.interop.report.Report",
    "clearhead.interop.loading.check_dtype": "clearhead.interop.fill.check_dtype",
    "clearhead.interop.loading.fill": "clearhead.interop.fill.fill_model",
    "clearhead.interop.loading.load_family": "clearhead.interop.hugging_face.load_folder",
    "clearhead.interop.mapping.cast_to": "clearhead.interop.fill.cast_to",
    "clearhead.interop.mapping.rows_of": "clearhead.interop.name_table.list_rows",
    "clearhead.interop.settings.LARGEST": "clearhead.interop.config_json.MAX_SIZE",
    "clearhead.interop.settings.Settings": "clearhead.interop.config_json.TheirConfig",
    "clearhead.interop.weights.Weights": "clearhead.interop.weight_files.WeightFiles",
}


def find(old: str) -> str | None:
    """The new full name of an old one, None if nothing is known of it."""
    module, _, name = old.rpartition(".")
    return NAMES.get(old) or (f"{MODULES[module]}.{name}" if module in MODULES else None)


def forward(module: str, own: Callable[[str], Any] | None = None) -> Callable[[str], Any]:
    """A `__getattr__` for a module: looks an old name up, warns, and returns the new object.

    own: the module's own `__getattr__`, if it has one, which is asked first.
    """

    def look_up(name: str) -> Any:
        if own is not None:
            with suppress(AttributeError):
                return own(name)
        old = f"{module}.{name}"
        new = None if name.startswith("__") else find(old)
        if new is None:
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
    """Finds the modules with old names, those that are gone among them."""

    def __init__(self) -> None:
        self.modules = {name.rpartition(".")[0] for name in NAMES} | MODULES.keys()
        self.packages = {name.rpartition(".")[0] for name in self.modules}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.modules | self.packages:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:  # None: only a __pycache__ was left there
            spec = ModuleSpec(fullname, None, is_package=fullname in self.packages)
        elif fullname not in self.modules:
            return None
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Runs a module as usual, if it still exists, and then lets it forward its old names."""

    def __init__(self, real: Loader | None) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an ordinary module

    def exec_module(self, module: ModuleType) -> None:
        if self.real is not None:
            self.real.exec_module(module)
        vars(module)["__getattr__"] = forward(module.__name__, vars(module).get("__getattr__"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)  # what else a loader offers: source, package data


sys.meta_path.insert(0, _Finder())  # first, so that it also sees the modules that still exist
