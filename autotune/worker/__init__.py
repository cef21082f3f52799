"""The measuring process: started fresh, given jobs, killed when it hangs."""
