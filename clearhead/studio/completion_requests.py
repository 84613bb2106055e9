"""Requests to /v1/completions and /v1/chat/completions, checked field by field.

used      the fields listed in COMPLETION and CHAT
ignored   fields that cannot change the text: user, metadata, …
refused   fields that would change the text but are not supported: logit_bias, tools, …

The error for a refused field names it. A field that is null counts as not given. The worker checks
the same limits again, because a page may ask it without these routes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.config import suggest

MAX_PROMPTS = 4
MAX_STOPS, MAX_STOP_LENGTH = 4, 200  # stop strings, and the characters of each
MAX_IDS = 50_000  # token ids of a prompt; no model here reads that many
MAX_MESSAGES = 256
MAX_NEW_TOKENS = 1024
WHOLE = {  # name → least, most
    "max_tokens": (0, MAX_NEW_TOKENS),
    "max_completion_tokens": (0, MAX_NEW_TOKENS),
    "n": (1, 4),
    "seed": (-(2**63), 2**63 - 100),
    "logprobs": (0, 5),
    "top_logprobs": (0, 5),
}
NUMBERS = {"temperature": (0, 2), "top_p": (0, 1)}
SHARED = ("model", "temperature", "top_p", "n", "stop", "seed", "stream", "stream_options")
COMPLETION = (*SHARED, "prompt", "max_tokens", "logprobs", "echo")
CHAT = (*SHARED, "messages", "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs")
IGNORED = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
}
# Fields that are not supported: only values without an effect are accepted.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "suffix": ("",),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
}
# The same for the fields of a message: clients send back the answers that they have received.
NEUTRAL_OF_MESSAGE: dict[str, tuple[Any, ...]] = {"tool_calls": ([],), "annotations": ([],)}
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class RequestError(ValueError):
    """A request that is refused: a sentence, and the name of the field that is wrong."""

    def __init__(self, sentence: str, param: str | None = None) -> None:
        super().__init__(sentence)
        self.sentence, self.param = sentence, param


@dataclass(frozen=True)
class CompletionRequest:
    """A checked request: the question for the worker, and whether its answer is a stream."""

    question: str
    arguments: dict[str, Any]
    is_stream: bool = False
    include_usage: bool = False

    @property
    def is_chat(self) -> bool:
        """Whether it is a conversation."""
        return self.question == "complete_chat"

    @property
    def model(self) -> str:
        """The id of the model."""
        return str(self.arguments["model"])


def read_completion(body: Any) -> CompletionRequest:
    """Check the body of a request to /v1/completions; raises RequestError."""
    values = _read_fields(body, COMPLETION)
    echo = _read_bool(values, "echo")
    if values.get("max_tokens") == 0 and not echo:
        raise RequestError(
            "max_tokens must be at least 1, got 0; it may be 0 only with echo", "max_tokens"
        )
    arguments = {
        **_read_shared(values),
        "prompts": _read_prompts(values),
        "logprobs": _read_whole(values, "logprobs"),
        "max_tokens": _read_whole(values, "max_tokens"),
        "echo": echo,
    }
    return CompletionRequest("complete", arguments, *_read_stream(values))


def read_chat(body: Any) -> CompletionRequest:
    """Check the body of a request to /v1/chat/completions; raises RequestError."""
    values = _read_fields(body, CHAT)
    names = [name for name in ("max_completion_tokens", "max_tokens") if name in values]
    most = _read_whole(values, names[0]) if names else None
    if most == 0:
        raise RequestError(f"{names[0]} must be at least 1, got 0", names[0])
    n_top = _read_whole(values, "top_logprobs")
    if n_top is not None and not _read_bool(values, "logprobs"):
        raise RequestError("top_logprobs needs logprobs to be true", "top_logprobs")
    arguments = {
        **_read_shared(values),
        "messages": _read_messages(values),
        "logprobs": (n_top or 0) if _read_bool(values, "logprobs") else None,
        "max_tokens": most,
    }
    return CompletionRequest("complete_chat", arguments, *_read_stream(values))


def check_limits(arguments: Mapping[str, Any]) -> None:
    """Check the arguments of `complete` or `complete_chat` in the worker; raises RequestError."""
    for name in ("max_tokens", "n", "seed", "logprobs"):
        _read_whole(arguments, name)
    _read_stop(arguments)
    for name, most in (("prompts", MAX_PROMPTS), ("messages", MAX_MESSAGES)):
        if name in arguments and not 1 <= len(arguments[name]) <= most:
            n = len(arguments[name])
            raise RequestError(f"{name} must have 1 to {most} items, got {n:,}", name)


def _read_fields(body: Any, known: tuple[str, ...]) -> dict[str, Any]:
    """The fields that are used, without nulls; raises RequestError for one that is refused."""
    if not isinstance(body, Mapping):
        raise RequestError(f"the body must be an object, got {type(body).__name__}")
    given = {name: value for name, value in body.items() if value is not None}
    for name, value in given.items():
        if name in known or name in IGNORED or _is_neutral(name, value, given):
            continue
        if name in NEUTRAL:
            raise RequestError(f"{name} is not supported here; leave it out", name)
        near = suggest(name, [*known, *NEUTRAL])
        raise RequestError(f"there is no field {name[:80]!r}{near}", name[:80])
    return {name: value for name, value in given.items() if name in known}


def _is_neutral(name: str, value: Any, given: Mapping[str, Any]) -> bool:
    """Whether the value of an unsupported field has no effect."""
    if name == "best_of" and _is_any(value, (given.get("n"),)):
        return True
    return _is_any(value, NEUTRAL.get(name, ()))


def _is_any(value: Any, known: Sequence[Any]) -> bool:
    """Whether a value is one of these. False and 0 are different here, unlike in Python."""
    is_bool = isinstance(value, bool)
    return any(value == each and is_bool == isinstance(each, bool) for each in known)


def _read_shared(values: Mapping[str, Any]) -> dict[str, Any]:
    model = values.get("model")
    if not isinstance(model, str):
        fault = "is missing" if model is None else f"must be a string, got {_describe(model)}"
        raise RequestError(f"model {fault}; GET /v1/models lists the models", "model")
    return {
        "model": model,
        "temperature": _read_number(values, "temperature"),
        "top_p": _read_number(values, "top_p"),
        "n": _read_whole(values, "n") or 1,
        "stop": _read_stop(values),
        "seed": _read_whole(values, "seed"),
    }


def _read_stream(values: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether the answer is a stream, and whether the stream ends with the usage."""
    is_stream, options = _read_bool(values, "stream"), values.get("stream_options")
    if options is None:
        return is_stream, False
    if not isinstance(options, Mapping):
        raise RequestError("stream_options must be an object", "stream_options")
    _refuse_others("stream_options", options, ("include_usage",))
    if not is_stream:
        raise RequestError("stream_options needs stream to be true", "stream_options")
    return is_stream, _read_bool(options, "include_usage")


