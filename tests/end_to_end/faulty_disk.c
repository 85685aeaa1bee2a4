/* A disk that fails on request, for one process: preloaded between it and the system.

   The file named by FAULTY_DISK holds lines `<call> <errno> <part of a path>`: while a
   line is there, that call fails with that errno on paths like that. `write 0` writes one
   byte at a time instead. The file named by FAULTY_DISK_TRACE gets a line per sync. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NO_FAULT = -1, SHORT_WRITE = 0 };

static int fault(const char *call, int fd, char *path, size_t size) {
    char link[64], line[4096], name[32], part[4000];
    int number, found = NO_FAULT;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
    const char *faults = getenv("FAULTY_DISK");
    FILE *file = faults ? fopen(faults, "re") : NULL;
    if (!file)
        return NO_FAULT;
    while (found == NO_FAULT && fgets(line, sizeof line, file))
        if (sscanf(line, "%31s %d %3999s", name, &number, part) == 3 && !strcmp(name, call)
            && strstr(path, part))
            found = number;
    fclose(file);
    return found;
}

static void trace_sync(const char *path) {
    const char *trace = getenv("FAULTY_DISK_TRACE");
    FILE *file = trace ? fopen(trace, "ae") : NULL;
    if (file) {
        fprintf(file, "%s\n", path);
        fclose(file);
    }
}

static int sync_with(const char *call, int fd) {
    char path[4096];
    int number = fault("sync", fd, path, sizeof path);
    trace_sync(path);
    if (number > 0) {
        errno = number;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    return real(fd);
}

int fdatasync(int fd) { return sync_with("fdatasync", fd); }

int fsync(int fd) { return sync_with("fsync", fd); }

/* Syncs that the kernel does asynchronously. One that is to fail is not accepted: then the
   broker calls fdatasync, and that fails. */
long syscall(long number, ...) {
    long rest[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        rest[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_submit) {
        char path[4096];
        struct iocb **requests = (struct iocb **)rest[2];
        if (fault("sync", (int)requests[0]->aio_fildes, path, sizeof path) > 0) {
            errno = EAGAIN;
            return -1;
        }
        trace_sync(path);
    }
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return real(number, rest[0], rest[1], rest[2], rest[3], rest[4], rest[5]);
}

int ftruncate64(int fd, off64_t size) {
    char path[4096];
    int number = fault("truncate", fd, path, sizeof path);
    if (number > 0) {
        errno = number;
        return -1;
    }
    int (*real)(int, off64_t) = (int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64");
    return real(fd, size);
}

ssize_t pwritev64v2(int fd, const struct iovec *chunks, int count, off64_t at, int flags) {
    char path[4096];
    int number = fault("write", fd, path, sizeof path);
    if (number > 0) {
        errno = number;
        return -1;
    }
    if (number == SHORT_WRITE)
        for (int i = 0; i < count; i++)
            if (chunks[i].iov_len)
                return pwrite64(fd, chunks[i].iov_base, 1, at);
    ssize_t (*real)(int, const struct iovec *, int, off64_t, int) =
        (ssize_t(*)(int, const struct iovec *, int, off64_t, int))dlsym(RTLD_NEXT, "pwritev64v2");
    return real(fd, chunks, count, at, flags);
}

ssize_t pwritev64(int fd, const struct iovec *chunks, int count, off64_t at) {
    return pwritev64v2(fd, chunks, count, at, 0);
}
