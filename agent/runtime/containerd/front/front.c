/*
 * The program that containerd's shims start as runc. A pod's life is thirteen calls of runc, and each costs 5 to 20 ms
 * of CPU; eleven of them do very little:
 *
 *   start ID                 the container's first process waits until somebody reads from its FIFO
 *   kill [--all] ID SIGNAL   a signal to that process; with --all, to what is left of its PID namespace: nothing,
 *                            if that process is dead
 *   delete [--force] ID      of a dead container: its cgroups and its folder are removed
 *
 * This program does these itself, in the cases in which it can see that runc would do nothing else, and executes
 * runc in all other ones: for another command or option, for a container that shares its PID namespace, has hooks, or a
 * cgroup of systemd's, if something fails, and if state.json does not look as expected. What it has done until
 * then does not change what runc does. It never reports an error of its own.
 *
 * It uses no library, so that it starts in less than a millisecond. runc is next to it, as argv[0] with ".program".
 *
 * Build (front_test.go does the same and compares):
 *   gcc                   $FLAGS -o front_amd64 front.c
 *   aarch64-linux-gnu-gcc $FLAGS -o front_arm64 front.c
 * with FLAGS = -Os -static -nostdlib -ffreestanding -fno-stack-protector
 *   -fno-asynchronous-unwind-tables -fno-pie -no-pie -fno-tree-loop-distribute-patterns
 *   -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s
 */

#if defined(__x86_64__)
enum {
	NR_READ = 0, NR_WRITE = 1, NR_CLOSE = 3, NR_EXECVE = 59, NR_GETDENTS64 = 217, NR_EXIT_GROUP = 231, NR_OPENAT = 257,
	NR_UNLINKAT = 263, NR_FACCESSAT = 269, NR_PPOLL = 271, NR_PIDFD_SEND_SIGNAL = 424, NR_PIDFD_OPEN = 434
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
	NR_UNLINKAT = 35, NR_FACCESSAT = 48, NR_OPENAT = 56, NR_CLOSE = 57, NR_GETDENTS64 = 61, NR_READ = 63, NR_WRITE = 64,
	NR_PPOLL = 73, NR_EXIT_GROUP = 94, NR_EXECVE = 221, NR_PIDFD_SEND_SIGNAL = 424, NR_PIDFD_OPEN = 434
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
	O_RDONLY = 0, O_NONBLOCK = 04000, O_CLOEXEC = 02000000, AT_FDCWD = -100, AT_REMOVEDIR = 0x200,
	ENOENT = 2, EINTR = 4, EAGAIN = 11, POLLIN = 1, SIGKILL = 9, SIGRTMAX = 64
};

enum { MAX_PATH = 4096, MAX_STATE = 1 << 20, POLL_MS = 100 };

static char state[MAX_STATE + 1]; /* state.json */
static char folder[MAX_PATH];     /* of the container */
static char path[MAX_PATH];       /* that is used now */

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
 * Returns what follows the first place of want in state.json; null if it is not there. A want that begins and ends
 * outside of a string of JSON, or with its quotes, cannot be part of one: there its quotes would have backslashes.
 */
