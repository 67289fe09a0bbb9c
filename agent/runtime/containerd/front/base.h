/*
 * What the programs of this folder share: they are executed in the place of another program, which is behind them, next to
 * them, as their own path with ".program". A program includes this file after it has defined BEHIND, the name of the other one, and
 * has the function work. It uses no library, so that it starts in less than a millisecond.
 *
 * Build (front_test.go does the same and compares), for PROGRAM runc and shim:
 *   gcc                   $FLAGS -o PROGRAM_amd64 PROGRAM.c
 *   aarch64-linux-gnu-gcc $FLAGS -o PROGRAM_arm64 PROGRAM.c
 * with FLAGS = -Os -static -nostdlib -ffreestanding -fno-stack-protector
 *   -fno-asynchronous-unwind-tables -fno-pie -no-pie -fno-tree-loop-distribute-patterns
 *   -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s
 */

#if defined(__x86_64__)
enum {
	NR_READ = 0, NR_WRITE = 1, NR_CLOSE = 3, NR_SOCKET = 41, NR_CONNECT = 42, NR_BIND = 49, NR_LISTEN = 50, NR_CLONE = 56,
	NR_EXECVE = 59, NR_FCNTL = 72, NR_GETCWD = 79, NR_SETPGID = 109, NR_UMOUNT2 = 166,
	NR_GETDENTS64 = 217, NR_CLOCK_GETTIME = 228, NR_EXIT_GROUP = 231, NR_OPENAT = 257, NR_UNLINKAT = 263, NR_READLINKAT = 267,
	NR_FCHMODAT = 268, NR_FACCESSAT = 269, NR_PPOLL = 271, NR_DUP3 = 292, NR_PIPE2 = 293, NR_RENAMEAT2 = 316, NR_PIDFD_SEND_SIGNAL = 424,
	NR_PIDFD_OPEN = 434, NR_CLOSE_RANGE = 436
};
enum { O_DIRECTORY = 0200000, O_NOFOLLOW = 0400000 };

__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall start\n");

