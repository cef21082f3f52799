// What rmsnorm's instructions.cuh has in PTX.
#pragma once
#if STORAGE == 1
inline Real wide(Data x) { return from_bfloat16(x); }
inline Data narrow(Real x) { return static_cast<Data>(to_bfloat16(x)); }
#else
inline Real wide(Data x) { return x; }
inline Data narrow(Real x) { return x; }
#endif
