"""What /v1/… answers: completions, chunks of a stream, and errors in OpenAI's format."""

import json
import secrets
import time
from typing import Any

from clearhead.studio.completion_requests import CompletionRequest

CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
END = b"data: [DONE]\n\n"


def make_error(status: int, sentence: str, param: str | None = None) -> dict[str, Any]:
    """The JSON body of an error. param: the wrong field; a 404 without it has no code."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    kind = "rate_limit_error" if status == 429 else kind
    code = None if status == 404 and param is None else CODES.get(status)
    return {"error": {"message": sentence, "type": kind, "param": param, "code": code}}


def make_event(value: Any) -> bytes:
    """A value as one server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


class CompletionFormat:
    """The answer to one request: as a whole, or as chunks."""

    def __init__(self, request: CompletionRequest) -> None:
        self.request = request
        self._head = {
            "id": ("chatcmpl-" if request.is_chat else "cmpl-") + secrets.token_hex(12),
            "created": int(time.time()),
            "model": request.model,
        }
        self._choices: dict[int, dict[str, Any]] = {}  # by index
        self._usage: Any = None

    # As a whole

    def add(self, answer: dict[str, Any]) -> None:
        """Add the pieces of one answer of the worker to the choices collected so far."""
        self._usage = answer.get("usage", self._usage)
        for piece in answer.get("choices", []):
            known = self._choices.setdefault(piece["index"], {**piece, "text": "", "logprobs": {}})
            known["text"] += piece["text"]
            known["finish_reason"] = piece["finish_reason"]
            if piece["logprobs"] is None:
                known["logprobs"] = None
                continue
            for name, values in piece["logprobs"].items():
                known["logprobs"].setdefault(name, []).extend(values)

    def finish(self) -> dict[str, Any]:
        """The body of the response, with all choices."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        if self.request.is_chat:
            choices = [make_chat_choice(choice, "message") for choice in choices]
        kind = "chat.completion" if self.request.is_chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": self._usage}

    # As chunks

    def list_chunks(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        """The chunks for one answer of the worker; a piece that adds nothing gets no chunk."""
        chunks = []
        for piece in answer.get("choices", []):
            index = piece["index"]
            if self.request.is_chat and index not in self._choices:
                first = {"role": "assistant", "content": ""}
                start = {"index": index, "delta": first, "logprobs": None, "finish_reason": None}
                chunks.append(self._make_chunk([start]))
            self._choices[index] = piece
            has_tokens = any((piece["logprobs"] or {}).values())
            if piece["text"] or has_tokens or piece["finish_reason"]:
                is_chat = self.request.is_chat
                choice = make_chat_choice(piece, "delta") if is_chat else piece
                chunks.append(self._make_chunk([choice]))
        if "usage" in answer and self.request.include_usage:
            chunks.append({**self._make_chunk([]), "usage": answer["usage"]})
        return chunks

    def _make_chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.request.is_chat else "text_completion"
        usage = {"usage": None} if self.request.include_usage else {}
        return {**self._head, "object": kind, "choices": choices, **usage}


def make_chat_choice(piece: dict[str, Any], name: str) -> dict[str, Any]:
    """A choice of /v1/completions as one of a chat; name: "message", or "delta" in a stream."""
    role = {"role": "assistant", "refusal": None} if name == "message" else {}
    return {
        "index": piece["index"],
        name: {**role, "content": piece["text"]},
        "logprobs": piece["logprobs"],
        "finish_reason": piece["finish_reason"],
    }
