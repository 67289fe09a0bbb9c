/*
 * The CNI plugin that containerd runs for each sandbox. It passes its environment
 * and its standard input to the running monopod, and prints what that answers.
 * Without an answer it executes the monopod program, which does the work itself.
 * It uses no library: containerd starts it four times for each pod, and this
 * program starts in less than a millisecond.
 *
 * Both names are next to the plugin's folder, which argv[0] contains:
 *   ../plugin/socket   where monopod listens; see server.go for the messages
 *   ../plugin/monopod  the monopod program
 *
 * Build (stub_test.go does the same and compares):
 *   gcc                   $FLAGS -o stub_amd64 stub.c
 *   aarch64-linux-gnu-gcc $FLAGS -o stub_arm64 stub.c
 *   arm-linux-gnueabihf-gcc $FLAGS -o stub_arm stub.c
 *   riscv64-linux-gnu-gcc $FLAGS -o stub_riscv64 stub.c
 * with FLAGS = -Os -static -nostdlib -ffreestanding -fno-stack-protector
 *   -fno-asynchronous-unwind-tables -fno-pie -no-pie -fno-tree-loop-distribute-patterns
 *   -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s
 */

#if defined(__x86_64__)
enum {
	NR_READ = 0, NR_WRITE = 1, NR_SOCKET = 41, NR_CONNECT = 42, NR_SENDTO = 44, NR_RECVFROM = 45,
	NR_SETSOCKOPT = 54, NR_EXECVE = 59, NR_CHDIR = 80, NR_EXIT_GROUP = 231, NR_DUP3 = 292,
	NR_MEMFD_CREATE = 319, NR_LSEEK = 8, NR_CLOSE = 3
};

__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall start\n");

static long call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
enum {
	NR_DUP3 = 24, NR_CHDIR = 49, NR_CLOSE = 57, NR_LSEEK = 62, NR_READ = 63, NR_WRITE = 64,
	NR_EXIT_GROUP = 94, NR_SOCKET = 198, NR_CONNECT = 203, NR_SENDTO = 206, NR_RECVFROM = 207,
	NR_SETSOCKOPT = 208, NR_EXECVE = 221, NR_MEMFD_CREATE = 279
};

__asm__(".globl _start\n_start:\n\tmov x29, xzr\n\tmov x30, xzr\n\tmov x0, sp\n\tbl start\n");

static long call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}
#elif defined(__arm__)
enum {
	NR_READ = 3, NR_WRITE = 4, NR_CLOSE = 6, NR_EXECVE = 11, NR_CHDIR = 12, NR_LSEEK = 19, NR_EXIT_GROUP = 248,
	NR_SOCKET = 281, NR_CONNECT = 283, NR_SENDTO = 290, NR_RECVFROM = 292, NR_SETSOCKOPT = 294, NR_DUP3 = 358,
	NR_MEMFD_CREATE = 385
};

__asm__(".arm\n.globl _start\n_start:\n\tmov fp, #0\n\tmov r0, sp\n\tbl start\n");

static long call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r7 __asm__("r7") = nr;
	register long r0 __asm__("r0") = a;
	register long r1 __asm__("r1") = b;
	register long r2 __asm__("r2") = c;
	register long r3 __asm__("r3") = d;
	register long r4 __asm__("r4") = e;
	register long r5 __asm__("r5") = f;

	__asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
	return r0;
}
#elif defined(__riscv)
enum {
	NR_DUP3 = 24, NR_CHDIR = 49, NR_CLOSE = 57, NR_LSEEK = 62, NR_READ = 63, NR_WRITE = 64,
	NR_EXIT_GROUP = 94, NR_SOCKET = 198, NR_CONNECT = 203, NR_SENDTO = 206, NR_RECVFROM = 207,
	NR_SETSOCKOPT = 208, NR_EXECVE = 221, NR_MEMFD_CREATE = 279
};

/* The linker addresses data relative to gp. */
__asm__(".globl _start\n_start:\n\t.option push\n\t.option norelax\n\tla gp, __global_pointer$\n\t.option pop\n"
	"\tmv a0, sp\n\tcall start\n");

static long call(long nr, long a, long b, long c, long d, long e, long f)
{
	register long a7 __asm__("a7") = nr;
	register long a0 __asm__("a0") = a;
	register long a1 __asm__("a1") = b;
	register long a2 __asm__("a2") = c;
	register long a3 __asm__("a3") = d;
	register long a4 __asm__("a4") = e;
	register long a5 __asm__("a5") = f;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5) : "memory");
	return a0;
}
#else
#error "stub: add this machine's system calls"
#endif

enum {
	AF_UNIX = 1, SOCK_STREAM = 1, SOCK_CLOEXEC = 02000000, SOL_SOCKET = 1, SO_RCVTIMEO = 20, SO_SNDTIMEO = 21,
	MSG_NOSIGNAL = 0x4000, MSG_WAITALL = 0x100, EINTR = 4
};

/* Limits of server.go. */
enum { MAX_REQUEST = 128 << 10, MAX_REPLY = 64 << 10, MAGIC = 0x31504e4d /* MNP1 */ };

/* Bounds of one system call: sending, and each of the two that receive. */
enum { SEND_SECONDS = 2, REPLY_SECONDS = 10 };

struct header { unsigned int magic, head, body; };  /* sizes of the two parts of a request */
struct status { unsigned int magic, code, body; };  /* exit code, size of the output */

static struct { struct header header; char data[MAX_REQUEST]; } request;
static struct { struct status status; char data[MAX_REPLY]; } reply;

