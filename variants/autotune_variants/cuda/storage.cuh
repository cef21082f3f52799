// What tensors hold, and what is computed in.
#pragma once
#ifndef STORAGE
#define STORAGE 0  // tensors hold 0: double, 1: bfloat16, 2: float16, 3: float
#endif

#if STORAGE == 0
typedef double Data, Real;
#elif STORAGE == 3
typedef float Data, Real;
#else
typedef unsigned short Data;
typedef float Real;
#endif

#include "conversions.cuh"
