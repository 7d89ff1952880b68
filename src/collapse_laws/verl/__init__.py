"""The paper's trainer: verl's fully-async recipe with vLLM rollout workers and an FSDP2 learner, on 8 GPUs a run.

`overrides` turns a cell into verl's configuration, `launch` supervises one run of it, `hooks` and
`probe` are loaded inside verl's processes, `branch` joins the lines of its attempts, `ending` says
when it may end, and `adapter` makes the run record. `composition`, `config`, `hooks` and `probe`
import verl.
"""