static unsigned long length(const char *s)
{
	unsigned long n = 0;

	while (s[n])
		n++;
	return n;
}

static long recv_all(long fd, void *p, unsigned long n)
{
	return call(NR_RECVFROM, fd, (long)p, n, MSG_WAITALL, 0, 0) == (long)n;
}

static int write_all(long fd, const char *p, unsigned long n)
{
	while (n > 0) {
		long done = call(NR_WRITE, fd, (long)p, n, 0, 0, 0);
		if (done == -EINTR)
			continue;
		if (done <= 0)
			return 0;
		p += done;
		n -= done;
	}
	return 1;
}

static long read_some(char *p, unsigned long n)
{
	long got;

	do
		got = call(NR_READ, 0, (long)p, n, 0, 0, 0);
	while (got == -EINTR);
	return got;
}

/* Appends s with its final zero; 0 if there is no room. */
static int append(unsigned long *size, const char *s, unsigned long n)
{
	if (n >= MAX_REQUEST - *size)
		return 0;
	for (unsigned long i = 0; i < n; i++)
		request.data[(*size)++] = s[i];
	request.data[(*size)++] = 0;
	return 1;
}

/* Asks monopod; returns only if there is no answer. */
static void ask(unsigned long size)
{
	static const struct { unsigned short family; char path[18]; } address = { AF_UNIX, "../plugin/socket" };
	static const long send_timeout[2] = { SEND_SECONDS, 0 }, reply_timeout[2] = { REPLY_SECONDS, 0 };
	long fd = call(NR_SOCKET, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0, 0);

	if (fd < 0)
		return;
	call(NR_SETSOCKOPT, fd, SOL_SOCKET, SO_SNDTIMEO, (long)send_timeout, sizeof(send_timeout), 0);
	call(NR_SETSOCKOPT, fd, SOL_SOCKET, SO_RCVTIMEO, (long)reply_timeout, sizeof(reply_timeout), 0);
	if (call(NR_CONNECT, fd, (long)&address, sizeof(address), 0, 0, 0) == 0 &&
	    call(NR_SENDTO, fd, (long)&request, size, MSG_NOSIGNAL, 0, 0) == (long)size &&
	    recv_all(fd, &reply.status, sizeof(reply.status)) && reply.status.magic == MAGIC &&
	    reply.status.body <= MAX_REPLY && recv_all(fd, reply.data, reply.status.body)) {
		if (!write_all(1, reply.data, reply.status.body))
			reply.status.code = 1;
		call(NR_EXIT_GROUP, reply.status.code, 0, 0, 0, 0, 0);
	}
	/* Monopod stops working on a request whose connection is closed, or finishes it first. */
	call(NR_CLOSE, fd, 0, 0, 0, 0, 0);
}

/* Puts back what was read of standard input, and the rest of it. */
static int refill(const char *p, unsigned long n, int more)
{
	long fd = call(NR_MEMFD_CREATE, (long)"stdin", 0, 0, 0, 0, 0);

	if (fd < 0 || !write_all(fd, p, n))
		return 0;
	while (more) {
		long got = read_some(reply.data, MAX_REPLY);
		if (got < 0 || (got > 0 && !write_all(fd, reply.data, got)))
			return 0;
		more = got > 0;
	}
	return call(NR_LSEEK, fd, 0, 0, 0, 0, 0) == 0 && call(NR_DUP3, fd, 0, 0, 0, 0, 0) == 0;
}

static void fail(const char *why)
{
	static const char head[] = "{\"code\": 999, \"msg\": \"";

	write_all(1, head, sizeof(head) - 1);
	write_all(1, why, length(why));
	write_all(1, "\"}\n", 3);
	call(NR_EXIT_GROUP, 1, 0, 0, 0, 0, 0);
}

__attribute__((used)) void start(long *stack)
{
	long argc = stack[0];
	char **argv = (char **)(stack + 1), **env = argv + argc + 1;
	unsigned long size = 0, head, slash = 0;
	int complete, ended = 0;

	if (argc < 1)
		fail("the plugin was started without its name");
	for (unsigned long i = 0; argv[0][i]; i++)
		if (argv[0][i] == '/')
			slash = i + 1;
	if (slash > 0) {
		char at = argv[0][slash];
		argv[0][slash] = 0;
		long failed = call(NR_CHDIR, (long)argv[0], 0, 0, 0, 0, 0);
		argv[0][slash] = at;
		if (failed)
			fail("cannot enter the folder of the plugin");
	}

	complete = append(&size, argv[0] + slash, length(argv[0] + slash));
	for (char **e = env; *e; e++)
		if ((*e)[0] == 'C' && (*e)[1] == 'N' && (*e)[2] == 'I' && (*e)[3] == '_')
			complete = complete && append(&size, *e, length(*e));
	head = size;
	while (complete && !ended && size < MAX_REQUEST) {
		long got = read_some(request.data + size, MAX_REQUEST - size);
		if (got < 0)
			fail("cannot read the network configuration");
		ended = got == 0;
		size += got;
	}
	request.header.magic = MAGIC;
	request.header.head = head;
	request.header.body = size - head;
	if (ended)
		ask(sizeof(request.header) + size);
	if (!refill(request.data + head, size - head, !ended))
		fail("cannot pass on the network configuration");
	call(NR_EXECVE, (long)"../plugin/monopod", (long)argv, (long)env, 0, 0, 0);
	fail("monopod does not run, and its program cannot be executed");
}
