"""Builds, checks and times the attention kernels beside PyTorch; prints a table and writes JSON under $OUT."""

import itertools
import json
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cupy as cp
import numpy as np

HERE = Path(__file__).parent
OUT = Path(os.environ.get("OUT", "/tmp"))
ARGS = np.dtype([("words", "i8", 50), ("scale", "f8")])
TORCH = {}


def compile_cubin(source, options, arch="sm_90a"):
    """A RawModule from NVRTC at an architecture that CuPy's own option does not reach (sm_90a)."""
    from cupy.cuda import nvrtc
    import tempfile
    program = nvrtc.createProgram((HERE / source).read_text(), source, (), ())
    try:
        nvrtc.compileProgram(program, (f"--gpu-architecture={arch}", *options))
        cubin = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError:
        print(nvrtc.getProgramLog(program)[:2000])
        raise
    finally:
        nvrtc.destroyProgram(program)
    file = tempfile.NamedTemporaryFile(suffix=".cubin", delete=False)
    file.write(cubin)
    file.close()
    return cp.RawModule(path=file.name)


class Config:
    """One compilation: macros by name."""

    def __init__(self, **macros):
        base = dict(REAL="double", HEAD_DIM=64, ROW_WARPS=4, SPLIT_WARPS=2, STEP=64, STAGES=2, CAUSAL=0, ALIGNED=1,
                    D_CHUNK=64, ATOMIC_GQ=0, MIN_BLOCKS=1, HOLD_QUERIES=0, STORAGE=0, SPREAD_COPIES=0, STORE_SCORES=0)
        self.m = {**base, **macros}
        self.size = 8 if self.m["REAL"] == "double" else 4
        d = self.m["HEAD_DIM"]
        self.chunk = min(self.m["D_CHUNK"], -(-d // 16) * 16)
        self.chunks = -(-d // self.chunk)
        self.dim = self.chunks * self.chunk
        self.stored = 2 if self.m["STORAGE"] else self.size
        self.block = 16 * self.m["ROW_WARPS"]
        self.threads = 32 * self.m["ROW_WARPS"] * self.m["SPLIT_WARPS"]
        self.module = None

    def options(self, arch=None):
        o = ["-std=c++17", f"-I{HERE}", "-DNDEBUG"] + [f"-D{k}={v}" for k, v in self.m.items()]
        return tuple(o + ([f"-arch={arch}"] if arch else []))

    def shared(self, entry):
        m, s = self.m, self.size
        up = lambda x: -(-x // 128) * 128
        pitch = up(self.dim * self.stored)
        split = (m["SPLIT_WARPS"] - 1) * m["ROW_WARPS"] * 16 * self.chunk * s
        table, share = 1024 if s == 8 else 0, m["STEP"] // m["SPLIT_WARPS"]
        ring = m["SPLIT_WARPS"] * m["STAGES"] * 2 * share * pitch
        fwd = max(self.block * pitch + ring + table, split + m["SPLIT_WARPS"] * m["ROW_WARPS"] * 32 * s)
        col = 2 * self.block * pitch + ring + m["SPLIT_WARPS"] * m["STAGES"] * up(3 * share * s) + table
        col = max(col + (m["SPLIT_WARPS"] * self.block * up(share * s) if m["ATOMIC_GQ"] else 0), split)
        row = max(2 * self.block * pitch + ring + table, split)
        return {"forward": fwd, "forward_train": fwd, "backward_columns": col, "backward_rows": row,
                "backward_both": max(col, row)}[entry]

    def build(self):
        self.module = cp.RawModule(code=(HERE / "attention.cu").read_text(), options=self.options(), backend="nvrtc")
        self.module.compile()
        return self

    def kernel(self, entry):
        f = self.module.get_function(entry)
        if entry != "prepare":
            f.max_dynamic_shared_size_bytes = self.shared(entry)
        return f

    def label(self):
        m = self.m
        return (f"{m['ROW_WARPS']}x{m['SPLIT_WARPS']} step{m['STEP']}x{m['STAGES']} chunk{self.chunk}"
                f"{' atomic' if m['ATOMIC_GQ'] else ''}"
                f"{' mb2' if m['MIN_BLOCKS'] == 2 else ''}{' held' if m['HOLD_QUERIES'] else ''}{' spread' if m['SPREAD_COPIES'] else ''}{' stored' if m['STORE_SCORES'] else ''}")


class Problem:
    def __init__(self, dtype, B, H, Hkv, Nq, Nk, D, causal=False, seed=0, gain=1.0, layout="bhnd"):
        self.dtype, self.dims, self.causal = np.dtype(dtype), (B, H, Hkv, Nq, Nk, D), causal
        rng = cp.random.default_rng(seed)

        def make(heads, n, value=True):
            if layout == "bhnd":
                x = cp.empty((B, heads, n, D), self.dtype)
            elif layout == "bnhd":
                x = cp.empty((B, n, heads, D), self.dtype).transpose(0, 2, 1, 3)
            else:  # strided everywhere
                x = cp.empty((B, heads, D, n + 3), self.dtype).transpose(0, 1, 3, 2)[:, :, :n]
            x[...] = rng.standard_normal((B, heads, n, D)).astype(self.dtype) * gain if value else cp.nan
            return x

        self.q, self.k, self.v, self.g = make(H, Nq), make(Hkv, Nk), make(Hkv, Nk), make(H, Nq)
        self.out, self.gq, self.gk, self.gv = make(H, Nq, 0), make(H, Nq, 0), make(Hkv, Nk, 0), make(Hkv, Nk, 0)
        self.lse, self.delta = cp.full((B, H, Nq), cp.nan, self.dtype), cp.full((B, H, Nq), cp.nan, self.dtype)
        self.shift, self.inverse = cp.full_like(self.lse, cp.nan), cp.full_like(self.lse, cp.nan)
        self.scale = 1 / math.sqrt(D)
        words = []
        for x in (self.q, self.k, self.v, self.out, self.g, self.gq, self.gk, self.gv):
            words += [x.data.ptr, *(s // x.itemsize for s in x.strides)]
        words += [self.lse.data.ptr, self.delta.data.ptr, B, H, Hkv, Nq, Nk, 0, self.shift.data.ptr, self.inverse.data.ptr]
        a = np.zeros(1, ARGS)
        a["words"][0], a["scale"][0] = words, self.scale
        self.args = a[0]

    def poison(self):
        for x in (self.out, self.gq, self.gk, self.gv, self.lse, self.delta, self.shift, self.inverse):
            x.fill(cp.nan)

    def reference(self, dtype=np.float64):
        B, H, Hkv, Nq, Nk, D = self.dims
        q, k, v, g = (x.astype(dtype) for x in (self.q, self.k, self.v, self.g))
        r = H // Hkv
        k, v = cp.repeat(k, r, 1), cp.repeat(v, r, 1)
        s = cp.matmul(q, k.swapaxes(-1, -2)) * dtype(self.scale)
        if self.causal:
            mask = cp.arange(Nk)[None] <= cp.arange(Nq)[:, None] + Nk - Nq
            s = cp.where(mask, s, -cp.inf).astype(dtype)
        m = s.max(-1, keepdims=True)
        m = cp.where(cp.isinf(m), 0, m).astype(dtype)
        p = cp.exp(s - m)
        z = p.sum(-1, keepdims=True)
        p = p / cp.where(z == 0, 1, z).astype(dtype)
        out = cp.matmul(p, v)
        gv = cp.matmul(p.swapaxes(-1, -2), g)
        delta = (g * out).sum(-1, keepdims=True)
        ds = p * (cp.matmul(g, v.swapaxes(-1, -2)) - delta) * dtype(self.scale)
        gq, gk = cp.matmul(ds, k), cp.matmul(ds.swapaxes(-1, -2), q)
        fold = lambda x: x.reshape(B, Hkv, r, Nk, D).sum(2)
        return out, gq, fold(gk), fold(gv)

    def errors(self, ref):
        rel = lambda a, b: float(cp.linalg.norm((a - b).ravel()) / max(float(cp.linalg.norm(b.ravel())), 1e-300))
        return [rel(x.astype(np.float64), y.astype(np.float64)) for x, y in zip((self.out, self.gq, self.gk, self.gv), ref)]


class Plan:
    """A training step: a forward module, a backward module, one sweep (atomic) or two, joined or not."""

    def __init__(self, fwd, bwd, kind, fused=True):
        self.fwd, self.bwd, self.kind, self.fused = fwd, bwd, kind, fused

    def launches(self, p, part="train"):
        B, H, Hkv, Nq, Nk, D = p.dims
        f, b = self.fwd, self.bwd
        if f.m["STORE_SCORES"] and not hasattr(p, "scores"):
            p.scores = cp.full((B, H, Nq, -(-Nk // 8) * 8), cp.nan, p.dtype)
            p.args["words"][47] = p.scores.data.ptr
        fused = self.fused and f.chunks == 1 and f.m["ATOMIC_GQ"] == b.m["ATOMIC_GQ"]
        out = []
        if part in ("train", "forward"):
            e = "forward_train" if fused and part == "train" else "forward"
            out.append((f.kernel(e), -(-Nq // f.block) * B * H * f.chunks, f.threads, f.shared(e)))
        if part in ("train", "backward"):
            if not (fused and part == "train"):
                out.append((b.kernel("prepare"), -(-B * H * Nq // 8), 256, 0))
            col, row = -(-Nk // b.block) * B * Hkv * b.chunks, -(-Nq // b.block) * B * H * b.chunks
            if self.kind == "atomic":
                out.append((b.kernel("backward_columns"), col, b.threads, b.shared("backward_columns")))
            elif self.kind == "both":
                out.append((b.kernel("backward_both"), col + row, b.threads, b.shared("backward_both")))
            else:
                out.append((b.kernel("backward_columns"), col, b.threads, b.shared("backward_columns")))
                out.append((b.kernel("backward_rows"), row, b.threads, b.shared("backward_rows")))

        def run():
            for k, grid, threads, shared in out:
                k((grid,), (threads,), (p.args,), shared_mem=shared)
        return run


FLUSH = None


def timed(run, samples=9, warm=2):
    """Median milliseconds by events, cold L2."""
    global FLUSH
    if FLUSH is None:
        FLUSH = cp.empty(1 << 26, np.float32)
    times = []
    for i in range(samples + warm):
        FLUSH.fill(i)
        a, b = cp.cuda.Event(), cp.cuda.Event()
        a.record()
        run()
        b.record()
        b.synchronize()
        if i >= warm:
            times.append(cp.cuda.get_elapsed_time(a, b))
    return float(np.median(times))


def graphed(run, repeats=20, samples=5):
    """Median milliseconds of one run inside a CUDA graph of `repeats`."""
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        run()
        stream.synchronize()
        stream.begin_capture()
        for _ in range(repeats):
            run()
        graph = stream.end_capture()
        graph.launch()
        times = []
        for _ in range(samples):
            a, b = cp.cuda.Event(), cp.cuda.Event()
            a.record()
            graph.launch()
            b.record()
            b.synchronize()
            times.append(cp.cuda.get_elapsed_time(a, b) / repeats)
    return float(np.median(times))


def build_all(configs):
    start = time.time()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda c: c.build(), configs))
    print(f"built {len(configs)} in {time.time() - start:.1f} s", flush=True)


def torch_times(dtype, B, H, Hkv, N, D, causal, backends, graph=False):
    """Best backend's forward+backward, milliseconds: eager, and optionally under graph replay."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    t = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
    mk = lambda h: torch.randn(B, h, N, D, device="cuda", dtype=t, requires_grad=True)
    q, k, v = mk(H), mk(Hkv), mk(Hkv)
    g = torch.randn(B, H, N, D, device="cuda", dtype=t)
    best = {}
    flush = torch.empty(1 << 26, device="cuda", dtype=torch.float32)
    for name in backends:
        backend = getattr(SDPBackend, {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION",
                                       "cudnn": "CUDNN_ATTENTION"}[name])
        def run():
            with sdpa_kernel(backend):
                o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=H != Hkv)
            torch.autograd.grad(o, (q, k, v), g)
        try:
            times = []
            for i in range(11):
                flush.fill_(i)
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record(); run(); b.record(); b.synchronize()
                if i > 2:
                    times.append(a.elapsed_time(b))
            best[name] = float(np.median(times))
            if graph:
                s = torch.cuda.Stream()
                s.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(s):
                    run(); run()
                torch.cuda.current_stream().wait_stream(s)
                torch.cuda.synchronize()
                gr = torch.cuda.CUDAGraph()
                with torch.cuda.graph(gr):
                    for _ in range(10):
                        run()
                gr.replay()
                times = []
                for _ in range(5):
                    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    a.record(); gr.replay(); b.record(); b.synchronize()
                    times.append(a.elapsed_time(b) / 10)
                best[name + "-graph"] = float(np.median(times))
        except Exception as e:
            best[name] = None
            print("torch", name, dtype, N, repr(e)[:120])
    return best


def flops(p):
    B, H, Hkv, Nq, Nk, D = p.dims
    return 4 * B * H * Nq * Nk * D
