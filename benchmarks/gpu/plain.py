"""The study's arrangements: launches of arrangements.cu."""
from harness import *

PLAIN_ARGS = np.dtype([("words", "i8", 50), ("scale", "f8"), ("extra", "i8", 3)])
FORMS = {
    "separate": ["clear", "forward_rows", "value_columns", "backward_rows_atomic"],
    "separate, no atomics": ["forward_rows", "value_columns", "backward_rows_store", "key_columns"],
    "v2": ["clear", "fused_rows"],
    "v3": ["clear", "forward_rows", "value_columns", "gradient_rows", "query_key_rows"],
    "v4": ["forward_rows", "value_columns", "gradient_rows", "query_rows", "key_columns"],
}
SCRATCH = {"fused_rows", "backward_rows_atomic"}


class Plain:
    def __init__(self, **m):
        self.m = {**dict(REAL="double", HEAD_DIM=64, CAUSAL=0, ALIGNED=0, COLUMNS=1, ROW_THREADS=128), **m}

    def build(self):
        o = ["-std=c++17", f"-I{HERE}"] + [f"-D{k}={v}" for k, v in self.m.items()]
        self.module = cp.RawModule(code=(HERE / "arrangements.cu").read_text(), options=tuple(o), backend="nvrtc")
        self.module.compile()

    def launches(self, p, form):
        B, H, Hkv, Nq, Nk, D = p.dims
        blocks = min(B * H * Nq, 132 * 16)
        if not hasattr(p, "matrices"):
            p.matrices = [cp.empty((B, H, Nq, Nk), p.dtype) for _ in range(2)] + [cp.empty((132 * 16, 2, Nk), p.dtype)]
        a = np.zeros(1, PLAIN_ARGS)
        a["words"][0], a["scale"][0] = p.args["words"], p.args["scale"]
        a["extra"][0] = [x.data.ptr for x in p.matrices]
        args = a[0]
        columns = -(-Nk // self.m["COLUMNS"]) * B * Hkv
        plan = [(self.module.get_function(e), blocks if e in SCRATCH or e == "clear" else columns if e.endswith("columns") else B * H * Nq)
                for e in FORMS[form]]

        def run():
            for k, grid in plan:
                k((grid,), (self.m["ROW_THREADS"],), (args,))
        return run
