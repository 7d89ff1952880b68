"""Whatever the bytes of a log, the answer is a result or one sentence: no traceback, no warning, no hang.

`COLLAPSE_LAWS_FUZZ=100000 pytest tests/logs/test_log_fuzz.py` runs that many inputs, each time others.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import log_variants as variants
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collapse_laws.advise.calibration import published_brackets
from collapse_laws.advise.diagnose import diagnose
from collapse_laws.advise.follow import line_format
from collapse_laws.advise.page import write_page
from collapse_laws.advise.watch import Watcher
from collapse_laws.advise.wording import as_text
from collapse_laws.commands.diagnose import finite
from collapse_laws.errors import UserError
from collapse_laws.logs import read_log
from collapse_laws.logs.csvlog import looks_like_csv

INPUTS = int(os.environ.get("COLLAPSE_LAWS_FUZZ", "2000"))
SECONDS = 20  # far above what any input of this size needs, on a busy machine too
SHARES = {"mutated": 0.5, "objects": 0.2, "lines": 0.2, "bytes": 0.1}


def fuzz(kind: str) -> settings:
    return settings(
        max_examples=max(1, round(SHARES[kind] * INPUTS)),
        deadline=None,
        derandomize="COLLAPSE_LAWS_FUZZ" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def event_file() -> bytes:
    """A TensorBoard event file, empty where TensorBoard is not installed."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        return b""
    import io

    out = io.BytesIO()
    writer = RecordWriter(out)
    writer.write(Event(wall_time=1e9, file_version="brain.Event:2").SerializeToString())
    for step, reward in enumerate(variants.REWARDS, 1):
        summary = Summary(value=[Summary.Value(tag="train/reward", simple_value=reward)])
        writer.write(Event(wall_time=1e9 + step, step=step, summary=summary).SerializeToString())
    return out.getvalue()


BASES = [*(make() for make in variants.VARIANTS.values()), event_file()]
NASTY = [
    b"\x00", b"\n", b"\r", b"\r\n", b"\xff", b"\xef\xbb\xbf", b"\x1b[31m", b"\x1b]0;", b"[0m", b"{", b"}",
    b"[", b'"', b"'", b"\\", b",", b";", b"\t", b":", b"=", b" - ", b"/", b"|", b"step:", b"step:0 - ",
    b"step:-5 - ", b" 3/7 [", b"NaN", b"nan", b"inf", b"-Infinity", b"1e308", b"1e999", b"-1e999", b"9" * 30,
    b"9" * 400, b"9" * 5000, b"1e-400", b"0", b"-1", b"1.5", b"null", b"None", b"true", b"np.float64(",
    b"tensor(", b"[" * 3000, b'{"a":' * 3000, b'{"step":' * 2000, b"(" * 200, b'"reward": 1e999',
    b'"step": 1e18', b'"step": 9223372036854775807', b'"step": 1e19', b'"step": -3', b"reward: 1e300",
    b"critic/score/mean:1e300", b"training/global_step:99999999999999999999", b"fully_async/x:1",
    b'"fully_async/x": 1,', b"__MIN", b"reward", b"Step", b"# ", b"\x1f\x8b", b":W&B", "\u2588".encode(),
    "\ud7ff\u0660".encode(),
]  # fmt: skip
pieces = st.one_of(st.sampled_from(NASTY), st.binary(max_size=6))
place = st.floats(0, 1)
mutation = st.tuples(st.sampled_from(["insert", "delete", "replace", "repeat", "swap", "cut"]), place, place, pieces)


def mutate(data: bytes, changes: list[tuple[str, float, float, bytes]]) -> bytes:
    for kind, where, length, piece in changes:
        at = int(where * len(data))
        end = min(len(data), at + int(length**4 * len(data)) + 1)
        if kind == "insert":
            data = data[:at] + piece + data[at:]
        elif kind == "delete":
            data = data[:at] + data[end:]
        elif kind == "replace":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "repeat":
            data = data[:end] + data[at:end] + data[end:]
        elif kind == "swap":
            data = data[:at] + data[end:] + data[at:end]
        else:
            data = data[:at]
    return data


