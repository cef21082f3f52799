/* A disk that misbehaves, for the processes it is loaded into (LD_PRELOAD): what lies under FAULT_ROOT

   fails as FAULT says; everything else is left alone.

     FAULT=full    writes beyond FAULT_BYTES in all end with ENOSPC
     FAULT=quota   the same with EDQUOT
     FAULT=eio     the FAULT_BYTES-th write and every one after it end with EIO
     FAULT=short   the FAULT_BYTES-th write writes half of what it was given; the next is refused
     FAULT=slow    every write takes FAULT_BYTES microseconds
     FAULT=fsync   every sync ends with EIO
     FAULT=nolock  no file can be locked (ENOLCK), as on some network mounts
     FAULT=noshm   no file can be mapped for sharing, as on others
     FAULT=remote  nolock and noshm together
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *root, *fault;
static long limit, written, writes;

/* Reads the variables anew and starts to count from zero. */
__attribute__((constructor)) void fault_start(void) {
    written = writes = 0;
    root = getenv("FAULT_ROOT");
    fault = getenv("FAULT");
    limit = getenv("FAULT_BYTES") ? atol(getenv("FAULT_BYTES")) : 0;
}

static int is(const char *name) { return fault && strcmp(fault, name) == 0; }

static int concerns(int descriptor) {
    char link[64], path[4096];
    if (!root || !fault) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, root, strlen(root)) == 0;
}

/* How many bytes of a write may go through; -1 with errno for none. */
static ssize_t admitted(int descriptor, size_t count) {
    if (!concerns(descriptor)) return (ssize_t)count;
    if (is("slow")) usleep((useconds_t)limit);
    long number = __sync_add_and_fetch(&writes, 1);
    if (is("eio") && number >= limit) {
        errno = EIO;
        return -1;
    }
    if (is("short") && number == limit) return count > 1 ? (ssize_t)(count / 2) : (ssize_t)count;
    if (is("short") && number == limit + 1) {
        errno = ENOSPC;
        return -1;
    }
    if ((is("full") || is("quota")) && __sync_add_and_fetch(&written, (long)count) > limit) {
        errno = is("full") ? ENOSPC : EDQUOT;
        return -1;
    }
    return (ssize_t)count;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int descriptor, const void *data, size_t count) {
    REAL(write);
    ssize_t size = admitted(descriptor, count);
    return size < 0 ? size : real(descriptor, data, (size_t)size);
}

ssize_t pwrite64(int descriptor, const void *data, size_t count, off64_t place) {
    REAL(pwrite64);
    ssize_t size = admitted(descriptor, count);
    return size < 0 ? size : real(descriptor, data, (size_t)size, place);
}

ssize_t pwrite(int descriptor, const void *data, size_t count, off_t place) {
    return pwrite64(descriptor, data, count, place);
}

static int unsynced(int descriptor) {
    if (!is("fsync") || !concerns(descriptor)) return 0;
    errno = EIO;
    return 1;
}

int fsync(int descriptor) {
    REAL(fsync);
    return unsynced(descriptor) ? -1 : real(descriptor);
}

int fdatasync(int descriptor) {
    REAL(fdatasync);
    return unsynced(descriptor) ? -1 : real(descriptor);
}

static int unlockable(int descriptor) {
    if (!(is("nolock") || is("remote")) || !concerns(descriptor)) return 0;
    errno = ENOLCK;
    return 1;
}

int flock(int descriptor, int operation) {
    REAL(flock);
    return unlockable(descriptor) ? -1 : real(descriptor, operation);
}

static int locks(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_GETLK;
}

int fcntl64(int descriptor, int command, ...) {
    REAL(fcntl64);
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (locks(command) && unlockable(descriptor)) return -1;
    return real(descriptor, command, argument);
}

int fcntl(int descriptor, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return fcntl64(descriptor, command, argument);
}

void *mmap64(void *wish, size_t length, int protection, int flags, int descriptor, off64_t place) {
    REAL(mmap64);
    if ((is("noshm") || is("remote")) && descriptor >= 0 && (flags & MAP_SHARED) &&
        concerns(descriptor)) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    return real(wish, length, protection, flags, descriptor, place);
}

void *mmap(void *wish, size_t length, int protection, int flags, int descriptor, off_t place) {
    return mmap64(wish, length, protection, flags, descriptor, place);
}
