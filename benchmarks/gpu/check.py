"""Correctness against float64 over odd shapes, with shift and inverse instead of lse."""
from split import *
A = dict(ATOMIC_GQ=1)
cases = [("double", dict(STEP=96, SPLIT_WARPS=3, STORE_SCORES=1, **A), dict(STEP=32, STORE_SCORES=1, **A)), ("double", dict(STEP=64, STORE_SCORES=1), dict(STEP=64, STORE_SCORES=1)),
         ("double", dict(STEP=96, SPLIT_WARPS=3, **A), dict(STEP=32, SPREAD_COPIES=1, **A)), ("double", dict(STEP=96, SPLIT_WARPS=3), dict(STEP=64)),
         ("float", dict(STEP=128, STORE_SCORES=1, **A), dict(STEP=64, STORE_SCORES=1, **A)), ("float", dict(STEP=128), dict(STEP=64))]
pairs = [(Config(REAL=r, **f), Config(REAL=r, **b)) for r, f, b in cases]
odd = [Config(CAUSAL=1, STORE_SCORES=1, STEP=32, **A), Config(CAUSAL=1), Config(HEAD_DIM=40, ALIGNED=0, STORE_SCORES=1, STEP=32, **A), Config(REAL="float", CAUSAL=1, **A), Config(REAL="float", HEAD_DIM=80, D_CHUNK=80, STEP=32, ROW_WARPS=2, ALIGNED=0, **A)]
splits = {k: Split(**v) for k, v in {"": {}, "c": dict(CAUSAL=1), "40": dict(HEAD_DIM=40, VECTOR_GQ=0)}.items()}
build_all([c for p in pairs for c in p] + odd + list(splits.values()))
def plain_errors(p, ref):
    return [float(cp.linalg.norm((a - b).ravel()) / cp.linalg.norm(b.ravel())) for a, b in zip(p.reference(p.dtype.type), ref)] if p.dtype == np.float32 else []
for c, dims, layout in zip(odd, ((1, 2, 1, 200, 329, 64), (1, 2, 1, 329, 200, 64), (2, 2, 2, 65, 127, 40), (1, 2, 1, 329, 200, 64), (1, 2, 1, 100, 100, 80)), ("bnhd", "bhnd", "odd", "bhnd", "odd")):
    p = Problem(np.float64 if c.size == 8 else np.float32, *dims, bool(c.m["CAUSAL"]), layout=layout); ref = p.reference()
    for fused in (True, False):
        if c.m["STORE_SCORES"] and not fused: continue
        p.poison(); Plan(c, c, "atomic" if c.m["ATOMIC_GQ"] else "both", fused).launches(p)(); cp.cuda.Device().synchronize()
        print("errors", c.label(), dims, " ".join(f"{x:.1e}" for x in p.errors(ref)))
for key, dims, causal, layout, gain in (("", (2, 2, 1, 300, 333, 64), 0, "bhnd", 1), ("c", (1, 2, 1, 329, 200, 64), 1, "bnhd", 1), ("40", (1, 2, 2, 65, 127, 40), 0, "odd", 1), ("", (1, 1, 1, 500, 500, 64), 0, "bhnd", 30.0), ("", (1, 1, 1, 500, 500, 64), 0, "bhnd", 1e-4)):
    p = Problem(np.float32, *dims, bool(causal), layout=layout, gain=gain); ref = p.reference(); c = splits[key]
    p.poison(); c.launches(p)(); cp.cuda.Device().synchronize()
    print("split", key, dims, gain, " ".join(f"{x:.1e}" for x in p.errors(ref)), "plain", " ".join(f"{x:.1e}" for x in plain_errors(p, ref)), flush=True)
    p.poison(); c.launches(p, "forward")(); c.launches(p, "backward")(); cp.cuda.Device().synchronize()
    print("   apart", " ".join(f"{x:.1e}" for x in p.errors(ref)))
for f, b in pairs:
    dt = np.float64 if f.size == 8 else np.float32
    for gain in (1, 30):
        p = Problem(dt, 2, 2, 1, 300, 333, 64, gain=gain); ref = p.reference()
        p.poison(); Plan(f, b, "atomic" if b.m["ATOMIC_GQ"] else "both").launches(p)(); cp.cuda.Device().synchronize()
        print("errors", gain, f.label(), b.label(), " ".join(f"{x:.1e}" for x in p.errors(ref)), "plain", " ".join(f"{x:.1e}" for x in plain_errors(p, ref)))
    for N in (4096, 8192, 16384):
        p = Problem(dt, 2, 1, 1, N, N, 64); Fl = flops(p)
        tt = timed(Plan(f, b, "atomic" if b.m["ATOMIC_GQ"] else "both").launches(p), 5, 2)
        k, grid = f.kernel("forward_train"), -(-N // f.block) * 2
        tf = timed(lambda: k((grid,), (f.threads,), (p.args,), shared_mem=f.shared("forward_train")), 5, 1)
        print(f"{f.m['REAL']:6s} N={N:5d} [{f.label()}] [{b.label()}] forward_train {tf:.3f} ms train {tt:.3f} ms {3.5*Fl/tt/1e9:.1f} TF", flush=True)
        del p
for N in (2048, 4096, 8192, 16384):
    p = Problem(np.float32, 2, 1, 1, N, N, 64)
    print("split N", N, timed(splits[""].launches(p), 5, 2), flush=True)
