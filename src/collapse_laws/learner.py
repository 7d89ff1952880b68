"""The local learner: asynchronous GRPO with periodic weight synchronisation, one process.

Section 2.2 of the paper [stated]: the rollouts of updates S*M ... S*M+S-1 come from the snapshot
phi = theta_{S*M}; every batch gets one AdamW step; then the weights are synchronised. Since phi
stands still over a cycle, the cycle's S batches are sampled at once, which is what a rollout worker
that never waits would have sent. Nothing is discarded and nothing else corrects for staleness.
"""

from __future__ import annotations

import math
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse_laws import grpo, probes
from collapse_laws.attention import token_logprobs
from collapse_laws.errors import UserError
from collapse_laws.experience import Experience, Sampler, degenerate_fraction
from collapse_laws.policy import FlatParameters, load_policy, save_policy
from collapse_laws.protocol import lag, snapshot_index
from collapse_laws.runrecord import RunWriter
from collapse_laws.stopping import stays_down
from collapse_laws.study import Cell
from collapse_laws.tasks import make_task

STATE = "state.pt"


class Preempted(Exception):
    """The run was told to end before its time; its state is saved."""


@dataclass(slots=True)
class Progress:
    """All that a run carries from one update to the next beside parameters and optimizer."""

    t: int = 0  # updates made
    previous_grad: Tensor | None = None
    snapshot: Tensor | None = None  # phi, flat
    last_cycle: Tensor | None = None  # displacement over the cycle before, flat
    rewards: list[float] = field(default_factory=list)  # of the rollout batches so far
    seconds: float = 0.0  # wall time of earlier sessions of this run
    sessions: int = 1


