"""float32 on split float16 operands: launches of attention_split.cu."""
from harness import *

SPLIT_ARGS = np.dtype([("words", "i8", 51), ("scale", "f8")])


class Split:
    def __init__(self, **m):
        self.m = {**dict(HEAD_DIM=64, CAUSAL=0, KEY_STEP=128, VECTOR_GQ=1), **m}

    def build(self):
        o = ["-std=c++17", f"-I{HERE}"] + [f"-D{k}={v}" for k, v in self.m.items()]
        self.module = compile_cubin("attention_split.cu", o)

    def launches(self, p, part="train"):
        B, H, Hkv, Nq, Nk, D = p.dims
        if not hasattr(p, "planes"):
            p.maxima = cp.full((4, B * H, 2, 64), cp.nan, np.float32)
            p.planes = cp.full((2 * 64 * 2 * B * (H * Nq + Hkv * Nk),), cp.nan, np.float16)
        a = np.zeros(1, SPLIT_ARGS)
        a["words"][0] = [*p.args["words"][:47], p.maxima.data.ptr, p.shift.data.ptr, p.inverse.data.ptr, p.planes.data.ptr]
        a["scale"][0] = p.args["scale"]
        args = a[0]
        pieces = 2 * B * (H + Hkv) * 64
        forward, backward = 2 * 128 * 128 + 8 * self.m["KEY_STEP"] * 128, 4 * 128 * 128 + 2 * (4 * 64 * 128 + 1024) + 4 * 128 * 64
        plan = [("measure", pieces, 0), ("split", pieces, 0)]
        if part != "backward":
            plan.append(("forward_train" if part == "train" else "forward", -(-Nq // 128) * B * H, forward))
        if part == "backward":
            plan.append(("prepare", -(-B * H * Nq // 8), 0))
        if part != "forward":
            plan.append(("backward_columns", -(-Nk // 128) * B * Hkv, backward))
        out = []
        for name, grid, shared in plan:
            f = self.module.get_function(name)
            if shared:
                f.max_dynamic_shared_size_bytes = shared
            out.append((f, grid, shared))

        def run():
            for f, grid, shared in out:
                f((grid,), (256,), (args,), shared_mem=shared)
        return run