static const char *find(const char *want)
{
	const char *rest;

	for (const char *s = state; *s; s++)
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

/* Sets path to a file of the container's folder. */
static int in_folder(const char *name) { return append(append(0, folder), name) != 0; }

/* Reads the file of path, with a final zero; -1 if that fails or it has more than most bytes. */
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

/* The first process of the container, as state.json has it. */
static struct { long pid, began; } init;

/* Reports whether the first process lives: 1, 0 if it is dead, -1 if that is unknown. */
static int alive(void)
{
	static char stat[1024], file[48];
	char digits[24];
	int n = 0, at = 0;
	const char *s = 0;

	for (const char *head = "/proc/"; *head; head++)
		file[at++] = *head;
	for (long pid = init.pid; pid > 0; pid /= 10)
		digits[n++] = '0' + pid % 10;
	while (n > 0)
		file[at++] = digits[--n];
	for (const char *tail = "/stat"; *tail; tail++)
		file[at++] = *tail;
	file[at] = 0;
	if (slurp(file, stat, sizeof(stat) - 1) < 0) {
		/* Only a process that does not exist is dead. */
		return call(NR_FACCESSAT, AT_FDCWD, (long)file, 0, 0, 0) == -ENOENT ? 0 : -1;
	}
	for (const char *p = stat; *p; p++) /* the name may contain anything */
		if (*p == ')')
			s = p;
	if (!s || s[1] != ' ')
		return -1;
	char is = s[2];
	for (int field = 2; field < 22; field++) { /* to the 22nd, the start time */
		while (*s && *s != ' ')
			s++;
		if (!*s++)
			return -1;
	}
	long began = number(s, ' ');
	if (began < 0)
		return -1;
	if (began == init.began && (is == 'Z' || is == 'X'))
		return -1; /* other threads of it may live */
	return began == init.began;
}

/* Reads state.json; 0 if the container is not as expected. */
static int load(void)
{
	if (!in_folder("/state.json") || slurp(path, state, MAX_STATE) <= 0)
		return 0;
	init.pid = number(find("\"init_process_pid\":"), ',');
	init.began = number(find("\"init_process_start\":"), ',');
	return init.pid > 1 && init.began > 0 && after(state, "{\"id\":\"");
}

/* Reports whether the container has a PID namespace of its own: with its first process, all others are dead. */
static int alone(void)
{
	return find("{\"type\":\"NEWPID\",\"path\":\"\"}") || find("{\"type\":\"NEWPID\"}"); /* newer ones leave out what is empty */
}

/* Reports whether to remove the container is more than to remove its cgroups and its folder. */
static int involved(void)
{
	int hooks = find("\"Hooks\":") || find("\"hooks\":") || find("\"poststop\":");

	return (hooks && !find("\"poststop\":null")) || find("\"poststop\":[") ||
	       find("\"Systemd\":true") || find("\"systemd\":true") || find("\"intel_rdt_path\":\"/");
}

/* Lets the first process execute its program. */
static int start_container(void)
{
	char byte;
	struct { int fd; short events, got; } poll = { 0, POLLIN, 0 };

	if (!load() || alive() != 1 || !in_folder("/exec.fifo"))
		return 0;
	long fd = call(NR_OPENAT, AT_FDCWD, (long)path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0, 0);
	if (fd < 0)
		return 0;
	poll.fd = fd;
	/* It opens the FIFO, maybe a moment later, writes, and executes its program. */
	for (;;) {
		int was = alive();
		long got = call(NR_READ, fd, (long)&byte, 1, 0, 0);
		if (got == 1)
			break;
		if (was != 1)
			return 0; /* it died before; runc says so */
		if (got == 0 || got == -EAGAIN) {
			long wait[2] = { 0, POLL_MS * 1000000 };
			if (poll.got & ~POLLIN) { /* a writer left without a byte: it is about to die */
				poll.fd = -1;
				wait[1] = 1000000;
			}
			call(NR_PPOLL, (long)&poll, 1, (long)wait, 0, 0);
			poll.fd = fd;
		} else if (got != -EINTR)
			return 0;
	}
	call(NR_UNLINKAT, AT_FDCWD, (long)path, 0, 0, 0);
	return 1;
}

/*
 * Sets path to the absolute path in the string of JSON whose content begins at s, and returns what follows its closing
 * quote; null if it is something else.
 */
static const char *take_path(const char *s)
{
	unsigned long n = 0;

	if (*s != '/')
		return 0;
	for (; *s && *s != '"' && *s != '\\' && n < MAX_PATH - 1; s++)
		path[n++] = *s;
	path[n] = 0;
	return *s == '"' ? s + 1 : 0;
}

/* Reports whether SIGKILL ends the process at once: not while version 1 has frozen it. */
static int thawed(void)
{
	static char is[16];
	const char *at = find("\"freezer\":\"/");

	if (!at)
		return 1;
	return take_path(at - 1) && append(length(path), "/freezer.state") && slurp(path, is, sizeof(is) - 1) > 0 && same(is, "THAWED\n");
}

static int kill_container(int all, long sig)
{
	if (sig < 1 || sig > SIGRTMAX || !load() || !alone())
		return 0;
	if (all)
		return alive() == 0;
	long fd = call(NR_PIDFD_OPEN, init.pid, 0, 0, 0, 0);
	/* Now the number cannot become another process'. */
	if (fd < 0 || alive() != 1 || (sig == SIGKILL && !thawed()))
		return 0;
	return call(NR_PIDFD_SEND_SIGNAL, fd, sig, 0, 0, 0) == 0;
}

/* Reports whether the folder contains nothing but state.json. */
static int bare(void)
{
	struct entry { unsigned long ino, off; unsigned short size; unsigned char type; char name[]; };
	static char list[4096] __attribute__((aligned(8)));
	int names = 0;

	long fd = call(NR_OPENAT, AT_FDCWD, (long)folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, 0), got;
	if (fd < 0)
		return 0;
	while ((got = call(NR_GETDENTS64, fd, (long)list, sizeof(list), 0, 0)) > 0)
		for (long at = 0; at < got; at += ((const struct entry *)(list + at))->size) {
			const struct entry *e = (const void *)(list + at);
			if (same(e->name, ".") || same(e->name, ".."))
				continue;
			if (!same(e->name, "state.json"))
				names++;
			names++;
		}
	call(NR_CLOSE, fd, 0, 0, 0, 0);
	return got == 0 && names == 1;
}

/* Removes the directories in the object of cgroup_paths. */
static int remove_cgroups(void)
{
	const char *s = find("\"cgroup_paths\":{");

	while (s && *s == '"') {
		for (s++; *s && *s != '"' && *s != '\\'; s++) /* the controller's name */
			;
		if (!(s = after(s, "\":\"")) || !(s = take_path(s)))
			return 0;
		long failed = call(NR_UNLINKAT, AT_FDCWD, (long)path, AT_REMOVEDIR, 0, 0);
		if (failed && failed != -ENOENT)
			return 0;
		if (*s == ',')
			s++;
		else
			return *s == '}';
	}
	return 0;
}

static int delete_container(int force)
{
	if (call(NR_FACCESSAT, AT_FDCWD, (long)folder, 0, 0, 0) == -ENOENT)
		return force;
	if (!load() || !alone() || alive() != 0 || involved() || !bare())
		return 0;
	if (!remove_cgroups() || !in_folder("/state.json") || call(NR_UNLINKAT, AT_FDCWD, (long)path, 0, 0, 0))
		return 0;
	call(NR_UNLINKAT, AT_FDCWD, (long)folder, AT_REMOVEDIR, 0, 0);
	return 1;
}

/* Does the work of the call; 0 if runc must. */
static int work(char **arg, char **env)
{
	const char *root = 0, *command, *id;
	int option = 0;

	for (char **e = env; *e; e++)
		if (after(*e, "NOTIFY_SOCKET=")) /* runc passes it on */
			return 0;
	for (; *arg && **arg == '-'; arg++) {
		int is_root = same(*arg, "--root");
		if (!is_root && !same(*arg, "--log") && !same(*arg, "--log-format"))
			return 0;
		if (!*++arg)
			return 0;
		if (is_root)
			root = *arg;
	}
	if (!root || root[0] != '/' || !(command = *arg++))
		return 0;
	if (*arg && ((same(command, "kill") && same(*arg, "--all")) || (same(command, "delete") && same(*arg, "--force")))) {
		option = 1;
		arg++;
	}
	if (!(id = *arg++) || !*id || *id == '-' || *id == '.')
		return 0;
	for (const char *s = id; *s; s++)
		if (*s == '/')
			return 0;
	if (length(root) + length(id) > MAX_PATH - 64) /* room for names in it */
		return 0;
	append(append(append(0, root), "/"), id);
	for (unsigned long i = 0; (folder[i] = path[i]); i++)
		;
	if (same(command, "kill"))
		return arg[0] && !arg[1] && kill_container(option, number(arg[0], 0));
	if (arg[0])
		return 0;
	if (same(command, "start"))
		return start_container();
	return same(command, "delete") && delete_container(option);
}

__attribute__((used)) void start(long *stack)
{
	static const char failed[] = "cannot execute runc: the link to it next to this program, with .program in its name, is broken\n";
	long argc = stack[0];
	char **argv = (char **)(stack + 1), **env = argv + argc + 1;

	if (argc > 1 && work(argv + 1, env))
		call(NR_EXIT_GROUP, 0, 0, 0, 0, 0);
	if (argc > 0 && length(argv[0]) < MAX_PATH - 64) {
		append(append(0, argv[0]), ".program");
		call(NR_EXECVE, (long)path, (long)argv, (long)env, 0, 0);
	}
	call(NR_WRITE, 2, (long)failed, sizeof(failed) - 1, 0, 0);
	call(NR_EXIT_GROUP, 127, 0, 0, 0, 0);
}