class Learner:
    """One run of a cell, new or taken up again from the state in `work`."""

    def __init__(self, cell: Cell, model_dir: Path, work: Path, checkpoints: Path) -> None:
        self.cell, self.settings = cell, cell.settings
        self.work, self.checkpoints = work, checkpoints
        self.model, self.tokenizer = load_policy(model_dir, self.settings["dtype"], cell.device)
        reference, _ = load_policy(model_dir, self.settings["dtype"], cell.device)
        self.reference = reference.requires_grad_(False)
        task = make_task(self.settings["task"], self.tokenizer)
        self.sampler = Sampler(cell, task, self.model, self.reference, self.tokenizer)
        self.parameters = FlatParameters(self.model)
        self.start = self.parameters.now()
        self.optimizer = torch.optim.AdamW(
            [self.parameters.value],
            lr=cell.lr,
            betas=(self.settings["adam_beta1"], self.settings["adam_beta2"]),
            eps=self.settings["adam_eps"],
            weight_decay=self.settings["weight_decay"],
        )
        self.progress = Progress()
        self._began = time.perf_counter()
        self.stop_requested = False
        self._load()
        self.writer = RunWriter(work)

    def run(self, on_update: Callable[[], object]) -> str:
        """Train to the horizon, a lasting collapse or a failure; return which. Raises Preempted."""
        p, S = self.progress, self.cell.sync_interval
        while p.t < self.cell.horizon_updates:
            cycle = self._synchronise()
            if self._collapsed():
                return "collapse"
            for experience in cycle[p.t % S :]:
                if not self._update(experience):
                    return "failed"
                on_update()
                self._keep_state()
        return "horizon"

    # -- one cycle -------------------------------------------------------------------------------

    def _synchronise(self) -> list[Experience]:
        """Take the snapshot, sample the cycle from it and write its row.

        In a cycle that was interrupted, go back to its snapshot for the sampling only.
        """
        p, S = self.progress, self.cell.sync_interval
        current = self.parameters.now()
        if p.t % S != 0:
            self.parameters.set(p.snapshot)
            cycle = self.sampler.draw(p.t - p.t % S, S)
            self.parameters.set(current)
            return cycle
        last_cycle = None if p.snapshot is None else current - p.snapshot
        cycle_cos = None if last_cycle is None else probes.cosine(last_cycle, p.last_cycle)
        p.snapshot, p.last_cycle = current, last_cycle
        cycle = self.sampler.draw(p.t, S)
        row = self._snapshot_row(cycle) | {"cycle_cos": cycle_cos}
        p.rewards.append(row["reward_mean"])
        self.writer.snapshots.append(row)
        return cycle

    def _snapshot_row(self, cycle: list[Experience]) -> dict[str, Any]:
        p, S = self.progress, self.cell.sync_interval
        every = self.settings["validation_every_updates"]
        validates = p.t == 0 or p.t // every > (p.t - S) // every
        reward = torch.cat([experience.reward for experience in cycle])  # [S*n, group]
        by_prompt = reward.mean(dim=1)
        tokens = sum(experience.tokens for experience in cycle)
        finished = torch.cat([experience.rollouts.finished for experience in cycle])
        return {
            "M": p.t // S,
            "t": p.t,
            "reward_mean": reward.mean().item(),
            "reward_se": by_prompt.std().item() / math.sqrt(len(by_prompt)),
            "n": reward.numel(),
            "degenerate_group_fraction": degenerate_fraction(reward),
            "truncated_fraction": 1 - finished.float().mean().item(),
            "response_length": tokens / reward.numel(),
            "entropy": sum(x.rollouts.entropies.sum().item() for x in cycle) / tokens,
            "displacement_rms": probes.rms(p.snapshot - self.start),
            "validation_reward": self.sampler.validate() if validates else None,
            "validation_n": self.settings["validation_prompts"] if validates else None,
        }

    def _collapsed(self) -> bool:
        return stays_down(
            self.progress.rewards,
            self.cell.lr,
            self.cell.sync_interval,
            self.settings["stop_patience_snapshots"],
            self.settings["stop_patience_lr_budget"],
        )

    # -- one update ------------------------------------------------------------------------------

    def _update(self, experience: Experience) -> bool:
        """Learn from one batch and write the step row; False where the loss is not finite."""
        began, p = time.perf_counter(), self.progress
        seen = self._gradient(experience)
        grad = self.parameters.grad
        norm = grad.norm().item()
        row: dict[str, Any] = {
            "t": p.t,
            "snapshot": snapshot_index(p.t, self.cell.sync_interval),
            "lag": lag(p.t, self.cell.sync_interval),
            "lr": self.cell.lr,
            **seen,
            "reward_mean": experience.reward.mean().item(),
            "grad_norm": norm,
            "grad_cos": probes.cosine(grad, p.previous_grad),
            "entropy": experience.mean_entropy,
            "response_length": experience.tokens / experience.reward.numel(),
            "degenerate_group_fraction": degenerate_fraction(experience.reward),
            "tokens": experience.tokens,
        }
        finite = math.isfinite(norm) and math.isfinite(seen["loss"])
        if finite:
            p.previous_grad = grad.clone()
            if self._probes_now():
                row |= self._stale_feedback()
            row |= self._step(norm)
        self.writer.steps.append(row | {"seconds": round(time.perf_counter() - began, 5)})
        p.t += 1
        return finite

    def _gradient(self, experience: Experience) -> dict[str, float]:
        """Leave the gradient of one batch's loss in the flat gradient; return what was seen."""
        s = self.settings
        logprob, distribution = token_logprobs(self.model, experience.packed, s["temperature"])
        behaviour = experience.behaviour
        old = behaviour if s["ratio"] == "behaviour" else logprob.detach()
        advantage = grpo.group_advantage(experience.reward, s["advantage_ddof"], s["advantage_eps"]).flatten()[
            experience.packed.row
        ]
        terms = grpo.surrogate(logprob, old, advantage, s["clip_low"], s["clip_high"], s["dual_clip"])
        kl = grpo.token_mean(grpo.kl_k3(logprob, experience.reference))
        loss = grpo.token_mean(terms.loss) + s["kl_coef"] * kl
        if s["entropy_coef"]:
            negative_entropy = (distribution.exp() * distribution).sum(1)
            loss = loss + s["entropy_coef"] * grpo.token_mean(negative_entropy)
        self.parameters.grad.zero_()
        loss.backward()
        log_ratio = logprob.detach() - behaviour
        return {
            "loss": loss.item(),
            "clip_fraction": terms.clipped.float().mean().item(),
            "dual_clip_fraction": terms.dual_clipped.float().mean().item(),
            "ratio_max": log_ratio.max().clamp(max=grpo.LOG_RATIO_LIMIT).exp().item(),
            "kl_ref": kl.item(),
            "kl_behaviour": -log_ratio.mean().item(),
        }

    def _step(self, norm: float) -> dict[str, float]:
        """Clip the gradient by its norm and make one AdamW step."""
        limit = self.settings["grad_clip"]
        if limit is not None and norm > limit:
            self.parameters.grad.mul_(limit / (norm + 1e-6))
        before = self.parameters.now()
        self.optimizer.step()
        now = self.parameters.now()
        return {
            "update_rms": probes.rms(now - before) / self.cell.lr,
            "displacement_rms": probes.rms(now - self.start),
        }

    def _probes_now(self) -> bool:
        """At the end of a cycle that passes a multiple of `mechanism_every_updates`; not at S=1."""
        every, S = self.settings["mechanism_every_updates"], self.cell.sync_interval
        t = self.progress.t + 1
        return S > 1 and t % S == 0 and t // every > (t - S) // every

    def _stale_feedback(self) -> dict[str, float | None]:
        """Compare the gradient at hand with one on fresh rollouts of the same prompts."""
        stale = self.parameters.grad.clone()
        self._gradient(self.sampler.draw(self.progress.t, 1)[0])
        displacement = self.parameters.now() - self.progress.snapshot
        seen = probes.stale_feedback(stale, self.parameters.grad, displacement)
        self.parameters.grad.copy_(stale)
        return seen

    @property
    def seconds(self) -> float:
        """Wall time of this run over all its sessions."""
        return self.progress.seconds + time.perf_counter() - self._began

    # -- state -----------------------------------------------------------------------------------

    def _keep_state(self) -> None:
        t, every = self.progress.t, self.settings["export_every_updates"]
        if t % self.settings["checkpoint_every_updates"] == 0 or self.stop_requested:
            self.save()
        if every and t % every == 0:
            save_policy(self.model, self.tokenizer, self.checkpoints / str(t))
        if self.stop_requested:
            raise Preempted

    def save(self) -> None:
        """Save the state, so that a kill from now on loses nothing that came before."""
        self.writer.sync()
        state = {
            "settings_digest": self.cell.digest,
            "parameters": self.parameters.now(),
            "optimizer": self.optimizer.state_dict(),
            "progress": {name: getattr(self.progress, name) for name in Progress.__slots__} | {"seconds": self.seconds},
        }
        temporary = self.work / f".{STATE}"
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.work / STATE)

    def _load(self) -> None:
        path = self.work / STATE
        if not path.exists():
            return
        again = f"delete {self.work} to start the cell from its beginning"
        try:
            state = torch.load(path, weights_only=True, map_location=self.cell.device)
            digest, progress = state["settings_digest"], Progress(**state["progress"])
            if digest == self.cell.digest:
                self.parameters.set(state["parameters"])
                self.optimizer.load_state_dict(state["optimizer"])
        except (
            RuntimeError,
            OSError,
            EOFError,
            LookupError,
            ValueError,
            TypeError,
            pickle.PickleError,
        ):
            raise UserError(f"{path} is damaged and cannot be resumed from; {again}.") from None
        if digest != self.cell.digest:
            raise UserError(
                f"{path} was saved with other settings ({digest}) than params.yaml now gives {self.cell.name} "
                f"({self.cell.digest}); {again}, or put the settings back."
            )
        self.progress = progress
        self.progress.sessions += 1
