"""The 16-bit kernels on torch tensors: build, check against float64, time beside SDPA."""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from harness import *

HALF_ARGS = np.dtype([("words", "i8", 48), ("scale", "f8")])


class HalfConfig:
    def __init__(self, **m):
        self.m = {**dict(HEAD_DIM=128, CAUSAL=0, HALF_FLOAT16=0, KEY_STEP=128), **m}
        self.dim = 64 if self.m["HEAD_DIM"] <= 64 else 128

    def build(self):
        o = ["-std=c++17", f"-I{HERE}"] + [f"-D{k}={v}" for k, v in self.m.items()]
        self.module = compile_cubin("attention_half.cu", o)

    def kernel(self, entry):
        f = self.module.get_function(entry)
        shared = {"forward": 128 * self.dim * 2 + 4 * self.m["KEY_STEP"] * self.dim * 2,
                  "backward_columns": 4 * 128 * self.dim + 2 * (4 * 64 * self.dim + 1024) + 128 * 128}
        shared["forward_train"] = shared["forward"]
        n = shared.get(entry, 0)
        if n:
            f.max_dynamic_shared_size_bytes = n
        return f, n


class HalfProblem:
    def __init__(self, dtype, B, H, Hkv, Nq, Nk, D, causal=False):
        self.dims, self.causal = (B, H, Hkv, Nq, Nk, D), causal
        mk = lambda h, n: torch.randn(B, h, n, D, device="cuda", dtype=dtype)
        self.q, self.k, self.v, self.g = mk(H, Nq), mk(Hkv, Nk), mk(Hkv, Nk), mk(H, Nq)
        self.out, self.gq, self.gk, self.gv = (torch.full_like(x, float("nan")) for x in (self.q, self.q, self.k, self.v))
        self.lse = torch.full((B, H, Nq), float("nan"), device="cuda")
        self.delta, self.sum = torch.full_like(self.lse, float("nan")), torch.full((B, H, Nq, D), float("nan"), device="cuda")
        words = []
        for x in (self.q, self.k, self.v, self.out, self.g, self.gq, self.gk, self.gv):
            words += [x.data_ptr(), *x.stride()]
        words += [self.lse.data_ptr(), self.delta.data_ptr(), B, H, Hkv, Nq, Nk, self.sum.data_ptr()]
        a = np.zeros(1, HALF_ARGS)
        a["words"][0], a["scale"][0] = words, 1 / math.sqrt(D)
        self.args = a[0]

    def launches(self, c, part="train"):
        B, H, Hkv, Nq, Nk, D = self.dims
        warp_rows = -(-B * H * Nq // 8)
        out = []
        if part != "backward":
            out.append((*c.kernel("forward_train" if part == "train" else "forward"), -(-Nq // 128) * B * H))
        if part == "backward":
            out.append((*c.kernel("prepare"), warp_rows))
        if part != "forward":
            out.append((*c.kernel("backward_columns"), -(-Nk // 128) * B * Hkv))
            out.append((*c.kernel("finish"), warp_rows))

        def run():
            for k, shared, grid in out:
                k((grid,), (256,), (self.args,), shared_mem=shared)
        return run

    def reference(self):
        B, H, Hkv, Nq, Nk, D = self.dims
        q, k, v, g = (x.double() for x in (self.q, self.k, self.v, self.g))
        r = H // Hkv
        k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
        s = q @ k.transpose(-1, -2) / math.sqrt(D)
        if self.causal:
            s = s.masked_fill(torch.arange(Nk, device="cuda")[None] > torch.arange(Nq, device="cuda")[:, None] + Nk - Nq, float("-inf"))
        p = torch.softmax(s, -1).nan_to_num(0)
        out = p @ v
        ds = p * (g @ v.transpose(-1, -2) - (g * out).sum(-1, keepdim=True)) / math.sqrt(D)
        fold = lambda x: x.reshape(B, Hkv, r, Nk, D).sum(2)
        return out, ds @ k, fold(ds.transpose(-1, -2) @ q), fold(p.transpose(-1, -2) @ g)

    def torch_run(self, backend):
        q, k, v = (x.detach().requires_grad_() for x in (self.q, self.k, self.v))
        def run():
            with sdpa_kernel(backend):
                o = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=self.dims[1] != self.dims[2])
            return (o, *torch.autograd.grad(o, (q, k, v), self.g))
        return run

    @staticmethod
    def errors(got, ref):
        return [float((a.double() - b).norm() / b.norm()) for a, b in zip(got, ref)]
