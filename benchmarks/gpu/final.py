"""Ours beside torch in one run: forward + backward, best of a few configs a shape."""
from half_harness import *
from split import Split
A = dict(ATOMIC_GQ=1)
f64 = {"1x8": (dict(ROW_WARPS=1, SPLIT_WARPS=8, STEP=64, STORE_SCORES=1),) * 2, "2x4": (dict(ROW_WARPS=2, SPLIT_WARPS=4, STEP=64, STORE_SCORES=1, **A),) * 2,
       "big": (dict(STEP=96, SPLIT_WARPS=3, STORE_SCORES=1, **A), dict(STEP=32, STORE_SCORES=1, **A)), "recompute": (dict(STEP=96, SPLIT_WARPS=3, **A), dict(STEP=32, SPREAD_COPIES=1, **A)),
       "two sweeps": (dict(STEP=64, STORE_SCORES=1),) * 2}
f32 = {"1x8": (dict(REAL="float", ROW_WARPS=1, SPLIT_WARPS=8, STEP=128),) * 2, "1x4": (dict(REAL="float", ROW_WARPS=1, SPLIT_WARPS=4, STEP=64, **A),) * 2,
       "two sweeps": (dict(REAL="float", STEP=128), dict(REAL="float", STEP=64))}
b16 = {"1x8": (dict(REAL="float", STORAGE=1, ROW_WARPS=1, SPLIT_WARPS=8, STEP=128),) * 2, "1x4": (dict(REAL="float", STORAGE=1, ROW_WARPS=1, SPLIT_WARPS=4, STEP=128),) * 2}
C = {}
def get(m):
    key = tuple(sorted(m.items()))
    return C.setdefault(key, Config(**m))
plans = {d: {n: Plan(get(f), get(b), "atomic" if b.get("ATOMIC_GQ") else "both") for n, (f, b) in t.items()} for d, t in (("float64", f64), ("float32", f32), ("bfloat16", b16))}
split, half = Split(), {64: HalfConfig(HEAD_DIM=64), 128: HalfConfig()}
build_all(list(C.values()) + [split, *half.values()])
rows = []
def as_problem(p):
    a = np.zeros(1, ARGS)
    extra = [torch.empty_like(p.lse) for _ in range(2)]
    a["words"][0], a["scale"][0] = [*p.args["words"][:47], 0, extra[0].data_ptr(), extra[1].data_ptr()], p.args["scale"]
    q = Problem.__new__(Problem); q.args, q.dims, q.keep = a[0], p.dims, extra
    return q
def row(dtype, B, H, N, D, runs, torch_best):
    small = N <= 1024
    t = {n: (timed(r, 7, 2), graphed(r, 10, 3) if small else 0) for n, r in runs.items()}
    name = min(t, key=lambda n: t[n][1 if small else 0])
    eager = min(v for k, v in torch_best.items() if v and not k.endswith("graph"))
    graphs = [v for k, v in torch_best.items() if v and k.endswith("graph")]
    line = f"{dtype:9s} B={B} H={H} N={N:5d} D={D:3d} {name:10s} {t[name][0]:.4f} ms  torch {eager:.3f}  ratio {t[name][0]/eager:.2f}"
    if small and graphs: line += f"  graph {t[name][1]:.4f} torch {min(graphs):.4f} ratio {t[name][1]/min(graphs):.2f}"
    print(line + "   all " + " ".join(f"{n} {v[1 if small else 0]:.4f}" for n, v in t.items()), flush=True)
    rows.append((dtype, B, H, N, D, t, torch_best))
for N in (128, 512, 1024, 2048, 4096, 8192, 16384):
    names = ["1x8", "2x4"] if N <= 2048 else ["big", "recompute", "two sweeps"]
    p = Problem(np.float64, 2, 1, 1, N, N, 64)
    row("float64", 2, 1, N, 64, {n: plans["float64"][n].launches(p) for n in names}, torch_times("float64", 2, 1, 1, N, 64, False, ["math"], graph=N <= 1024))
    p = Problem(np.float32, 2, 1, 1, N, N, 64)
    runs = {n: plans["float32"][n].launches(p) for n in (["1x8", "1x4"] if N <= 2048 else ["two sweeps"])}
    if N >= 1024: runs["split"] = split.launches(p)
    row("float32", 2, 1, N, 64, runs, torch_times("float32", 2, 1, 1, N, 64, False, ["math", "efficient"], graph=N <= 1024))
    p = HalfProblem(torch.bfloat16, 2, 1, 1, N, N, 64); q = as_problem(p)
    runs = {n: plans["bfloat16"][n].launches(q) for n in b16} if N <= 2048 else {}
    if N >= 1024: runs["wgmma"] = p.launches(half[64])
    row("bfloat16", 2, 1, N, 64, runs, torch_times("bfloat16", 2, 1, 1, N, 64, False, ["flash", "cudnn"], graph=N <= 1024))
for N in (4096, 8192):
    p = HalfProblem(torch.bfloat16, 2, 16, 16, N, N, 128)
    row("bfloat16", 2, 16, N, 128, {"wgmma": p.launches(half[128])}, torch_times("bfloat16", 2, 16, 16, N, 128, False, ["cudnn"]))
(OUT / "final.json").write_text(json.dumps(rows))
