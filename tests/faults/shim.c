/* Stands between a process and the C library (LD_PRELOAD): counts the operations that change files below a directory,
 * and does harm at the n-th of them. It also moves the clock.
 *
 * An operation is one call that creates, writes, renames, removes, cuts or synchronises a file or directory below the
 * directory; all others pass.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OFF, COUNT, KILL, TEAR, FAIL_ONCE, FAIL_FROM, VANISH, SEND };

static char root[PATH_MAX];
static size_t length;
static int mode, number; /* number: of the error or of the signal */
static long at, count;
static int jumping;
static unsigned long state = 1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void fault_arm(const char *directory, int what, long when, int which) {
    length = strlen(directory);
    memcpy(root, directory, length + 1);
    count = 0, at = when, number = which;
    __atomic_store_n(&mode, what, __ATOMIC_SEQ_CST);
}

long fault_count(void) { return count; }

void fault_clock(int on, unsigned long seed) { jumping = on, state = seed * 2 + 1; }

static int below(const char *path) {
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

/* The path of a descriptor's file, or of a name below a directory's descriptor. */
static int below_at(int folder, const char *name) {
    char link[64], path[2 * PATH_MAX];
    ssize_t n;
    if (!length || mode == OFF) return 0;
    if (name && name[0] == '/') return below(name);
    if (folder == AT_FDCWD)
        n = getcwd(path, PATH_MAX) ? (ssize_t)strlen(path) : -1;
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        n = readlink(link, path, PATH_MAX - 1);
    }
    if (n < 0) return 0;
    path[n] = 0;
    if (name) snprintf(path + n, PATH_MAX, "/%s", name);
    return below(path);
}

/* What happens now: 0 nothing, 1 the operation fails (errno is set), 2 half of it happens and the process dies. */
static int event(int is_write, int takes_space) {
    long n = __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
    char gone[PATH_MAX + 8];
    int due = n == at;
    switch (mode) {
    case KILL:
        if (due) kill(getpid(), SIGKILL), pause();
        return 0;
    case TEAR:
        if (due && is_write) return 2;
        if (due) kill(getpid(), SIGKILL), pause();
        return 0;
    case FAIL_FROM:
        due = n >= at; /* fall through */
    case FAIL_ONCE:
        if (!due || (number == ENOSPC && !takes_space)) return 0;
        errno = number;
        return 1;
    case VANISH:
        if (due) snprintf(gone, sizeof gone, "%s.gone", root), REAL(rename)(root, gone);
        return 0;
    case SEND:
        if (due) raise(number);
        return 0;
    }
    return 0;
}

#define GUARD(is_below, is_write, takes_space)                                                                         \
    if (mode != OFF && (is_below) && event(is_write, takes_space) == 1) return -1

static int creates(int flags) { return flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR); }

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t bits = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        if (creates(flags)) GUARD(below_at(AT_FDCWD, path), 0, flags & O_CREAT);                                       \
        return REAL(name)(path, flags, bits);                                                                          \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t bits = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                        \
        va_end(more);                                                                                                  \
        if (creates(flags)) GUARD(below_at(folder, path), 0, flags & O_CREAT);                                         \
        return REAL(name)(folder, path, flags, bits);                                                                  \
    }
OPENAT(openat)
OPENAT(openat64)

/* A torn write leaves its first half. */
ssize_t write(int fd, const void *bytes, size_t size) {
    if (mode != OFF && below_at(fd, NULL)) {
        int what = event(1, 1);
        if (what == 1) return -1;
        if (what == 2) {
            REAL(write)(fd, bytes, size / 2);
            kill(getpid(), SIGKILL), pause();
        }
    }
    return REAL(write)(fd, bytes, size);
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t where) {
    GUARD(below_at(fd, NULL), 0, 1);
    return REAL(pwrite64)(fd, bytes, size, where);
}
ssize_t writev(int fd, const struct iovec *parts, int n) {
    GUARD(below_at(fd, NULL), 0, 1);
    return REAL(writev)(fd, parts, n);
}
ssize_t sendfile64(int out, int in, off64_t *from, size_t size);
ssize_t sendfile64(int out, int in, off64_t *from, size_t size) {
    GUARD(below_at(out, NULL), 0, 1);
    return REAL(sendfile64)(out, in, from, size);
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    GUARD(below_at(out, NULL), 0, 1);
    return REAL(copy_file_range)(in, from, out, to, size, flags);
}
int rename(const char *old, const char *new) {
    GUARD(below_at(AT_FDCWD, new), 0, 0);
    return REAL(rename)(old, new);
}
int renameat(int a, const char *old, int b, const char *new) {
    GUARD(below_at(b, new), 0, 0);
    return REAL(renameat)(a, old, b, new);
}
int renameat2(int a, const char *old, int b, const char *new, unsigned flags) {
    GUARD(below_at(b, new), 0, 0);
    return REAL(renameat2)(a, old, b, new, flags);
}
int link(const char *old, const char *new) {
    GUARD(below_at(AT_FDCWD, new), 0, 1);
    return REAL(link)(old, new);
}
int linkat(int a, const char *old, int b, const char *new, int flags) {
    GUARD(below_at(b, new), 0, 1);
    return REAL(linkat)(a, old, b, new, flags);
}
int unlink(const char *path) {
    GUARD(below_at(AT_FDCWD, path), 0, 0);
    return REAL(unlink)(path);
}
int unlinkat(int folder, const char *path, int flags) {
    GUARD(below_at(folder, path), 0, 0);
    return REAL(unlinkat)(folder, path, flags);
}
int rmdir(const char *path) {
    GUARD(below_at(AT_FDCWD, path), 0, 0);
    return REAL(rmdir)(path);
}
int mkdir(const char *path, mode_t bits) {
    GUARD(below_at(AT_FDCWD, path), 0, 1);
    return REAL(mkdir)(path, bits);
}
int mkdirat(int folder, const char *path, mode_t bits) {
    GUARD(below_at(folder, path), 0, 1);
    return REAL(mkdirat)(folder, path, bits);
}
int fsync(int fd) {
    GUARD(below_at(fd, NULL), 0, 0);
    return REAL(fsync)(fd);
}
int ftruncate64(int fd, off64_t size) {
    GUARD(below_at(fd, NULL), 0, 0);
    return REAL(ftruncate64)(fd, size);
}
int posix_fallocate64(int fd, off64_t from, off64_t size) {
    if (mode != OFF && below_at(fd, NULL) && event(0, 1) == 1) return number; /* it returns the error */
    return REAL(posix_fallocate64)(fd, from, size);
}

/* Years forth and back, at every look. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (jumping && clock == CLOCK_REALTIME) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        now->tv_sec += (long)(state >> 40) * 4 - 33554432L;
    }
    return result;
}
