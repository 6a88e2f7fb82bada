/* The start of a file of engine python: it looks whether this machine can run what is inside, before CPython loads.
 *
 *   front | PyInstaller's bootloader | record | zeros | plan or bundle | archive | footer
 *
 * It makes a folder of its own below $TMPDIR (else /tmp, /var/tmp, /dev/shm), puts the bootloader there with a link to
 * this file as its archive, runs it, passes signals on, and removes the folder with everything in it when that ends. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_HARDWARE = 3, EXIT_IO = 5, PATHS = 4096 };

/* The last 64 bytes of the file, as in docs/packed-file-format.md; here only stub_bytes matters. */
typedef struct {
  char magic[8];
  uint32_t version, arch;
  uint64_t plan_offset, plan_bytes, header_checksum, stub_bytes, archive_bytes, checksum;
} footer;

/* The last 32 bytes of the stub. */
typedef struct {
  char magic[8]; /* "EDGEFRNT" */
  uint64_t bootloader_bytes, unpacked_bytes;
  uint32_t glibc_major, glibc_minor; /* the floor: the newest symbol version of any content */
} record;
_Static_assert(sizeof(footer) == 64 && sizeof(record) == 32, "layout");

static const char *program = "model";
static volatile sig_atomic_t child;

static _Noreturn void fail(int code, const char *format, ...) {
  va_list args;
  fprintf(stderr, "%s: ", program);
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  exit(code);
}

/* The absolute path of this file. /proc may be missing: the kernel also passes the path it executed. */
static void own_path(char *path, const char *argv0) {
  const char *executed = (const char *)getauxval(AT_EXECFN);
  if (realpath("/proc/self/exe", path)) return;
  if (executed && realpath(executed, path)) return;
  if (!realpath(argv0, path)) fail(EXIT_IO, "cannot find this file: %s; call it by its path", strerror(errno));
}

static record read_record(int fd, uint64_t *bootloader_at) {
  footer f;
  record r;
  off_t size = lseek(fd, 0, SEEK_END);
  if (size < (off_t)sizeof f || pread(fd, &f, sizeof f, size - (off_t)sizeof f) != sizeof f ||
      memcmp(f.magic, "EDGEPACK", 8))
    fail(EXIT_IO, "this executable holds no model: its end is missing (a truncated copy, or stripped after packing)");
  if (f.stub_bytes < sizeof r || f.stub_bytes > (uint64_t)size ||
      pread(fd, &r, sizeof r, (off_t)(f.stub_bytes - sizeof r)) != sizeof r || memcmp(r.magic, "EDGEFRNT", 8) ||
      r.bootloader_bytes > f.stub_bytes - sizeof r)
    fail(EXIT_IO, "this file is damaged; copy it again");
  *bootloader_at = f.stub_bytes - sizeof r - r.bootloader_bytes;
  return r;
}

static void check_libraries(const record *r) {
  unsigned major = 0, minor = 0;
  sscanf(gnu_get_libc_version(), "%u.%u", &major, &minor);
  if (major < r->glibc_major || (major == r->glibc_major && minor < r->glibc_minor))
    fail(EXIT_HARDWARE,
         "this file needs glibc %u.%u or newer, this system has %s; pack it with an older CPython (--python-root), or "
         "with --engine native",
         r->glibc_major, r->glibc_minor, gnu_get_libc_version());
  if (!dlopen("libz.so.1", RTLD_LAZY))
    fail(EXIT_HARDWARE, "this file needs libz.so.1, which this system lacks (Debian: apt install zlib1g)");
}

/* A new folder below `parent`, or NULL with the reason in `why`. */
static char *make_folder(const char *parent, uint64_t bytes, char *path, char *why) {
  struct statvfs s;
  if (statvfs(parent, &s)) return snprintf(why, 256, "%s: %s", parent, strerror(errno)), NULL;
  uint64_t available = (uint64_t)s.f_bavail * s.f_frsize;
  if (s.f_flag & ST_NOEXEC) return snprintf(why, 256, "%s is mounted noexec", parent), NULL;
  if (available < bytes + (1 << 20))
    return snprintf(why, 256, "%s has %.1f MB left, %.1f MB are needed", parent, (double)available / 1e6,
                    (double)bytes / 1e6 + 1),
           NULL;
  snprintf(path, PATHS, "%s/edgerun-XXXXXX", parent);
  if (!mkdtemp(path)) return snprintf(why, 256, "%s: %s", parent, strerror(errno)), NULL;
  return path;
}

