"""What several exercises have in common: terms with their mistakes, conventions, ways to call.

names.py                 what students call layers and sizes
conventions.py           the forms in which a mask, lengths or a batch may be passed
dot_product_formula.py   scores, mask, softmax and mixture, for every exercise on attention
dot_product.py           the mistakes in them
causal.py                attention that is causal by design
heads.py                 the heads of one module: split, attend, merge
dropout.py               a dropout layer that is built but never used
layer.py                 the transformer layer, and its weights
encoder.py               layers one after the other, for classifier and vit
gru.py                   a gated recurrent unit, for gru_encoder and attention_decoder
gru_weights.py           its weights, found in a student's module
decoder_weights.py       the weights of a decoder, found in a student's module
decoder_calls.py         how a decoder is built, started and called
cross_entropy.py         the loss of one prediction
language_models.py       the models that generate and generate_cached call
products.py              feature maps, compared by φ(q)·φ(k)
twins.py                 a second function beside the first, such as a closed form
hand_design.py           a small transformer whose weights are set by hand
"""

__all__: list[str] = []
