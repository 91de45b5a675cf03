/* Records all changes that a process makes to the files of some folders, in their order.
 *
 *     LD_PRELOAD=journal.so POWER_JOURNAL=/a/journal POWER_FOLDERS=/a/broker/data:/a/checkpoint program
 *
 * A note is written with one append, after the call has succeeded and before the call returns. So changes that a
 * process makes after a sync are recorded after the note of the sync. All processes share one journal.
 *
 * A note is a header and two texts. The contents of a mapped file are recorded when it is synced or unmapped. A call
 * that changes a file in an unsupported way writes the note '?', and the reader fails on it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FILES_MAX = 65536, FOLDERS_MAX = 8, MAPS_MAX = 4096, JOURNAL_FD_MIN = 60000 };

struct note {
    char what;        /* Create, Write, Length, Sync, syncs folDer, Rename, Unlink, liNk, Mkdir, '?' */
    uint64_t at_ns;
    uint64_t file;    /* the inode of the file */
    uint64_t offset;  /* the offset of the write, or the new length */
    uint32_t first, second; /* sizes of the two texts: a path or data, and another path */
} __attribute__((packed));

static int journal = -1;
static char *folders[FOLDERS_MAX];
static volatile uint64_t watched[FILES_MAX]; /* by descriptor: the inode, or 0 */
static volatile char is_folder[FILES_MAX];

