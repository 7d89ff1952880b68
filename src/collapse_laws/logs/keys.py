"""What the metrics of known trainers are called, and which of them is the reward or the step of a log.

Names are compared in lower case, a leading "train/" and the like removed. The first pattern of a role that a log holds
wins. The list is [declared], from the documentation and the logs of the trainers named beside it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

# what the text parser itself adds to records that carry no step
BAR_STEP = "(progress bar)"
ORDINAL = "(order in the log)"
TOTAL = "(updates by the summary)"

_REWARDS = (
    r"critic/score/mean",  # verl, before any KL penalty
    r"critic/rewards/mean",  # verl
    r"reward_mean|rewards?/mean|mean_reward|avg_reward|average_reward|reward_avg|mean_rewards?",
    r"reward",  # TRL, OpenRLHF
    r"rewards",
    r"(?:all/)?reward/(?:all|total|avg|mean|avg_raw_reward)(?:/mean)?",  # prime-rl, SkyRL
    r"rollouts?/raw_rewards?",  # slime: its rollout/rewards are normalised within their group
    r"(?:env|rollout|rollouts|batch|actor|grpo|rl|metrics|data|generator)/(?:all/)?(?:mean_)?(?:raw_)?rewards?"
    r"(?:_mean|/mean|/total|/avg)?",  # tinker, PipelineRL
    r"objective/scores?|objective/rlhf_reward",  # older TRL
    r"grpo_actor/task_reward(?:/avg)?|task_reward(?:/avg|/mean)?",  # AReaL
    r"score|scores|mean_score|score_mean|score/mean",
    r"episode_reward|episode_return|ep_rew_mean|ep_reward_mean|rollout/ep_rew_mean|return|returns|return_mean",
    r"rewards/[^/]+/mean|rewards/[^/]+",  # TRL, one reward function
    r"accuracy|acc|mean_accuracy|solve_rate|pass_rate|success_rate|accuracy_reward|pass@1",
    r"value",  # TensorBoard's CSV download has no other name
)
_STEPS = (
    r"global_step",
    r"step",
    r"trainer/global_step",
    r"(?:learner|optimizer|optim|opt|training|trainer|policy|update|grpo|gradient|rl|outer|actor)_?/?steps?",
    r"train_?steps?|global_?steps|globalstep|current_?steps?|step_?(?:idx|id)",  # LLaMA-Factory: current_steps
    r"global_step/max_steps",  # ms-swift, as "2/48"
    r"updates?|num_updates|n_updates|update_idx",
    r"iterations?|iters?|iteration_idx|training_iteration|global_?iterations?|it",
    r"progress/batch",  # tinker
    r"steps|batch|batch_idx|rollout_step|rollout_id|rollout/step",
    r"_step",  # W&B's own counter of log calls
    r"t",  # our run records
    r"n_?step",
)
ROLES: dict[str, tuple[str, ...]] = {
    "learner_step": (r"training/global_step",),  # verl fully-async: `step` counts synchronisations there
    "step": _STEPS,
    "reward": _REWARDS,
    "lr": (
        r"actor/lr|learning_rate|lr|optim/lr|policy/lr|optimizer/lr|actor_lr|lr-adamw",
        r"lr-pg(?:_0)?|grpo_actor/(?:update/)?lr",  # slime, AReaL
    ),
    "entropy": (r"actor/entropy(?:_loss)?|entropy(?:/mean)?|policy/entropy(?:_avg)?|mean_entropy|entropy_mean",),
    "clip_fraction": (
        r"actor/pg_clipfrac",
        r"clip_ratio/region_mean",
        r"clip_ratio",
        r"clip_fraction|clipfrac|clip_frac|pg_clipfrac|policy/clipfrac(?:_avg)?|approx_clipfrac",
    ),
    "kl_behaviour": (
        r"actor/ppo_kl",
        r"ppo_kl|approx_kl|mismatch_kl|policy/approxkl(?:_avg)?|policy_kl|kl_behaviour",
    ),
    "kl_ref": (
        r"actor/kl_loss|actor/ref_kl|kl_ref",
        r"kl|objective/kl|kl_mean|mean_kl|kl_div|ref_kl|kl/mean",
    ),
    "response_length": (
        r"response_length/mean|completions/mean_length|response_length|completion_length",
        r"mean_length|avg_response_length|response_len|generated_length|seq_len/mean|response_lengths/mean",
    ),
    "grad_norm": (r"actor/grad_norm|grad_norm|policy/grad_norm|optim/grad_norm|gradient_norm",),
    "grad_cos": (r"actor/grad_cos|grad_cos(?:ine)?|gradient_cosine",),
    "degenerate_group_fraction": (
        r"frac_reward_zero_std|degenerate_group_fraction|frac_zero_std|zero_std_fraction|zero_advantage_ratio",
    ),
    "loss": (r"actor/pg_loss|loss|actor/loss|policy_loss|pg_loss|train_loss",),
    "version": (
        r"fully_async/count/current_param_version",
        r"current_param_version|param_version|policy_version|weight_version|model_version",
    ),
    "stale": (
        r"fully_async/count/stale_trajectory_processed",
        r"(?:.*/)?trajectory_staleness/max|(?:.*/)?staleness/max|max_off_policy_level|max_staleness",
    ),
}
_COMPILED = [
    (role, priority, re.compile(pattern))
    for role, patterns in ROLES.items()
    for priority, pattern in enumerate(patterns)
]
_TRAIN = re.compile(r"^(?:train|training|metrics|train_metrics|trainer|log|logs|data)[/.](?=.)")
_HELD_OUT = re.compile(r"(?:^|[/_.\-])(?:eval|evaluation|val|valid|validation|test|val-core|val-aux)(?:[/_.\-]|$)")
# fields whose text says which data a whole row is of; its keys are then read as those of an evaluation
SPLIT_KEYS = frozenset({"split", "mode", "phase", "stage", "subset"})
_HELD_OUT_WORD = re.compile(
    r"(?:^|[\W_])(?:eval|evaluation|evaluate|val|valid|validation|test|dev|held_?out)(?:[\W_]|$)"
)
_NOT_A_MEAN = re.compile(
    r"(?:^|[/_.\-])(?:std|max|min|var|median|sum|count|time|weight|coef|zero|margins?|p\d+|hist)(?:[/_.\-]|$)"
)
_REWARD_LIKE = re.compile(r"reward|score|return|accura")
_FALLBACK = 1000  # below every named pattern


def canonical(key: str) -> str:
    """The key as the patterns see it."""
    key = key.strip().lower().replace(" ", "_")
    if _matches_any(key):
        return key
    return _TRAIN.sub("", key)


@functools.lru_cache(maxsize=4096)
def role_of(key: str) -> tuple[str, int] | None:
    """(role, priority) of a metric's name, smaller is better; None for a name that plays no part."""
    if len(key) > 200:
        return None
    name = canonical(key)
    if _HELD_OUT.search(name):
        return None
    for role, priority, pattern in _COMPILED:
        if pattern.fullmatch(name) and not (role == "reward" and _NOT_A_MEAN.search(name)):
            return role, priority
    if _REWARD_LIKE.search(name) and not _NOT_A_MEAN.search(name):
        return "reward", _FALLBACK
    return None


