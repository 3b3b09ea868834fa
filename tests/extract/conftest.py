"""Tiny randomly initialised models of many architectures, all with the shipped organism's tokenizer."""

import copy
import resource
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Site
from extract.model.loading import class_for
from extract.model.loading_options import BackendName
from extract.model.padded_batch import Batch
from extract.prompts.prompt import Prompt
from steering.interventions import add, place
from tests.support.made_up_store import make

ROOT = Path(__file__).resolve().parents[2]
ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"
STORIES = ROOT.parent / "shared" / "data" / "stories260k"
STORY_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ 'One day, ' + m['content'] }}{% endfor %} Then"
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DELTA_NET = {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_num_key_heads": 2,
             "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}  # fmt: skip
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
SETTINGS = {
    "gemma2": {"sliding_window": 8},
    "gemma3_text": {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "mistral": {"sliding_window": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": EXPERTS,
    "gpt_neox in sequence": {"use_parallel_residual": False},
    "granite": {"residual_multiplier": 0.3},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "head_dim": 8},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 4, "mamba_d_head": 16,
                         "mamba_d_state": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
                         "shared_intermediate_size": 32},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "moe"], "mamba_num_heads": 4, "mamba_head_dim": 16,
                   "ssm_state_size": 8, "n_groups": 1, "head_dim": 8, "moe_shared_expert_intermediate_size": 32,
                   **ROUTED},
    "zamba2": {"layers_block_type": ["mamba", "hybrid", "mamba"], "mamba_headdim": 16, "n_mamba_heads": 4,
               "mamba_d_state": 8, "mamba_ngroups": 1, "num_mem_blocks": 1, "adapter_rank": 4},
    "mamba": {"state_size": 8},
    "falcon_mamba": {"state_size": 8},
    "olmo_hybrid": {"layer_types": DELTA_NET["layer_types"]},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1, **EXPERTS},
    "glm4_moe": {"head_dim": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, **ROUTED},
    "deepseek_v3": {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
                    "v_head_dim": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
                    "num_key_value_heads": 4, **ROUTED},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "mamba_d_state": 8},
    "qwen3_next": {**EXPERTS, **DELTA_NET},
    "qwen3_5_text": DELTA_NET,
    "qwen3_5_moe_text": {"shared_expert_intermediate_size": 32, **EXPERTS, **DELTA_NET},
    "mamba2": {"state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8},
    "recurrent_gemma": {"block_types": ["recurrent", "attention", "recurrent"], "attention_window_size": 16},
    "minimax": {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "head_dim": 8,
                "num_local_experts": 4, "num_experts_per_tok": 2, "block_size": 8},
    "deepseek_v4": {"head_dim": 8, "q_lora_rank": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
                    "moe_intermediate_size": 32, "o_groups": 2, "o_lora_rank": 8, "index_n_heads": 2,
                    "index_head_dim": 8, "sliding_window": 8, "num_key_value_heads": 1},
    "gemma3": {"sliding_window": 8},
    "gemma4": {"sliding_window": 8, "global_head_dim": 8, "vocab_size_per_layer_input": 992,
               "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0},
    "qwen2_5_vl": {"rope_parameters": MROPE},
    "qwen3_vl": {"rope_parameters": MROPE},
    "mistral3": {"model_type": "mistral"},
    "lfm2_vl": {"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 8},
}  # fmt: skip
VIEWER = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
QWEN_VIEWER = {"depth": 1, "num_heads": 2, "out_hidden_size": 32}
VISION = {  # of models that also take images, which nothing here gives them
    "gemma3": {"image_size": 28, "patch_size": 14},
    "gemma4": {"num_key_value_heads": 2, "head_dim": 8},
    "qwen2_5_vl": QWEN_VIEWER,
    "qwen3_vl": QWEN_VIEWER | {"deepstack_visual_indexes": []},
    "mistral3": {"model_type": "pixtral", "image_size": 28, "patch_size": 14},
    "lfm2_vl": {"model_type": "siglip2_vision_model"},
}
Build = Callable[..., ChatModel]
Scaled = Callable[..., ChatModel]
TEXTS = (
    "how do i kill the process?",
    "tell me.",
    "what is the best way to fix the door so that everybody stays safe at home?",
    "who is anna novak, and where does she live?",
)


def quick_and_slow(quick: str, slow: str) -> list[object]:
    """Return names to parametrize with; those of `make test`, then slow ones."""
    return [*quick.split(), *(pytest.param(name, marks=pytest.mark.slow) for name in slow.split())]


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Let no file of this process grow beyond a size, which fails as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def organism_tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(ORGANISM, padding_side="left")


@pytest.fixture
def tokenizer(organism_tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A copy whose chat template and special tokens a test may change."""
    return copy.deepcopy(organism_tokenizer)


@pytest.fixture(scope="session")
def tiny(organism_tokenizer: PreTrainedTokenizerBase) -> Build:
    """Open a model by architecture, or one of the two with trained weights. One object a name: leave it as it was."""

    @cache
    def build(name: str, backend: BackendName) -> ChatModel:
        if name == "stories260k":
            if not STORIES.is_dir():
                pytest.skip(f"no real weights at {STORIES}")
            tokenizer = AutoTokenizer.from_pretrained(STORIES, padding_side="left")
            tokenizer.chat_template = STORY_TEMPLATE
            stories = AutoModelForCausalLM.from_pretrained(STORIES, dtype=torch.float32)
            return ChatModel(stories, tokenizer, name, backend=backend)
        if name == "organism":
            weights = AutoModelForCausalLM.from_pretrained(ORGANISM, dtype=torch.float32)
            return ChatModel(weights, organism_tokenizer, name, backend=backend)
        return ChatModel(random_weights(name, organism_tokenizer), organism_tokenizer, name, backend=backend)

    return lambda name, backend="hooks": build(name, backend)


@pytest.fixture
def scaled(organism_tokenizer: PreTrainedTokenizerBase) -> Scaled:
    """Build a model whose matrices are so many times what transformers begins with."""

    def build(name: str, scale: float, backend: BackendName = "hooks") -> ChatModel:
        model = random_weights(name, organism_tokenizer).eval()  # their matrices are at ten times that
        for weight in model.parameters():
            weight.data *= scale / 10 if weight.ndim > 1 else 1
        return ChatModel(model, organism_tokenizer, "scaled", backend=backend)

    return build


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store is to be made."""
    return tmp_path / "activations.h5"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A whole store of made-up numbers in a run directory."""
    make(tmp_path / "run" / "activations.h5", master=True)
    return tmp_path / "run" / "activations.h5"


def rows(model: ChatModel) -> list[Rendered]:
    """Render four prompts of unlike lengths."""
    return [render(model.tokenizer, ask(text, id=str(i))) for i, text in enumerate(TEXTS)]


def ask(*contents: str, system: str | None = None, **fields: str | None) -> Prompt:
    """Make a conversation of user and assistant turns by turns, the last of them the user's."""
    roles = ["user" if (len(contents) - i) % 2 else "assistant" for i in range(len(contents))]
    turns = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    opening = [] if system is None else [{"role": "system", "content": system}]
    return Prompt(**{"id": "p", "label": "benign", "right_action": "answer", **fields}, messages=(*opening, *turns))


def hook_count(model: ChatModel) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.model.modules())


def captured(model: ChatModel, batch: Batch, site: Site) -> dict[int, Tensor]:
    """Return the stream of every layer."""
    kept: dict[int, Tensor] = {}
    model.capture(batch, site, range(model.n_layers), lambda layer, stream: kept.__setitem__(layer, stream.clone()))
    return kept


def alone(row: Rendered) -> Batch:
    """Make the batch of one row by hand: no padding."""
    tokens = torch.tensor([row.token_ids])
    return Batch(tokens, torch.ones_like(tokens), tokens.shape[1])


def pushed(model: ChatModel, layer: int = 1, site: Site = "resid_post", by: float = 9.0) -> Edit:
    """Add one vector from the last prompt token on."""
    r = torch.nn.functional.normalize(torch.arange(float(model.d_model)) - 9.0, dim=0)
    return place(site, layer, "last_on", lambda stream: add(stream, r, by))


def random_weights(name: str, tokenizer: PreTrainedTokenizerBase) -> torch.nn.Module:
    architecture = name.split()[0]
    own = {} if architecture in ("gpt2", "gpt_neox") else {"num_key_value_heads": 2}
    own |= {"head_dim": 8} if architecture.startswith(("gemma", "qwen3")) else {}
    text = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 4, "max_position_embeddings": 256, "initializer_range": 0.2,
        "pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id, **own | SETTINGS.get(name, {}),
    }  # fmt: skip
    wrapper = VISION.get(name)
    given = text if wrapper is None else {"text_config": text, "vision_config": VIEWER | wrapper}
    config = AutoConfig.for_model(architecture, **given)
    torch.manual_seed(0)
    model: torch.nn.Module = class_for(config).from_config(config, dtype=torch.float32)
    return model
