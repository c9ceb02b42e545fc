"""The safetensors format: an 8-byte length, a JSON header with every tensor's place, the numbers.

What is not a tensor stands as JSON under one key of the header's ``__metadata__``, whose values must be text.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from visiontrain.models.pickled import Refused

MOST_HEADER = 4 << 20  # bytes; a tensor takes about a hundred
KEY = "visiontrain"
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def read_safetensors(path: Path) -> dict[str, Any]:
    """The content that ``write_safetensors`` was given.

    Raises:
        Refused: the header lies about the file, or does not say which model the tensors are of.
    """
    with path.open("rb") as file:
        header, left = _header(file, path.stat().st_size)
        about = header.pop("__metadata__", {})
        weights, at = {}, 0
        for name, entry in sorted(header.items(), key=lambda item: _place(*item)):
            weights[name], at = _tensor(file, name, entry, at, left)
    if at != left:
        raise Refused(f"its tensors end at byte {at:,} of {left:,}")
    if type(about) is not dict or type(about.get(KEY)) is not str:
        raise Refused(
            f"it does not say which model its tensors are of (__metadata__ has no {KEY!r}). "
            "Files that visiontrain convert wrote are read; give the .pt that this one was made from"
        )
    content = _json(about[KEY])
    if type(content) is not dict:
        raise Refused(f"its {KEY!r} is no description of a model")
    return {**content, "weights": weights}


def write_safetensors(content: dict[str, Any], file: BinaryIO) -> None:
    """Write a checkpoint whose ``weights`` are tensors and everything else is what JSON knows."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in content["weights"].items()}
    about = {key: value for key, value in content.items() if key != "weights"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt", KEY: json.dumps(about)}}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format wants the numbers to begin at a multiple of 8
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors.values():
        file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)


def _header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The header and how many bytes follow it."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(MOST_HEADER, size - 8):
        raise Refused(
            f"its header should have {length:,} bytes, of a file of {size:,}; {MOST_HEADER:,} are read at most"
        )
    header = _json(file.read(length))
    if type(header) is not dict:
        raise Refused("its header is no list of tensors")
    return header, size - 8 - length


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise Refused(f"its header is no JSON that can be read ({str(error)[:80]})") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused("its header has a name twice")
    return found


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor's numbers begin and end, after a look at its entry."""
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            counts = [begin, end, *shape]
            if dtype in DTYPES and len(shape) <= 8 and all(type(n) is int and 0 <= n < 1 << 40 for n in counts):
                return begin, end
    raise Refused(f"its tensor {name[:80]!r} has no dtype, shape and place that can be read")


def _tensor(file: BinaryIO, name: str, entry: dict[str, Any], at: int, left: int) -> tuple[Tensor, int]:
    """One tensor, which must begin where the last one ended, and where it ends."""
    begin, end = entry["data_offsets"]
    dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
    if begin != at or end > left or end - begin != prod(shape) * dtype.itemsize:
        raise Refused(
            f"its tensor {name[:80]!r} has bytes {begin:,} to {end:,}, of {left:,}, after {at:,}: they are not those of a "
            f"{entry['dtype']} of shape {shape}, or belong to another"
        )
    if begin == end:
        return torch.empty(shape, dtype=dtype), end
    content = np.fromfile(file, np.uint8, end - begin)
    if len(content) != end - begin:
        raise Refused(f"its tensor {name[:80]!r} ends too early")
    return torch.from_numpy(content).view(dtype).view(shape), end
