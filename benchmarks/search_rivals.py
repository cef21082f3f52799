"""Other tuners on a recording: Kernel Tuner's strategies and Optuna's samplers, as they come.

Each gives the fraction over the optimum after every evaluation. An evaluation is a legal config
that was not evaluated before, failed or not, as Kernel Tuner's simulation mode counts; to Optuna
"as it comes" illegal and repeated trials are charged too.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import random
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from autotune.replay import Recording
from autotune.replay.recording import ALONE

KERNEL_TUNER = (
    "random_sample",
    "genetic_algorithm",
    "adaptive_tabu_greywolf",
    "hybrid_vndx",
    "pso",
    "simulated_annealing",
    "bayes_opt",
    "diff_evo",
    "greedy_ils",
    "mls",
    "firefly_algorithm",
    "dual_annealing",
)
OPTUNA = ("optuna_random", "optuna_tpe")

Curve = list[float]


def kernel_tuner(
    recording: Recording, about: dict[str, Any], cache: Path, strategy: str, seed: int, budget: int
) -> tuple[Curve, float]:
    """One run through the simulation mode; the curve and the tuner's own seconds."""
    import kernel_tuner
    from kernel_tuner import util
    from kernel_tuner.interface import strategy_map

    if not hasattr(util.read_cache, "cache_info"):  # reads the file once in each process
        util.read_cache = functools.lru_cache(maxsize=1)(util.read_cache)
    random.seed(seed)
    np.random.seed(seed)
    names = [strategy, f"gen_{strategy}"]
    known = next(name for name in names if name in strategy_map)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            about["kernel_name"],
            "",
            (1,),
            [],
            about["params"],
            restrictions=about["constraints"] or None,
            strategy=known,
            strategy_options={"max_fevals": budget},
            cache=str(cache),
            simulation_mode=True,
            quiet=True,
            seed=seed,
        )
    spent = 1e-3 * sum(r.get("strategy_time", 0) + r.get("framework_time", 0) for r in results)
    seen: dict[tuple[Any, ...], float] = {}
    for result in results:
        config = tuple(result[name] for name in about["params"])
        milliseconds = math.inf if "__error__" in result else float(result["time"])
        seen.setdefault(config, milliseconds / 1e3)
    return _curve(list(seen.values()), recording.best, budget), spent


def write_cache(recording: Recording, about: dict[str, Any], path: Path) -> None:
    """The recording as a cache file of Kernel Tuner."""
    home = recording.space.variants[0]
    entries = {}
    for row, seconds in enumerate(recording.seconds[ALONE].tolist()):
        config = {name: values[0] for name, values in about["params"].items()}
        config.update(home.candidate(row).config)
        key = ",".join(str(value) for value in config.values())
        failed = math.isnan(seconds)
        entries[key] = {**config, "time": "RuntimeFailedConfig" if failed else 1e3 * seconds}
    document = {
        "device_name": recording.device or "recorded",
        "kernel_name": about["kernel_name"],
        "problem_size": [1],
        "tune_params_keys": list(about["params"]),
        "tune_params": about["params"],
        "objective": "time",
        "cache": entries,
    }
    path.write_text(json.dumps(document))


def optuna_as_it_comes(
    recording: Recording, strategy: str, seed: int, budget: int
) -> tuple[Curve, float]:
    """A plain study over the product; illegal and failed trials fail, repeats are charged."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {
        "optuna_random": optuna.samplers.RandomSampler,
        "optuna_tpe": optuna.samplers.TPESampler,
    }
    home = recording.space.variants[0]
    study = optuna.create_study(sampler=samplers[strategy](seed=seed))
    times: list[float] = []

    def objective(trial: Any) -> float:
        config = {
            axis.name: axis.values[trial.suggest_int(axis.name, 0, len(axis.values) - 1)]
            if axis.ordered
            else trial.suggest_categorical(axis.name, axis.values)
            for axis in home.axes
        }
        row = home.row(config)
        seconds = math.nan if row is None else float(recording.seconds[ALONE][row])
        times.append(seconds if seconds == seconds else math.inf)
        return seconds

    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study.optimize(objective, n_trials=budget)
    return _curve(times, recording.best, budget), time.process_time() - started


def _curve(times: list[float], best: float, budget: int) -> Curve:
    """Best so far over the optimum; what ended early keeps its last."""
    found = np.minimum.accumulate(np.array(times[:budget] or [math.inf])) / best
    return [*found.tolist(), *[float(found[-1])] * (budget - len(found))]
