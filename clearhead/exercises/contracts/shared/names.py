"""What students call the layers and sizes of an attention module, and its lines of code."""

# Layers, by pieces of the names of their parameters
QUERY = "q query queries w_q wq to_q q_proj proj_q query_proj linear_q lin_q fc_q toqueries w_query"
KEY = "k key keys w_k wk to_k k_proj proj_k key_proj linear_k lin_k fc_k tokeys w_key"
VALUE = "v value values w_v wv to_v v_proj proj_v value_proj linear_v lin_v fc_v tovalues w_value"
OUT = (
    "o out output w_o wo to_out o_proj out_proj proj_out output_proj proj c_proj fc fc_out "
    "linear_out dense unifyheads"
)

# Sizes, by the names of arguments
HEADS = "num_heads n_heads heads h nheads n_head nhead num_head num_attention_heads"
MODEL = (
    "num_hiddens d_model embed_dim dim hidden_size n_embd hidden_dim d_embed emb_dim emb_size "
    "embed_size"
)
INPUT = "input_dim d_input d_in d_model dim in_dim embed_dim dim_in n_embd input_size"
WIDTH = "key_dim d_key d_k dim_k dk d_qk qk_dim head_dim head_size n_hidden hidden_dim"
OUTPUT = "output_dim d_output d_v d_out value_dim dim_v dv out_dim output_size"
LENGTH = "block_size context_length max_seq_len max_len seq_len n_ctx max_length"
DROPOUT = (
    "dropout p dropout_p attn_dropout dropout_rate dropout_prob drop attn_drop drop_rate attn_pdrop"
)

# Pieces of source text that point at a line
PRODUCT = ("matmul", "bmm", "@", "einsum")
ROOT = ("sqrt", "** 0.5", "**0.5", "**-0.5", "** -0.5")
HIDE = ("masked_fill", "where", "mask", "valid_len")
RESHAPE = ("reshape", "view", "rearrange", "unflatten", "split", "chunk")
PAST = ("tril", "triu", "causal", "mask")
