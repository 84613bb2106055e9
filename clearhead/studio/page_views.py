"""The views that a page without a server can show, and the kinds of models that each shows."""

TEXT_KINDS = ("GPT", "SequenceClassifier", "TextEncoder")
KINDS = {
    "text": TEXT_KINDS,
    "generate": ("GPT",),
    "picture": ("VisionTransformer",),
    "translation": ("Seq2Seq",),
    "smallest": ("TorchTransformer",),
}
WITHOUT_MODEL = ("smallest", "positions", "kernels")  # smallest: also with a run
VIEWS = tuple(dict.fromkeys((*KINDS, *WITHOUT_MODEL)))