def _read_whole(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    least, most = WHOLE[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        limits = f"from {least} to {most}"
        raise RequestError(f"{name} must be a whole number {limits}, got {_describe(value)}", name)
    return value


def _read_number(values: Mapping[str, Any], name: str) -> float:
    value = values.get(name, 1.0)
    least, most = NUMBERS[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not least <= value <= most:
        limits = f"from {least} to {most}"
        raise RequestError(f"{name} must be a number {limits}, got {_describe(value)}", name)
    return float(value)


def _read_bool(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, got {_describe(value)}", name)
    return bool(value)


def _read_stop(values: Mapping[str, Any]) -> list[str]:
    stop = values.get("stop")
    texts = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(texts, list) or len(texts) > MAX_STOPS:
        words = f"a string or a list of at most {MAX_STOPS}"
        raise RequestError(f"stop must be {words}, got {_describe(stop)}", "stop")
    for text in texts:
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_LENGTH:
            words = f"strings of 1 to {MAX_STOP_LENGTH} characters"
            raise RequestError(f"stop must hold {words}, got {_describe(text)}", "stop")
    return texts


def _read_prompts(values: Mapping[str, Any]) -> list[str | list[int]]:
    """The prompts, each a text or a list of token ids."""
    prompt = values.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if _are_ids(prompt):
            return [prompt]
        if all(isinstance(each, str) or _are_ids(each) for each in prompt):
            if len(prompt) > MAX_PROMPTS:
                words = f"at most {MAX_PROMPTS} texts at once, got {len(prompt)}"
                raise RequestError(f"prompt may hold {words}", "prompt")
            return prompt
    if prompt is None:
        raise RequestError("prompt is missing", "prompt")
    kinds = f"a string, a list of at most {MAX_PROMPTS} strings, or a list of token ids"
    raise RequestError(f"prompt must be {kinds}, got {_describe(prompt)}", "prompt")


def _are_ids(value: Any) -> bool:
    """Whether a value is a list of token ids; a list that is too long is refused."""
    if not isinstance(value, list):
        return False
    if len(value) > MAX_IDS:
        raise RequestError(
            f"prompt has {len(value):,} items, more than {MAX_IDS:,}; shorten it", "prompt"
        )
    return all(isinstance(each, int) and not isinstance(each, bool) for each in value)


def _read_messages(values: Mapping[str, Any]) -> list[dict[str, str]]:
    messages = values.get("messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
        words = f"a list of 1 to {MAX_MESSAGES} messages"
        raise RequestError(f"messages must be {words}, got {_describe(messages)}", "messages")
    return [_read_message(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _read_message(name: str, message: Any) -> dict[str, str]:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str) or role not in ROLES:
        words = f"an object with a role: {', '.join(ROLES)}"
        raise RequestError(f"{name} must be {words}", "messages")
    _refuse_others(name, message, ("role", "content"), NEUTRAL_OF_MESSAGE, param="messages")
    content = message.get("content")
    if not isinstance(content, str | list):
        raise RequestError(f"{name}.content must be text, got {_describe(content)}", "messages")
    return {"role": ROLES[role], "content": "".join(_read_parts(f"{name}.content", content))}


def _read_parts(name: str, content: str | list[Any]) -> list[str]:
    """The texts of a message's content, which is one text or parts {"type": "text", "text": …}."""
    if isinstance(content, str):
        return [content]
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            words = '{"type": "text", "text": …}'
            given = _describe(part if kind is None else kind)
            raise RequestError(f"{name}[{i}] must be {words}, got {given}", "messages")
        _refuse_others(f"{name}[{i}]", part, ("type", "text"), param="messages")
    return [part["text"] for part in content]


def _refuse_others(
    owner: str,
    values: Mapping[str, Any],
    known: Sequence[str],
    neutral: Mapping[str, Sequence[Any]] | None = None,
    *,
    param: str | None = None,
) -> None:
    """Raise RequestError for a field that is not known, unless its value has no effect."""
    for name, value in values.items():
        if name not in known and not _is_any(value, (None, *(neutral or {}).get(name, ()))):
            words = f"{owner}.{name[:40]} is not supported here; leave it out"
            raise RequestError(words, param or owner)


def _describe(value: Any) -> str:
    """A value as an error message shows it, cut if it is long."""
    if isinstance(value, str):
        return f"{value[:40]!r}" + ("…" if len(value) > 40 else "")
    if isinstance(value, list):
        return f"a list of {len(value):,} items"
    return "an object" if isinstance(value, Mapping) else str(value)