def is_held_out(text: object) -> bool:
    """Whether the text of a split field names held-out data."""
    return isinstance(text, str) and len(text) < 60 and _names_held_out(text)


@functools.lru_cache(maxsize=256)
def _names_held_out(text: str) -> bool:
    return _HELD_OUT_WORD.search(text.lower()) is not None


def missing_key(where: object, option: str, asked: str, names: Iterable[str]) -> str:
    """The sentence on a key that a user named and the log lacks; `names`: of the numbers it has."""
    return f"{where} has no numbers under {option} {asked!r}; it has: {_listed(names)}."


def missing_role(where: object, role: str, names: Iterable[str]) -> str:
    """The sentence on a log in which nothing is known by name as its reward or its step."""
    found = f"(numbers found: {_listed(names)})"
    return f"{where} has no {role} that is known by name; give its key with --{role}-key {found}."


def _listed(names: Iterable[str]) -> str:
    names = [repr(name[:60]) for name in names if name not in (ORDINAL, BAR_STEP, TOTAL)]
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") if names else "none"


def _matches_any(name: str) -> bool:
    return any(pattern.fullmatch(name) for _, _, pattern in _COMPILED)


def choose(keys: list[tuple[str, int]], role: str) -> str | None:
    """The key that plays a role: best priority first, then the most values, then the shortest name.

    `keys` are (key, number of values). A better name with hardly any values (below a tenth of the fullest) does not
    count.
    """
    ranked = [(found[1], -count, len(key), key) for key, count in keys if (found := role_of(key)) and found[0] == role]
    if not ranked:
        return None
    fullest = max(-count for _, count, _, _ in ranked)
    return min(entry for entry in ranked if -entry[1] * 10 >= fullest)[3]


def rivals(keys: list[tuple[str, int]], role: str, chosen: str) -> list[str]:
    """Other keys of the same role and priority with at least half as many values: the choice was not forced."""
    by_key = dict(keys)
    mine = role_of(chosen)
    return [key for key, count in keys if key != chosen and role_of(key) == mine and 2 * count >= by_key.get(chosen, 0)]