numbers = st.one_of(
    st.integers(-3, 60),
    st.floats(0, 1),
    st.floats(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**53, 2**63 - 1, 2**63, 10**30, 1e18, 1e300, 1e-320, float("nan"), float("inf")]),
    st.sampled_from(["0.5", "NaN", "1e999", "", "x", None, True, [], {}]),
)
names = st.sampled_from(
    (
        "step global_step reward critic/score/mean critic/rewards/mean training/global_step actor/lr learning_rate "
        "entropy epoch data fully_async/count/current_param_version fully_async/count/stale_trajectory_processed name "
        "value metric log_history x M t lag reward_mean snapshot frac_reward_zero_std rewards/f/mean actor/ppo_kl"
    ).split()
)
objects = st.dictionaries(names, st.one_of(numbers, st.dictionaries(names, numbers, max_size=3)), max_size=6)
runs = st.lists(objects, min_size=1, max_size=12)
words = st.one_of(
    st.sampled_from(
        [
            "step:", "step=", "Step ", "reward: ", "reward=", "'reward': ", "{", "}", " - ",
            "critic/score/mean:", "actor/lr:", "\n", "\n", "\r", " 3/8 [", " 4/8 [", "(TaskRunner pid=1) ",
            "[repeated 2x across cluster]", "np.float64(", ")", "'", '"', ",", "max ", "epoch: ", "\x1b[0m",
            "step,reward\n", "train_runtime: ", "train_steps_per_second: ", "learning_rate: ", "None",
        ]
    ),
    numbers.map(str),
    st.text(max_size=4),
)  # fmt: skip
intervals = st.sampled_from([None, 1, 2, 4, 4, 7, 10**6, 2**62])


@contextmanager
def soon() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"an input took more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def one_sentence(error: UserError) -> None:
    assert "\n" not in str(error)
    assert str(error).endswith(".")


def check(data: bytes, interval: int | None, folder: Path) -> None:
    path = folder / "log"
    path.write_bytes(data)
    with soon():
        try:
            found = diagnose(read_log(path, sync_interval=interval))
            json.dumps(finite(found.to_json()), allow_nan=False)
            assert as_text(found)
            if len(data) % 50 == 0:
                write_page(folder / "page.html", found)
        except UserError as error:
            one_sentence(error)
    if len(data) % 3:
        return
    with soon():
        try:
            kind, sure = line_format(path)
            watcher = Watcher(path, kind, interval or 4, None, published_brackets(), sure=sure)
            for line in data.replace(b"\r", b"\n").split(b"\n"):
                watcher.feed(line.decode("utf-8", "replace"))
                if watcher.collapsed:
                    break
            watcher.finish()
        except UserError as error:
            one_sentence(error)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@fuzz("mutated")
@given(st.lists(st.sampled_from(BASES), min_size=1, max_size=2), st.lists(mutation, max_size=5), intervals)
def test_mutated_and_joined_samples(folder: Path, bases: list[bytes], changes: list, interval: int | None) -> None:
    check(mutate(b"".join(bases), changes), interval, folder)


@fuzz("objects")
@given(runs, st.sampled_from(["lines", "list", "columns", "history", "numbered"]), intervals)
def test_odd_objects(folder: Path, run: list[dict], shape: str, interval: int | None) -> None:
    if shape == "numbered":
        run = [{"step": step, **row} for step, row in enumerate(run * 3)]
    if shape == "columns":
        text = json.dumps({key: [row.get(key) for row in run] for key in run[0]})
    elif shape in ("list", "history"):
        text = json.dumps(run if shape == "list" else {"log_history": run}, indent=1)
    else:
        text = "\n".join(map(json.dumps, run))
    check(text.encode(), interval, folder)


@fuzz("lines")
@given(st.lists(words, max_size=60), intervals)
def test_odd_lines(folder: Path, text: list[str], interval: int | None) -> None:
    check("".join(text).encode("utf-8", "replace"), interval, folder)


@fuzz("bytes")
@given(st.lists(pieces, max_size=30), intervals)
def test_any_bytes(folder: Path, parts: list[bytes], interval: int | None) -> None:
    check(b"".join(parts), interval, folder)


def test_an_open_quotation_mark_is_no_table():
    assert not looks_like_csv(['step,"reward', "1,0.5", "2,0.6"])