static long call(long nr, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
enum {
	NR_GETCWD = 17, NR_DUP3 = 24, NR_FCNTL = 25, NR_UNLINKAT = 35, NR_UMOUNT2 = 39, NR_FACCESSAT = 48, NR_FCHMODAT = 53,
	NR_OPENAT = 56, NR_CLOSE = 57, NR_PIPE2 = 59, NR_GETDENTS64 = 61, NR_READ = 63, NR_WRITE = 64, NR_PPOLL = 73, NR_READLINKAT = 78,
	NR_EXIT_GROUP = 94, NR_CLOCK_GETTIME = 113, NR_SETPGID = 154, NR_SOCKET = 198, NR_BIND = 200,
	NR_LISTEN = 201, NR_CONNECT = 203, NR_CLONE = 220, NR_EXECVE = 221, NR_RENAMEAT2 = 276,
	NR_PIDFD_SEND_SIGNAL = 424, NR_PIDFD_OPEN = 434, NR_CLOSE_RANGE = 436
};
enum { O_DIRECTORY = 040000, O_NOFOLLOW = 0100000 };

__asm__(".globl _start\n_start:\n\tmov x29, xzr\n\tmov x30, xzr\n\tmov x0, sp\n\tbl start\n");

static long call(long nr, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
}
#else
#error "front: add this machine's system calls"
#endif

enum {
	O_RDONLY = 0, O_WRONLY = 1, O_RDWR = 2, O_CREAT = 0100, O_EXCL = 0200, O_NONBLOCK = 04000, O_CLOEXEC = 02000000,
	AT_FDCWD = -100, AT_REMOVEDIR = 0x200,
	SIGCHLD = 17, ENOENT = 2, EINTR = 4, EAGAIN = 11, EINVAL = 22, EADDRINUSE = 98
};

enum { MAX_PATH = 4096, MAX_TEXT = 1 << 20 };

static char text[MAX_TEXT + 1]; /* of JSON, that is searched */
static char path[MAX_PATH];     /* that is used now */

static unsigned long length(const char *s)
{
	unsigned long n = 0;

	while (s[n])
		n++;
	return n;
}

/* Returns what follows head in s; null if s begins with something else. */
static const char *after(const char *s, const char *head)
{
	while (*head)
		if (*s++ != *head++)
			return 0;
	return s;
}

static int same(const char *a, const char *b)
{
	const char *rest = after(a, b);

	return rest && !*rest;
}

/*
 * Returns what follows the first place of want in the text; null if it is not there. A want that begins and ends
 * outside of a string of JSON, or with its quotes, cannot be part of one: there its quotes would have backslashes.
 */
static const char *find(const char *want)
{
	const char *rest;

	for (const char *s = text; *s; s++)
		if ((rest = after(s, want)))
			return rest;
	return 0;
}

/* Parses a decimal number that ends with end; -1 if it is not one. */
static long number(const char *s, char end)
{
	long n = 0;

	if (!s || *s == end)
		return -1;
	for (; *s >= '0' && *s <= '9'; s++)
		if ((n = n * 10 + *s - '0') > 1L << 50)
			return -1;
	return *s == end ? n : -1;
}

/* Writes s with its final zero, and returns its length. */
static unsigned long put(char *to, const char *s)
{
	unsigned long n = 0;

	while ((to[n] = s[n]))
		n++;
	return n;
}

/* Writes a number that is not negative, with a final zero, and returns its length: at most 20 digits. */
static unsigned long decimal(char *to, unsigned long n)
{
	char digits[20];
	unsigned long at = 0, end = 0;

	do
		digits[end++] = '0' + n % 10;
	while (n /= 10);
	while (end)
		to[at++] = digits[--end];
	to[at] = 0;
	return at;
}

/* Appends s to path at the length at; 0 if there is no room. */
static unsigned long append(unsigned long at, const char *s)
{
	unsigned long n = length(s);

	if (at + n >= MAX_PATH)
		return 0;
	for (unsigned long i = 0; i <= n; i++)
		path[at + i] = s[i];
	return at + n;
}

/* Reads a file, with a final zero; -1 if that fails or it has more than most bytes. */
static long slurp(const char *file, char *to, long most)
{
	long fd = call(NR_OPENAT, AT_FDCWD, (long)file, O_RDONLY | O_CLOEXEC, 0, 0), size = 0, got;

	if (fd < 0)
		return -1;
	while ((got = call(NR_READ, fd, (long)(to + size), most - size + 1, 0, 0)) > 0 || got == -EINTR)
		if (got > 0 && (size += got) > most)
			break;
	call(NR_CLOSE, fd, 0, 0, 0, 0);
	if (got < 0 || size > most)
		return -1;
	to[size] = 0;
	return size;
}

/* Ends the text s where end is, and returns what follows. */
static char *until(char *s, char end)
{
	while (*s && *s != end)
		s++;
	if (*s)
		*s++ = 0;
	return s;
}

/*
 * Makes that a process soon gets into its cgroup without waiting. The kernel lets the first one after a while wait for a
 * grace period of RCU, some 10 ms, and those of the next 10 ms not: this has a process of its own go into the cgroup in
 * which it is, which changes nothing, and wait meanwhile.
 */
static void hurry_cgroups(void)
{
	if (call(NR_CLONE, SIGCHLD, 0, 0, 0, 0) != 0)
		return;
	/* Somebody may wait for the end of what this process has open. */
	if (call(NR_CLOSE_RANGE, 0, ~0U, 0, 0, 0))
		for (int fd = 0; fd < 16; fd++)
			call(NR_CLOSE, fd, 0, 0, 0, 0);
	if (slurp("/proc/self/cgroup", text, MAX_TEXT) <= 0)
		call(NR_EXIT_GROUP, 0, 0, 0, 0, 0);
	for (char *s = text; *s;) { /* lines of NUMBER:CONTROLLERS:PATH */
		char *controllers = until(s, ':'), *own = until(controllers, ':');
		s = until(own, '\n');
		unsigned long at = append(append(0, "/sys/fs/cgroup/"), controllers);
		if (!at || !append(append(at, own), "/cgroup.procs"))
			continue;
		long fd = call(NR_OPENAT, AT_FDCWD, (long)path, O_WRONLY | O_CLOEXEC, 0, 0);
		if (fd < 0)
			continue;
		call(NR_WRITE, fd, (long)"0", 1, 0, 0);
		break;
	}
	call(NR_EXIT_GROUP, 0, 0, 0, 0, 0);
}

static const char *self; /* the path of this program */

/* Sets self from argv[0], which is only a name if the program was found in PATH. */
static void find_self(const char *name)
{
	static char own[MAX_PATH];

	for (const char *s = self = name; *s; s++)
		if (*s == '/')
			return;
	if (call(NR_READLINKAT, AT_FDCWD, (long)"/proc/self/exe", (long)own, MAX_PATH - 1, 0) <= 0)
		put(own, "/proc/self/exe"); /* with .program, there is no such file, unlike in the working folder */
	self = own;
}

/* Does the work of the call; 0 if the program behind must. */
static int work(char **arg, char **env);

__attribute__((used)) void start(long *stack)
{
	static const char failed[] = "cannot execute " BEHIND ": the link to it next to this program, with .program in its name, is broken\n";
	long argc = stack[0];
	char **argv = (char **)(stack + 1), **env = argv + argc + 1;

	if (argc > 0)
		find_self(argv[0]);
	if (argc > 1 && work(argv + 1, env))
		call(NR_EXIT_GROUP, 0, 0, 0, 0, 0);
	if (argc > 0 && length(self) < MAX_PATH - 64) {
		append(append(0, self), ".program");
		call(NR_EXECVE, (long)path, (long)argv, (long)env, 0, 0);
	}
	call(NR_WRITE, 2, (long)failed, sizeof(failed) - 1, 0, 0);
	call(NR_EXIT_GROUP, 127, 0, 0, 0, 0);
}
