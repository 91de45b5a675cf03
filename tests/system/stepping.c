/* The wall clock of a process, plus the milliseconds in the file CLOCK_STEP_FILE, which a test changes. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static const volatile int64_t *step_ms;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLOCK_STEP_FILE");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        step_ms = mapped;
}

int clock_gettime(clockid_t id, struct timespec *at)
{
    if (!real_clock_gettime)
        begin();
    int failed = real_clock_gettime(id, at);
    if (!failed && step_ms && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t step = *step_ms;
        int64_t ns = at->tv_nsec + step % 1000 * 1000000;
        at->tv_sec += step / 1000 + (ns >= 1000000000) - (ns < 0);
        at->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
