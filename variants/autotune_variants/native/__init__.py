"""Variants in C and in Fortran: each arrangement once in either, under OpenMP."""
