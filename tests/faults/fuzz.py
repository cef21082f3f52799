"""Files from outside, damaged at random: what reads them must end in an answer or one sentence.

A step takes a good file, damages its text or its values, and hands it to everything that reads
such files: import, the policy files of the package, frozen snapshots, plans, keys; what was taken
in is then dispatched from and shown.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filled import choice, keep, lose, toy_problem

from autotune.cli import main
from autotune.device import local_cpu
from autotune.errors import AutotuneError
from autotune.exchange import export_file, import_file
from autotune.plan import read_plan
from autotune.registry import registry
from autotune.serving import Server
from autotune.store import open_tuning_db
from autotune_policies import PolicyError, Snapshot, load_shipped, snapshot_of, write_shipped
from autotune_policies.policy import Policy
from autotune_tuning_db import PinRow, ProblemKey

COMMANDS = (
    ("show", "--device", "all"),
    ("show", "--device", "all", "--json"),
    ("show", "--why"),
    ("show", "--failures", "--device", "all"),
    ("show", "toy_scale", "--shape", "512", "--explain"),
    ("history", "toy_scale"),
    ("db", "check"),
)
PLAN = """
[settings]
budget = "60s"
trials = 5
[[problem]]
operation = "toy_scale"
shape = "N=512:2048"
dtype = ["float32", "float64"]
reverse = true
[[problem]]
operation = "attention"
shape = {B = 2, H = 1, N = 512, D = 64}
causal = false
"""

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**70, 10**400),
    *(0.0, -0.0, 5e-324, 1e-300, 1e308, 1.5),
    *("", " ", "x", "\x00", "\x1b[2J", "\ud800", "ü", "a" * 5000, "../../etc/passwd", "nan"),
    *("[red]", "%s{0}", "inf", "1e999", "float32", "2026-01-01T00:00:00", "0001-01-01T00:00+23:59"),
    *([], {}, [[]], {"a": [1]}, [None], {"": None}, {"__class__": "x"}),
)


class Fuzz:
    """Damage after damage; everything that happens follows from the seed.

    `folder` becomes AUTOTUNE_HOME, and is filled with one policy of this device, one of another,
    a failed trial and a pin.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.choose = random.Random(seed)
        self.folder = folder
        os.environ["AUTOTUNE_HOME"] = str(folder / "first")
        for size in (256, 512, 1024):
            keep(toy_problem(size), choice("numpy", 1e-3), choice("flipped", 2e-3))
        keep(toy_problem(512), choice("numpy", 1e-3), device="cpu-other-1", family="cpu-other")
        lose(toy_problem(512), "broken", "failed", "RuntimeError: no")
        with open_tuning_db() as store:
            store.pin(PinRow("toy_scale", toy_problem(64).key, local_cpu().identity, "numpy", {}))
            rows, pins = store.policies(), store.pins()
        export_file(folder / "export.json")
        (folder / "shipped").mkdir()
        write_shipped([Policy.from_row(row) for row in rows], folder / "shipped" / "one.json")
        self.export = (folder / "export.json").read_text()
        self.shipped = (folder / "shipped" / "one.json").read_text()
        self.frozen = json.dumps(snapshot_of(rows, pins).to_json())
        self.key = toy_problem(512, reverse=True).key.text
        self.steps = 0

    def step(self) -> str:
        """One damage of one kind of file; its name. Whatever this raises is a fault."""
        self.steps += 1
        targets = (self.imports, self.ships, self.freezes, self.plans, self.keys)
        target: Callable[[], None] = self.choose.choices(targets, (6, 3, 3, 2, 4))[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target()
        return target.__name__

    def imports(self) -> None:
        home = self.folder / "second"
        os.environ["AUTOTUNE_HOME"] = str(home)
        for file in home.glob("tuning.db*"):
            file.unlink()
        file = self.folder / "damaged.json"
        file.write_bytes(self.damaged(self.export))
        try:
            import_file(file)
        except AutotuneError as error:
            one_sentence(error)
            return
        dispatched()
        if self.steps % 20 == 0:
            for command in COMMANDS:
                shown(*command)

    def ships(self) -> None:
        (self.folder / "shipped" / "one.json").write_bytes(self.damaged(self.shipped))
        policies, _ = load_shipped(self.folder / "shipped")
        dispatched(Snapshot(tuple(policies)))

    def freezes(self) -> None:
        text = self.damaged(self.frozen)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(data, dict) and self.choose.random() < 0.7:
            with contextlib.suppress(PolicyError, TypeError, KeyError, AttributeError, ValueError):
                data["digest"] = _digest_of(data)
        try:
            snapshot = Snapshot.from_json(data)
        except PolicyError as error:
            one_sentence(error)
            return
        dispatched(snapshot)

    def plans(self) -> None:
        file = self.folder / "plan.toml"
        file.write_bytes(self.noise(PLAN.encode()))
        try:
            read_plan(file)
        except AutotuneError as error:
            one_sentence(error)

    def keys(self) -> None:
        text = self.noise(self.key.encode()).decode(errors="surrogateescape")
        try:
            key = ProblemKey.parse(text)
        except ValueError:
            return
        assert key.text == text
        assert ProblemKey.parse(key.text) == key

    def damaged(self, text: str) -> bytes:
        """A value changed, now and then a few; or the text itself."""
        if self.choose.random() < 0.2:
            return self.noise(text.encode())
        document = json.loads(text)
        for _ in range(self.choose.choice((1, 1, 1, 2, 4))):
            self.change(document)
        return json.dumps(document).encode(errors="replace")

    def change(self, value: Any) -> None:
        """Changes one value somewhere inside, takes it out, doubles it, or adds one."""
        while True:
            places = list(value if isinstance(value, dict) else range(len(value)))
            if not places:
                return
            place = self.choose.choice(places)
            if isinstance(value[place], dict | list) and self.choose.random() < 0.85:
                value = value[place]
                continue
            break
        action = self.choose.randrange(6)
        if action == 0:
            del value[place]
        elif action == 1 and isinstance(value, dict):
            value[str(self.choose.choice(ODD))] = value[place]
        elif action == 1:
            value.append(value[place])
        elif action == 2 and isinstance(value[place], str):
            content = value[place].encode(errors="surrogatepass")
            value[place] = self.noise(content).decode(errors="replace")
        elif action == 3:
            value[place] = nested(self.choose.choice((5, 200, 900)))
        else:
            value[place] = self.choose.choice(ODD)

    def noise(self, content: bytes) -> bytes:
        """Bytes changed, taken out, doubled, or cut off."""
        data = bytearray(content)
        for _ in range(self.choose.choice((1, 1, 2, 8))):
            if not data:
                break
            start = self.choose.randrange(len(data))
            stop = min(len(data), start + self.choose.choice((1, 1, 4, 40)))
            data[start:stop] = self.choose.choice(
                (
                    b"",
                    bytes(data[start:stop]) * 2,
                    self.choose.randbytes(stop - start),
                    self.choose.choice((b'"', b"{", b"}", b"[" * 3000, b",", b"1e999", b"NaN")),
                )
            )
        cut = self.choose.randrange(len(data) + 1) if self.choose.random() < 0.1 else len(data)
        return bytes(data[:cut])


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def one_sentence(error: Exception) -> None:
    text = str(error)
    assert text
    assert "\n" not in text, text


def dispatched(snapshot: Snapshot | None = None) -> None:
    """Serves some problems from what was taken in."""
    server = Server()
    if snapshot is not None:
        server._snapshot = snapshot
    for size, dtype, options in (
        (512, "float32", {}),
        (700, "float64", {"deterministic": True}),
        (64, "float32", {"max_workspace": 0, "max_error": 1e-6}),
    ):
        with contextlib.suppress(AutotuneError):
            kernel = server.kernel("toy_scale", ((size,),), dtype, options)
            assert kernel.variant in ("reference", *registry._variants["toy_scale"])
            assert kernel.explain()


def shown(*words: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    assert code in (0, 1, 2), (words, code, err.getvalue())
    assert "Traceback" not in err.getvalue(), err.getvalue()
    out.getvalue().encode()
    if "--json" in words and code == 0:
        json.loads(out.getvalue())


def _digest_of(data: dict[str, Any]) -> str:
    """The digest the changed content would have, so that the change gets past it."""
    policies = tuple(Policy.from_json(policy) for policy in data["policies"])
    pins = tuple(
        PinRow(**{**pin, "problem": ProblemKey.parse(pin["problem"]) if pin["problem"] else None})
        for pin in data["pins"]
    )
    return Snapshot(policies, pins).digest
