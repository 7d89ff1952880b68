"""verl's checker `math_reward`, taken from verl's own file without importing the package."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

from collapse_laws.errors import UserError


@functools.cache
def verl_math_reward() -> ModuleType:
    """The module `verl.utils.reward_score.math_reward`; UserError without verl.

    `import verl` takes seconds and brings Ray; the module itself imports nothing.
    """
    spec = importlib.util.find_spec("verl")
    path = Path(next(iter(spec.submodule_search_locations))) if spec else Path()
    path = path / "utils" / "reward_score" / "math_reward.py"
    if spec is None or not path.is_file():
        raise UserError(
            "scoring mathematics needs verl's checker math_reward, and verl is not installed; install the extra `verl`."
        )
    module_spec = importlib.util.spec_from_file_location("collapse_laws_verl_math_reward", path)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module
