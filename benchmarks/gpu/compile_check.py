"""Compiles every source through NVRTC to machine code for several architectures; needs no driver."""
import itertools, sys
from pathlib import Path
from cupy.cuda import nvrtc
HERE = Path(__file__).parent

def build(source, arch, macros):
    p = nvrtc.createProgram(source, "attention.cu", (), ())
    try:
        nvrtc.compileProgram(p, (f"--gpu-architecture=sm_{arch}", "-std=c++17", f"-I{HERE}", *(f"-D{k}={v}" for k, v in macros.items())))
        return len(nvrtc.getCUBIN(p))
    except nvrtc.NVRTCError:
        print(nvrtc.getProgramLog(p)[:3000]); raise
    finally:
        nvrtc.destroyProgram(p)

CASES = [
    ("attention.cu", ("80", "90", "100", "120"), dict(REAL="float", ATOMIC_GQ=1, CAUSAL=1)),
    ("attention.cu", ("80", "90", "100"), dict(REAL="double", ATOMIC_GQ=1, STEP=32, STORE_SCORES=1)),
    ("attention.cu", ("80", "120"), dict(REAL="float", STORAGE=1, HEAD_DIM=200, ROW_WARPS=2, STEP=32)),
    ("arrangements.cu", ("80", "90", "100", "120"), dict(REAL="double", ALIGNED=0, COLUMNS=4)),
    ("attention_half.cu", ("90a",), dict(HEAD_DIM=128)),
    ("attention_split.cu", ("90a",), dict(HEAD_DIM=64)),
]
if __name__ == "__main__":
    print("NVRTC", nvrtc.getVersion())
    for file, archs, macros in CASES:
        for arch in archs:
            print(file, arch, macros, build((HERE / file).read_text(), arch, macros), "bytes", flush=True)
