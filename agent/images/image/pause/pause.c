/*
 * The first process of every pod sandbox: it holds the pod's namespaces open,
 * reaps what is left to it where a pod shares its PID namespace, and leaves at
 * once on SIGTERM or SIGINT. It uses no library and no memory of its own.
 *
 * Once it has blocked its signals, a filter allows it three system calls and no
 * other. runc's for RuntimeDefault allows hundreds, and takes runc 11 ms of CPU
 * to compile for each sandbox.
 *
 * Signals are blocked rather than handled: a blocked signal stays pending even
 * for PID 1, to which the kernel would otherwise not deliver it.
 *
 * Build (pause_test.go does the same and compares):
 *   gcc                   $FLAGS -o pause_amd64 pause.c
 *   aarch64-linux-gnu-gcc $FLAGS -o pause_arm64 pause.c
 * with FLAGS = -Os -static -nostdlib -ffreestanding -fno-stack-protector
 *   -fno-asynchronous-unwind-tables -fno-pie -no-pie -Wl,--build-id=none
 *   -Wl,-n -Wl,-z,noexecstack -s
 */

#if defined(__x86_64__)
enum { NR_RT_SIGPROCMASK = 14, NR_WAIT4 = 61, NR_RT_SIGTIMEDWAIT = 128, NR_PRCTL = 157, NR_EXIT_GROUP = 231 };

#define AUDIT_ARCH 0xc000003eU /* of linux/audit.h */

static long call(long nr, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = 0;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
enum { NR_EXIT_GROUP = 94, NR_RT_SIGPROCMASK = 135, NR_RT_SIGTIMEDWAIT = 137, NR_PRCTL = 167, NR_WAIT4 = 260 };

#define AUDIT_ARCH 0xc00000b7U

static long call(long nr, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = 0;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
}
#else
#error "pause: add this machine's system calls"
#endif

enum { SIG_BLOCK = 0, SIGINT = 2, SIGTERM = 15, SIGCHLD = 17, WNOHANG = 1 };
enum { PR_SET_SECCOMP = 22, SECCOMP_MODE_FILTER = 2, PR_SET_NO_NEW_PRIVS = 38 };

/* linux/filter.h, and the offsets of linux/seccomp.h's seccomp_data. */
struct sock_filter { unsigned short code; unsigned char jt, jf; unsigned int k; };
struct sock_fprog { unsigned short len; const struct sock_filter *filter; };

enum { LOAD = 0x20, IF_EQUAL = 0x15, RETURN = 0x06, OF_NR = 0, OF_ARCH = 4 };

#define ALLOW 0x7fff0000U
#define REFUSE 0x00050001U

static const struct sock_filter filter[] = {
	{ LOAD, 0, 0, OF_ARCH },
	{ IF_EQUAL, 0, 4, AUDIT_ARCH },
	{ LOAD, 0, 0, OF_NR },
	{ IF_EQUAL, 3, 0, NR_RT_SIGTIMEDWAIT },
	{ IF_EQUAL, 2, 0, NR_WAIT4 },
	{ IF_EQUAL, 1, 0, NR_EXIT_GROUP },
	{ RETURN, 0, 0, REFUSE },
	{ RETURN, 0, 0, ALLOW },
};

#define BIT(sig) (1UL << ((sig) - 1))

void _start(void)
{
	unsigned long set = BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGCHLD);

	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	call(NR_RT_SIGPROCMASK, SIG_BLOCK, (long)&set, 0, sizeof(set));
	/* Refused only by a kernel without seccomp, which has no filter to offer. */
	call(NR_PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0);
	call(NR_PRCTL, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0);
	for (;;) {
		/* A child may have ended before the mask was set: reap first. */
		while (call(NR_WAIT4, -1, 0, WNOHANG, 0) > 0)
			;
		long sig = call(NR_RT_SIGTIMEDWAIT, (long)&set, 0, 0, sizeof(set));
		if (sig == SIGINT || sig == SIGTERM)
			call(NR_EXIT_GROUP, 0, 0, 0, 0);
	}
}