static struct map { char *begin; size_t length; uint64_t file, offset; } maps[MAPS_MAX];
static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(result, name, ...) \
    static result (*real_##name)(__VA_ARGS__); \
    if (!real_##name) real_##name = dlsym(RTLD_NEXT, #name)

static void record(char what, uint64_t file, uint64_t offset, const void *first, size_t first_bytes, const char *second) {
    struct timespec now;
    int before = errno;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct note note = {what, now.tv_sec * 1000000000ull + now.tv_nsec, file, offset, first_bytes, strlen(second)};
    struct iovec parts[3] = {{&note, sizeof note}, {(void *)first, first_bytes}, {(void *)second, note.second}};
    ssize_t whole = sizeof note + first_bytes + note.second;
    if (syscall(SYS_writev, journal, parts, 3) != whole) {
        static const char words[] = "the journal cannot be written\n";
        syscall(SYS_write, 2, words, sizeof words - 1);
        _exit(99);
    }
    errno = before;
}

__attribute__((constructor)) static void begin(void) {
    static char list[PATH_MAX * 2];
    const char *file = getenv("POWER_JOURNAL"), *wanted = getenv("POWER_FOLDERS");
    if (!file || !wanted) return;
    int opened = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    journal = fcntl(opened, F_DUPFD_CLOEXEC, JOURNAL_FD_MIN);
    if (journal < 0) journal = opened; else syscall(SYS_close, opened);
    snprintf(list, sizeof list, "%s", wanted);
    int count = 0;
    for (char *word = strtok(list, ":"); word && count < FOLDERS_MAX - 1; word = strtok(NULL, ":")) folders[count++] = word;
}

static int is_within(const char *path) {
    for (int i = 0; journal >= 0 && folders[i]; i++) {
        size_t length = strlen(folders[i]);
        if (!strncmp(path, folders[i], length) && (path[length] == '/' || !path[length])) return 1;
    }
    return 0;
}

/* Find the absolute path of `path`, with links in its folders resolved; return whether it is watched. */
static int absolute(int folder, const char *path, char *found) {
    char beside[PATH_MAX], place[PATH_MAX];
    if (journal < 0 || !path) return 0;
    int before = errno;
    if (path[0] == '/' || folder == AT_FDCWD) {
        snprintf(beside, sizeof beside, "%s", path);
    } else {
        snprintf(place, sizeof place, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(place, beside, sizeof beside - 1);
        if (length < 0) { errno = before; return 0; }
        snprintf(beside + length, sizeof beside - length, "/%s", path);
    }
    size_t end = strlen(beside);
    while (end > 1 && beside[end - 1] == '/') beside[--end] = 0;
    char *slash = strrchr(beside, '/');
    const char *name = slash ? slash + 1 : beside;
    char *parent = realpath(slash ? (*slash = 0, slash == beside ? "/" : beside) : ".", place);
    if (parent) snprintf(found, PATH_MAX, "%s/%s", parent, name);
    errno = before;
    return parent && is_within(found);
}

static uint64_t file_of(int fd) { return fd >= 0 && fd < FILES_MAX && !is_folder[fd] ? watched[fd] : 0; }

/* -- files are opened and closed ---------------------------------------------------------------------------------- */

static int opened(int fd, int folder, const char *path, int flags) {
    char found[PATH_MAX];
    struct stat about;
    if (fd < 0 || fd >= FILES_MAX) return fd;
    watched[fd] = 0;
    if (!absolute(folder, path, found) || fstat(fd, &about)) return fd;
    is_folder[fd] = S_ISDIR(about.st_mode);
    if (S_ISREG(about.st_mode) && flags & O_CREAT) record('C', about.st_ino, 0, found, strlen(found), "");
    if (S_ISREG(about.st_mode) && flags & O_TRUNC) record('L', about.st_ino, 0, "", 0, "");
    if (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) watched[fd] = about.st_ino;
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

#define OPEN(name) int name(const char *path, int flags, ...) { \
    MODE(flags) REAL(int, name, const char *, int, ...); return opened(real_##name(path, flags, mode), AT_FDCWD, path, flags); }
OPEN(open)
OPEN(open64)

#define OPENAT(name) int name(int folder, const char *path, int flags, ...) { \
    MODE(flags) REAL(int, name, int, const char *, int, ...); \
    return opened(real_##name(folder, path, flags, mode), folder, path, flags); }
OPENAT(openat)
OPENAT(openat64)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd) {
    REAL(int, close, int);
    if (fd >= 0 && fd < FILES_MAX) watched[fd] = 0;
    return real_close(fd);
}

int dup2(int from, int to) {
    REAL(int, dup2, int, int);
    int fd = real_dup2(from, to);
    if (fd >= 0 && fd < FILES_MAX) { watched[fd] = from < FILES_MAX ? watched[from] : 0; is_folder[fd] = is_folder[from]; }
    return fd;
}

/* -- data --------------------------------------------------------------------------------------------------------- */

static ssize_t wrote(int fd, ssize_t done, const void *data, off_t offset) {
    uint64_t file = file_of(fd);
    if (done > 0 && file) record('W', file, offset < 0 ? lseek(fd, 0, SEEK_CUR) - done : offset, data, done, "");
    return done;
}

static ssize_t wrote_parts(int fd, ssize_t done, const struct iovec *parts, int count, off_t offset) {
    if (done <= 0 || !file_of(fd)) return done;
    off_t at = offset < 0 ? lseek(fd, 0, SEEK_CUR) - done : offset;
    ssize_t left = done;
    for (int i = 0; i < count && left > 0; i++) {
        ssize_t here = (ssize_t)parts[i].iov_len < left ? (ssize_t)parts[i].iov_len : left;
        if (here) wrote(fd, here, parts[i].iov_base, at);
        at += here, left -= here;
    }
    return done;
}

ssize_t write(int fd, const void *data, size_t length) {
    REAL(ssize_t, write, int, const void *, size_t);
    return wrote(fd, real_write(fd, data, length), data, -1);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    return wrote_parts(fd, real_writev(fd, parts, count), parts, count, -1);
}

#define PWRITE(name, place) ssize_t name(int fd, const void *data, size_t length, place offset) { \
    REAL(ssize_t, name, int, const void *, size_t, place); return wrote(fd, real_##name(fd, data, length, offset), data, offset); }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define PWRITEV(name, place) ssize_t name(int fd, const struct iovec *parts, int count, place offset) { \
    REAL(ssize_t, name, int, const struct iovec *, int, place); \
    return wrote_parts(fd, real_##name(fd, parts, count, offset), parts, count, offset); }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

static int has_length(int fd, int result) {
    struct stat about;
    uint64_t file = file_of(fd);
    if (!result && file && !fstat(fd, &about)) record('L', file, about.st_size, "", 0, "");
    return result;
}

#define LENGTH(name, place) int name(int fd, place length) { \
    REAL(int, name, int, place); return has_length(fd, real_##name(fd, length)); }
LENGTH(ftruncate, off_t)
LENGTH(ftruncate64, off64_t)

#define ALLOCATE(name, place) int name(int fd, int mode, place offset, place length) { \
    REAL(int, name, int, int, place, place); return has_length(fd, real_##name(fd, mode, offset, length)); }
ALLOCATE(fallocate, off_t)
ALLOCATE(fallocate64, off64_t)

#define POSIX_ALLOCATE(name, place) int name(int fd, place offset, place length) { \
    REAL(int, name, int, place, place); return has_length(fd, real_##name(fd, offset, length)); }
POSIX_ALLOCATE(posix_fallocate, off_t)
POSIX_ALLOCATE(posix_fallocate64, off64_t)

static void not_recorded(int fd, ssize_t done, const char *how) {
    if (done > 0 && file_of(fd)) record('?', file_of(fd), 0, how, strlen(how), "");
}

#define SENDFILE(name, place) ssize_t name(int out, int in, place *offset, size_t count) { \
    REAL(ssize_t, name, int, int, place *, size_t); \
    ssize_t done = real_##name(out, in, offset, count); not_recorded(out, done, #name); return done; }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t length, unsigned flags) {
    REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
    ssize_t done = real_copy_file_range(in, from, out, to, length, flags);
    not_recorded(out, done, "copy_file_range");
    return done;
}

static int synced(int fd, int result) {
    if (!result && fd >= 0 && fd < FILES_MAX && watched[fd]) {
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = is_folder[fd] ? readlink(link, path, sizeof path) : 0;
        record(is_folder[fd] ? 'D' : 'S', watched[fd], 0, path, length > 0 ? length : 0, "");
    }
    return result;
}

#define SYNC(name) int name(int fd) { REAL(int, name, int); return synced(fd, real_##name(fd)); }
SYNC(fsync)
SYNC(fdatasync)

/* -- files that are mapped ---------------------------------------------------------------------------------------- */

static void mapped(void *begin, size_t length, int protection, int flags, int fd, off64_t offset) {
    uint64_t file = file_of(fd);
    if (begin == MAP_FAILED || !file || !(flags & MAP_SHARED) || !(protection & PROT_WRITE)) return;
    pthread_mutex_lock(&maps_lock);
    int place = 0;
    while (place < MAPS_MAX && maps[place].begin) place++;
    if (place < MAPS_MAX) maps[place] = (struct map){begin, length, file, offset};
    pthread_mutex_unlock(&maps_lock);
    if (place == MAPS_MAX) record('?', file, 0, "mmap", 4, "");
}

#define MMAP(name, place) void *name(void *at, size_t length, int protection, int flags, int fd, place offset) { \
    REAL(void *, name, void *, size_t, int, int, int, place); \
    void *begin = real_##name(at, length, protection, flags, fd, offset); \
    if (fd >= 0) mapped(begin, length, protection, flags, fd, offset); \
    return begin; }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

/* Record the contents of a mapped file. */
static void note_map(const char *begin, char what, int forget) {
    pthread_mutex_lock(&maps_lock);
    for (int i = 0; i < MAPS_MAX; i++) {
        struct map *map = &maps[i];
        if (!map->begin || begin < map->begin || begin >= map->begin + map->length) continue;
        size_t length = map->length;
        while (length && !map->begin[length - 1]) length--; /* an index file has its full length from the beginning, filled with zeros */
        record('W', map->file, map->offset, map->begin, length, "");
        if (what) record(what, map->file, 0, "", 0, "");
        if (forget) map->begin = NULL;
    }
    pthread_mutex_unlock(&maps_lock);
}

int msync(void *begin, size_t length, int flags) {
    REAL(int, msync, void *, size_t, int);
    int result = real_msync(begin, length, flags);
    if (!result && journal >= 0) note_map(begin, 'S', 0);
    return result;
}

int munmap(void *begin, size_t length) {
    REAL(int, munmap, void *, size_t);
    if (journal >= 0) note_map(begin, 0, 1);
    return real_munmap(begin, length);
}

/* -- names -------------------------------------------------------------------------------------------------------- */

static int moved(char what, int result, int from_folder, const char *from, int to_folder, const char *to) {
    char before[PATH_MAX], after[PATH_MAX];
    int was = absolute(from_folder, from, before), is = absolute(to_folder, to, after);
    if (!result && (was || is)) record(was && is ? what : '?', 0, 0, before, strlen(before), after);
    return result;
}

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return moved('R', real_rename(from, to), AT_FDCWD, from, AT_FDCWD, to);
}

int renameat(int folder, const char *from, int other, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    return moved('R', real_renameat(folder, from, other, to), folder, from, other, to);
}

int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    return moved('R', real_renameat2(folder, from, other, to, flags), folder, from, other, to);
}

int link(const char *from, const char *to) {
    REAL(int, link, const char *, const char *);
    return moved('N', real_link(from, to), AT_FDCWD, from, AT_FDCWD, to);
}

static int changed(char what, int result, int folder, const char *path) {
    char found[PATH_MAX];
    if (!result && absolute(folder, path, found)) record(what, 0, 0, found, strlen(found), "");
    return result;
}

#define NAME(what, name) int name(const char *path) { \
    REAL(int, name, const char *); return changed(what, real_##name(path), AT_FDCWD, path); }
NAME('U', unlink)
NAME('U', remove)
NAME('U', rmdir)

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    return changed('U', real_unlinkat(folder, path, flags), folder, path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return changed('M', real_mkdir(path, mode), AT_FDCWD, path);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, mkdirat, int, const char *, mode_t);
    return changed('M', real_mkdirat(folder, path, mode), folder, path);
}
