/* The OpenMP threads of the calling thread: pinned, asked where they are, put to memory. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Thread i goes where row i of masks says. Row i of entry takes its id, whether it failed, and the
   mask it had, of so many words. Returns the number of failures, or -1 with no thread moved where
   the caller may not run on all of the CPUs. */
int64_t enter_team(int64_t count, int64_t words, const uint64_t *masks, uint64_t *entry)
{
    int64_t failures = 0;
    if (sched_getaffinity(0, (size_t)words * 8, (cpu_set_t *)(entry + 2)) == 0)
        for (int64_t i = 0; i < count * words; i++)
            if (masks[i] & ~entry[2 + i % words])
                return -1;
#pragma omp parallel num_threads(count) reduction(+ : failures)
    {
        const int64_t i = omp_get_thread_num();
        uint64_t *row = entry + i * (words + 2);
        const size_t size = (size_t)words * 8;
        row[0] = (uint64_t)syscall(SYS_gettid);
        row[1] = sched_getaffinity(0, size, (cpu_set_t *)(row + 2)) != 0 ||
                 sched_setaffinity(0, size, (const cpu_set_t *)(masks + i * words)) != 0;
        failures += row[1] != 0;
    }
    return failures;
}

/* Undo enter_team from the calling thread; a thread that has ended since needs nothing back. */
void exit_team(int64_t count, int64_t words, const uint64_t *entry)
{
    for (int64_t i = 0; i < count; i++) {
        const uint64_t *row = entry + i * (words + 2);
        if (row[0])
            sched_setaffinity((pid_t)row[0], (size_t)words * 8, (const cpu_set_t *)(row + 2));
    }
}

/* Run `count` threads at the same time: the id of each and the CPU it is on. A thread gives up on
   the others after so many yields. */
void meet(int64_t count, int64_t patience, int64_t *ids, int64_t *cpus)
{
    int64_t arrived = 0;
#pragma omp parallel num_threads(count)
    {
        const int64_t i = omp_get_thread_num(), all = omp_get_num_threads();
        int64_t here;
        ids[i] = syscall(SYS_gettid);
#pragma omp atomic update
        arrived++;
        for (int64_t waited = 0; waited < patience; waited++) {
#pragma omp atomic read
            here = arrived;
            if (here == all)
                break;
            sched_yield();
        }
        cpus[i] = sched_getcpu();
    }
}

/* Write to every page of some memory, the i-th of `count` equal parts by thread i. */
void touch(int64_t count, int64_t size, int64_t page, volatile char *memory)
{
#pragma omp parallel for num_threads(count) schedule(static, 1)
    for (int64_t i = 0; i < count; i++) {
        const int64_t share = (size + count - 1) / count;
        const int64_t end = (i + 1) * share < size ? (i + 1) * share : size;
        for (int64_t at = i * share; at < end; at += page)
            memory[at] = 0;
    }
}
