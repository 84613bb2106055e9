"""The views that a page without a server can show, and the kinds of models that each shows."""

TEXT_KINDS = ("GPT", "SequenceClassifier", "TextEncoder")
KINDS = {
    "text": TEXT_KINDS,
    "generate": ("GPT",),
    "picture": ("VisionTransformer",),
    "translation": ("Seq2Seq",),
    "smallest": ("TorchTransformer",),
}
SHOW_NO_MODEL = ("positions", "kernels")
NEED_NO_MODEL = ("smallest", *SHOW_NO_MODEL)  # the view Smallest can show a run, or no model
VIEWS = (*KINDS, *SHOW_NO_MODEL)
