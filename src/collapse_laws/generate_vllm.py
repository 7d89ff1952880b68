"""One vLLM engine that generates what a specification asks for, run as a script by an interpreter that has vLLM.

`python -P generate_vllm.py SPEC.json`. vLLM, verl and the driver pin packages that exclude one
another, so this file imports the standard library and vLLM alone. Prompts come as token ids and
responses go back as token ids, so that both backends read the same prompts and cut and decode
responses in the same way. Each part of the requests is written to its own file through a rename,
and a part that is there is not generated again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main(spec_path: str) -> None:
    """Load the engine once and generate every part that is not there yet."""
    spec = json.loads(Path(spec_path).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    import vllm

    # settings of a GPU that a CPU build refuses are left out by the caller, not guessed here
    engine = vllm.LLM(model=spec["model"], enable_prefix_caching=True, **spec["engine"])
    for part in spec["parts"]:
        if not Path(part["path"]).exists():
            _generate(vllm, engine, spec, part)


def _generate(vllm: Any, engine: Any, spec: dict[str, Any], part: dict[str, Any]) -> None:
    """All requests of the part at once, each with its own seed."""
    prompts = [{"prompt_token_ids": spec["prompts"][r["prompt"]]} for r in part["requests"]]
    parameters = [
        vllm.SamplingParams(
            n=1,
            seed=None if spec["sampling"]["temperature"] == 0 else r["seed"],
            detokenize=bool(spec["sampling"].get("stop")),
            **spec["sampling"],
        )
        for r in part["requests"]
    ]
    outputs = engine.generate(prompts, parameters, use_tqdm=False)
    path = Path(part["path"])
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        for request, output in zip(part["requests"], outputs, strict=True):
            completion = output.outputs[0]
            row = {
                "problem": request["problem"],
                "sample": request["sample"],
                "tokens": list(completion.token_ids),
                "finished": completion.finish_reason == "stop",
            }
            file.write(json.dumps(row) + "\n")
        file.write(json.dumps({"vllm": vllm.__version__}) + "\n")
    os.replace(temporary, path)


def _end_with(parent: int) -> None:
    """End the engine and its processes when the evaluation that started it has died: nothing else would."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":  # vLLM starts its engine by importing this file again
    main(sys.argv[1])