static void choose_folder(uint64_t bytes, char *path) {
  static const char *const usual[] = {"/tmp", "/var/tmp", "/dev/shm"};
  const char *given = getenv("TMPDIR");
  char why[3][256], chosen[PATHS];
  if (given && *given) {
    if (!realpath(given, chosen)) snprintf(why[0], sizeof why[0], "%.200s: %s", given, strerror(errno));
    else if (make_folder(chosen, bytes, path, why[0])) return;
    fail(EXIT_IO, "cannot unpack into $TMPDIR: %s; set TMPDIR to a folder on a disk with room", why[0]);
  }
  for (int i = 0; i < 3; i++)
    if (make_folder(usual[i], bytes, path, why[i])) return;
  fail(EXIT_IO, "no folder to unpack into: %s; %s; %s; set TMPDIR to a folder on a disk with room", why[0], why[1],
       why[2]);
}

/* Removes a folder with its contents; what cannot be removed stays. */
static void remove_tree(int parent, const char *name) {
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd < 0 ? NULL : fdopendir(fd);
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (unlinkat(fd, entry->d_name, 0) && (errno == EISDIR || errno == EPERM)) remove_tree(fd, entry->d_name);
  }
  if (folder) closedir(folder);
  unlinkat(parent, name, AT_REMOVEDIR);
}

static int copy_bootloader(int from, uint64_t at, uint64_t bytes, const char *path) {
  char buffer[65536];
  int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
  while (to >= 0 && bytes) {
    ssize_t n = pread(from, buffer, bytes < sizeof buffer ? bytes : sizeof buffer, (off_t)at);
    if (n <= 0 || write(to, buffer, (size_t)n) != n) break;
    at += (uint64_t)n;
    bytes -= (uint64_t)n;
  }
  return to >= 0 && close(to) == 0 && bytes == 0 ? 0 : -1;
}

/* Ctrl-C at a terminal reaches the whole group by itself; everything else is passed on. */
static void pass_on(int number, siginfo_t *info, void *context) {
  (void)context;
  if (child > 0 && !(number == SIGINT && info->si_code == SI_KERNEL)) kill(child, number);
}

/* Runs the bootloader and waits for it; returns its wait status. All signals are blocked on entry, so that one waits
 * until there is somebody to pass it on to; `mask` is what is restored. */
static int run(const char *path, char **argv, const sigset_t *mask) {
  static const int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
  int status = 0;
  sigfillset(&action.sa_mask);
  pid_t parent = getpid();
  child = fork();
  if (child < 0) return fprintf(stderr, "%s: cannot start a process: %s\n", program, strerror(errno)), EXIT_HARDWARE << 8;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() != parent) _exit(EXIT_HARDWARE);
    execv(path, argv);
    fprintf(stderr, "%s: cannot run %s: %s; set TMPDIR to a folder where programs may run\n", program, path,
            strerror(errno));
    _exit(EXIT_IO);
  }
  for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) sigaction(passed[i], &action, NULL);
  sigprocmask(SIG_SETMASK, mask, NULL);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  child = 0;
  return status;
}

int main(int argc, char **argv) {
  static char self[PATHS], folder[PATHS], bootloader[2 * PATHS], link[2 * PATHS + 8];
  uint64_t at;
  if (argc < 1) return EXIT_IO;
  own_path(self, argv[0]);
  program = strrchr(self, '/') + 1;
  int fd = open(self, O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(EXIT_IO, "cannot read %s: %s", self, strerror(errno));
  record r = read_record(fd, &at);
  check_libraries(&r);
  const char *before = getenv("TMPDIR");
  setenv("EDGERUN_TMPDIR", before ? before : "", 1);
  sigset_t all, old;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &old); /* from here on there is something to remove */
  choose_folder(r.unpacked_bytes + r.bootloader_bytes, folder);
  snprintf(bootloader, sizeof bootloader, "%s/%s", folder, program);
  snprintf(link, sizeof link, "%s.pkg", bootloader);
  int status = EXIT_IO << 8;
  if (copy_bootloader(fd, at, r.bootloader_bytes, bootloader) || symlink(self, link)) {
    fprintf(stderr, "%s: cannot write into %s: %s; set TMPDIR to another folder\n", program, folder, strerror(errno));
  } else {
    setenv("TMPDIR", folder, 1);
    setenv("EDGERUN_FILE", self, 1);
    argv[0] = bootloader;
    status = run(bootloader, argv, &old);
  }
  remove_tree(AT_FDCWD, folder);
  if (WIFSIGNALED(status)) { /* whoever waits for us learns the signal */
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 70;
}
