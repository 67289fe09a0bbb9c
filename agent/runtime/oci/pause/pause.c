/*
 * The first process of every pod sandbox: it holds the pod's namespaces open,
 * reaps what is left to it where a pod shares its PID namespace, and leaves at
 * once on SIGTERM or SIGINT. It uses no library and no memory of its own.
 *
 * Signals are blocked rather than handled: a blocked signal stays pending even
 * for PID 1, to which the kernel would otherwise not deliver it.
 *
 * Build (pause_test.go does the same and compares):
 *   gcc                     $FLAGS -o pause_amd64 pause.c
 *   aarch64-linux-gnu-gcc   $FLAGS -o pause_arm64 pause.c
 *   arm-linux-gnueabihf-gcc $FLAGS -o pause_arm pause.c
 *   riscv64-linux-gnu-gcc   $FLAGS -o pause_riscv64 pause.c
 * with FLAGS = -Os -static -nostdlib -ffreestanding -fno-stack-protector
 *   -fno-asynchronous-unwind-tables -fno-pie -no-pie -Wl,--build-id=none
 *   -Wl,-n -Wl,-z,noexecstack -s
 */

#if defined(__x86_64__)
enum { NR_RT_SIGPROCMASK = 14, NR_WAIT4 = 61, NR_RT_SIGTIMEDWAIT = 128, NR_EXIT_GROUP = 231 };

static long call(long nr, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
enum { NR_EXIT_GROUP = 94, NR_RT_SIGPROCMASK = 135, NR_RT_SIGTIMEDWAIT = 137, NR_WAIT4 = 260 };

static long call(long nr, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
#elif defined(__arm__)
enum { NR_WAIT4 = 114, NR_RT_SIGPROCMASK = 175, NR_RT_SIGTIMEDWAIT = 177, NR_EXIT_GROUP = 248 };

static long call(long nr, long a, long b, long c, long d)
{
	register long r7 __asm__("r7") = nr;
	register long r0 __asm__("r0") = a;
	register long r1 __asm__("r1") = b;
	register long r2 __asm__("r2") = c;
	register long r3 __asm__("r3") = d;

	__asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2), "r"(r3) : "memory");
	return r0;
}
#elif defined(__riscv)
enum { NR_EXIT_GROUP = 94, NR_RT_SIGPROCMASK = 135, NR_RT_SIGTIMEDWAIT = 137, NR_WAIT4 = 260 };

static long call(long nr, long a, long b, long c, long d)
{
	register long a7 __asm__("a7") = nr;
	register long a0 __asm__("a0") = a;
	register long a1 __asm__("a1") = b;
	register long a2 __asm__("a2") = c;
	register long a3 __asm__("a3") = d;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3) : "memory");
	return a0;
}
#else
#error "pause: add this machine's system calls"
#endif

enum { SIG_BLOCK = 0, SIGINT = 2, SIGTERM = 15, SIGCHLD = 17, WNOHANG = 1 };

#define BIT(sig) (1ULL << ((sig) - 1))

void _start(void)
{
	unsigned long long set = BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGCHLD);

	call(NR_RT_SIGPROCMASK, SIG_BLOCK, (long)&set, 0, sizeof(set));
	for (;;) {
		/* A child may have ended before the mask was set: reap first. */
		while (call(NR_WAIT4, -1, 0, WNOHANG, 0) > 0)
			;
		long sig = call(NR_RT_SIGTIMEDWAIT, (long)&set, 0, 0, sizeof(set));
		if (sig == SIGINT || sig == SIGTERM)
			call(NR_EXIT_GROUP, 0, 0, 0, 0);
	}
}
