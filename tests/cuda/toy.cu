// Stands for a kernel; the fake GPU runs Python.
