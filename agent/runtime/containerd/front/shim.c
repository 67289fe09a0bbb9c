/*
 * The program that containerd executes as containerd-shim-runc-v2, in Go, of which each execution costs 10 to 25 ms of CPU:
 *
 *   ... start     of a sandbox: it makes a socket and executes itself again, as the process that stays and serves it
 *   ... start     of a container in a sandbox: it finds the socket of the sandbox's shim
 *   ... delete    after the end of each: it removes what a shim that crashed left; usually nothing
 *
 * This program makes the socket and executes the one that stays, finds the socket, and deletes where nothing is left. It
 * executes the shim in all other cases: with other arguments (a debugging containerd) or settings (core scheduling), for a
 * container that CRI did not make, and if something fails; what it has done until then is undone, or does not change what
 * the shim does. It never reports an error of its own.
 *
 * That is what the shims of containerd 1.6 and 1.7 do; newer ones get and print something else. Of the options on standard
 * input, the shim looks only for a cgroup of its own, which Monopod's config does not set.
 */

#define BEHIND "the shim"
#include "base.h"

enum {
	AF_UNIX = 1, SOCK_STREAM = 1, BACKLOG = 65535, F_SETFD = 2,
	CLOCK_REALTIME = 0, KILLED = 128 + 9, MAX_NAME = 128, MAX_OOM = 1000
};

/* The arguments. */
static const char *namespace, *address, *id, *bundle;

static struct { unsigned short family; char path[108]; } name;
static char url[128]; /* of the socket */

/* Reports whether s is a name: what containerd allows for containers and namespaces. */
static int is_name(const char *s, char end)
{
	int n = 0;

	for (; *s != end; s++, n++)
		if (!(*s >= 'a' && *s <= 'z') && !(*s >= 'A' && *s <= 'Z') && !(*s >= '0' && *s <= '9') &&
		    (n == 0 || (*s != '.' && *s != '_' && *s != '-')))
			return 0;
	return n > 0 && n < MAX_NAME;
}

/* Reports whether s is an absolute path that Go's filepath.Clean does not change. */
static int is_clean(const char *s)
{
	if (*s != '/' || length(s) > MAX_PATH / 2)
		return 0;
	for (; *s; s++)
		if (*s == '/') {
			const char *next = s + 1;
			while (*next == '.') /* no name of more dots occurs */
				next++;
			if (!*next || *next == '/')
				return 0;
		}
	return 1;
}

/* Returns what follows a string of JSON whose content begins at s; null if it does not end. */
static const char *past_string(const char *s)
{
	for (; *s && *s != '"'; s++)
		if (*s == '\\' && !*++s)
			return 0;
	return *s ? s + 1 : 0;
}

/* Returns what follows a value of JSON; null if it does not end. */
static const char *past_value(const char *s)
{
	for (int depth = 0; s && *s;) {
		if (depth == 0 && (*s == ',' || *s == '}' || *s == ']'))
			return s;
		if (*s == '{' || *s == '[')
			depth++;
		else if (*s == '}' || *s == ']')
			depth--;
		s = *s == '"' ? past_string(s + 1) : s + 1;
	}
	return 0;
}

/* Returns the value of a member of an object that Go has written, without spaces; null if there is none. */
static const char *member(const char *object, const char *key)
{
	const char *s = object;

	while (s && (*s == '{' || *s == ',') && s[1] == '"') {
		const char *value = after(s + 2, key);
		if (value && (value = after(value, "\":")))
			return value;
		if ((s = past_string(s + 2)))
			s = *s == ':' ? past_value(s + 1) : 0;
	}
	return 0;
}

static unsigned turned(unsigned x, int by) { return x >> by | x << (32 - by); }

/* Writes the SHA-256 of n bytes, in hexadecimal digits. */
static void hash(const char *s, unsigned long n, char *to)
{
	static const unsigned k[64] = {
		0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
		0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
		0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
		0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
		0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
		0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
		0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
		0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
	};
	unsigned sum[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
	unsigned long total = (n + 8) / 64 * 64 + 64; /* with a bit, and the length in bits */

	for (unsigned long at = 0; at < total;) {
		unsigned w[64], v[8], word = 0;
		for (int i = 0; i < 64; i++, at++) {
			word = word << 8 | (at < n ? (unsigned char)s[at] : at == n ? 0x80 : at >= total - 8 ? n * 8 >> (total - 1 - at) * 8 & 255 : 0);
			w[i / 4] = word;
		}
		for (int i = 16; i < 64; i++)
			w[i] = w[i - 16] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) +
			       w[i - 7] + (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
		for (int i = 0; i < 8; i++)
			v[i] = sum[i];
		for (int i = 0; i < 64; i++) {
			unsigned one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
			unsigned two = (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
			for (int j = 7; j > 0; j--)
				v[j] = v[j - 1];
			v[4] += one;
			v[0] = one + two;
		}
		for (int i = 0; i < 8; i++)
			sum[i] += v[i];
	}
	for (int i = 0; i < 64; i++)
		*to++ = "0123456789abcdef"[sum[i / 8] >> (28 - i % 8 * 4) & 15];
	*to = 0;
}

/* Sets the address of the socket to that of the container's sandbox, whose containers one shim has; 0 if it has none. */
static int find_sandbox(void)
{
	const char *sandbox;
	static char sum[65];

	if (slurp("config.json", text, MAX_TEXT) <= 0 || find("\"io.containerd.runc.v2.group\""))
		return 0;
	sandbox = member(member(text, "annotations"), "io.kubernetes.cri.sandbox-id");
	if (!sandbox || *sandbox++ != '"' || !is_name(sandbox, '"'))
		return 0;
	unsigned long n = append(append(append(append(0, address), "/"), namespace), "/");
	for (; *sandbox != '"'; sandbox++)
		path[n++] = *sandbox;
	hash(path, n, sum);
	n = put(url, "unix://");
	put(url + n + put(url + n, "/run/containerd/s/"), sum);
	name.family = AF_UNIX;
	put(name.path, url + n);
	return 1;
}

/* Writes the address into the bundle, where the shim and a containerd that starts again look for it. */
static int note_address(void)
{
	long fd = call(NR_OPENAT, AT_FDCWD, (long)".address", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666, 0), n = length(url);

	if (fd < 0)
		return 0;
	long got = call(NR_WRITE, fd, (long)url, n, 0, 0);
	call(NR_CLOSE, fd, 0, 0, 0, 0);
	if (got == n && call(NR_RENAMEAT2, AT_FDCWD, (long)".address", AT_FDCWD, (long)"address", 0) == 0)
		return 1;
	call(NR_UNLINKAT, AT_FDCWD, (long)".address", 0, 0, 0);
	return 0;
}

/* Sets the process's OOM score to one more than that of containerd, which is its own until then. */
static int easier_killed(void)
{
	static const char file[] = "/proc/self/oom_score_adj";
	static char score[24];
	long n = slurp(file, score, sizeof(score) - 1), negative = score[0] == '-', is;

	if (n <= 0 || (is = number(score + negative, '\n')) < 0)
		return 0;
	is = negative ? 1 - is : is < MAX_OOM ? is + 1 : is;
	negative = is < 0;
	score[0] = '-';
	n = negative + decimal(score + negative, negative ? -is : is);
	long fd = call(NR_OPENAT, AT_FDCWD, (long)file, O_WRONLY | O_CLOEXEC, 0, 0);
	return fd >= 0 && call(NR_WRITE, fd, (long)score, n, 0, 0) == n;
}

/* Becomes the process that serves the socket, as the shim's own child would: it returns only if that fails. */
static void become_shim(char *program, long socket, char **env)
{
	char *const argv[] = { program, "-namespace", (char *)namespace, "-id", (char *)id, "-address", (char *)address, 0 };

	for (char **e = env; *e; e++)
		if (after(*e, "GOMAXPROCS="))
			*e = "GOMAXPROCS=4";
	if (call(NR_SETPGID, 0, 0, 0, 0, 0) || !easier_killed())
		return;
	long null = call(NR_OPENAT, AT_FDCWD, (long)"/dev/null", O_RDWR | O_CLOEXEC, 0, 0);
	for (int fd = 0; fd < 3; fd++)
		if (call(NR_DUP3, null, fd, 0, 0, 0) != fd)
			return;
	if ((socket == 3 ? call(NR_FCNTL, socket, F_SETFD, 0, 0, 0) : call(NR_DUP3, socket, 3, 0, 0, 0)) < 0)
		return;
	hurry_cgroups(); /* the shim reaps its children */
	call(NR_EXECVE, (long)program, (long)argv, (long)env, 0, 0);
}

/* Makes the socket and the process that serves it. */
static int make_shim(char *program, long socket, char **env)
{
	if (call(NR_LISTEN, socket, BACKLOG, 0, 0, 0) || call(NR_FCHMODAT, AT_FDCWD, (long)name.path, 0600, 0, 0) || !note_address())
		return 0;
	int done[2]; /* its end tells that the program is executed, a byte that this failed */
	char byte = 0;
	if (call(NR_PIPE2, (long)done, O_CLOEXEC, 0, 0, 0))
		return 0;
	long pid = call(NR_CLONE, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		become_shim(program, socket, env);
		call(NR_WRITE, done[1], (long)&byte, 1, 0, 0);
		call(NR_EXIT_GROUP, 127, 0, 0, 0, 0);
	}
	call(NR_CLOSE, done[1], 0, 0, 0, 0);
	return pid > 0 && call(NR_READ, done[0], (long)&byte, 1, 0, 0) == 0;
}

/*
 * Reports whether somebody reaps processes that this one leaves: PID 1, unless it is Monopod, or what else was told to be it
 * in a container, which keeps a zombie for each.
 */
static int reaped(void)
{
	static const char inits[] = "systemd\0init\0tini\0docker-init\0dumb-init\0catatonit\0s6-svscan\0runit\0openrc-init\0dinit\0finit\0procd\0";
	static char name[20];

	if (slurp("/proc/1/comm", name, sizeof(name) - 1) <= 0)
		return 0;
	until(name, '\n');
	for (const char *s = inits; *s; s += length(s) + 1)
		if (same(s, name))
			return 1;
	return 0;
}

/* Prints the address of the shim of the container's sandbox, which it starts if this is the sandbox. */
static int start_shim(char **env)
{
	static char program[MAX_PATH];
	int settings = 0;

	for (char **e = env; *e; e++) {
		if (after(*e, "SCHED_CORE="))
			return 0;
		settings += after(*e, "GOMAXPROCS=") || (after(*e, "TTRPC_ADDRESS=") && !same(*e, "TTRPC_ADDRESS="));
	}
	if (settings != 2 || !find_sandbox() || length(self) > MAX_PATH - 64)
		return 0;
	append(append(0, self), ".program");
	if (call(NR_READLINKAT, AT_FDCWD, (long)path, (long)program, MAX_PATH - 1, 0) <= 0 || *program != '/')
		return 0;
	long size = sizeof(name.family) + length(name.path) + 1;
	long socket = call(NR_SOCKET, AF_UNIX, SOCK_STREAM | O_NONBLOCK | O_CLOEXEC, 0, 0, 0);
	if (socket < 0)
		return 0;
	long failed = call(NR_BIND, socket, (long)&name, size, 0, 0);
	if (failed == -EADDRINUSE) {
		failed = call(NR_CONNECT, socket, (long)&name, size, 0, 0);
		if (failed || !note_address())
			return 0;
		if (reaped())
			hurry_cgroups();
	} else if (failed)
		return 0;
	else if (!make_shim(program, socket, env)) {
		call(NR_UNLINKAT, AT_FDCWD, (long)name.path, 0, 0, 0);
		return 0;
	}
	call(NR_WRITE, 1, (long)url, length(url), 0, 0);
	return 1;
}

/* Writes a number as protobuf's varint, and returns its length. */
static int varint(char *to, unsigned long n)
{
	int at = 0;

	for (; n > 127; n >>= 7)
		to[at++] = n | 128;
	to[at++] = n;
	return at;
}

/* Writes the answer of a container that was killed. */
static int answer_killed(long pid)
{
	char answer[64], *to = answer, *at;
	long now[2];

	if (call(NR_CLOCK_GETTIME, CLOCK_REALTIME, (long)now, 0, 0, 0))
		return 0;
	*to++ = 1 << 3;
	to += varint(to, pid);
	*to++ = 2 << 3;
	to += varint(to, KILLED);
	*to++ = 3 << 3 | 2;
	at = to++; /* the length of the time */
	*to++ = 1 << 3;
	to += varint(to, now[0]);
	*to++ = 2 << 3;
	to += varint(to, now[1]);
	*at = to - at - 1;
	return call(NR_WRITE, 1, (long)answer, to - answer, 0, 0) == to - answer;
}

/* Sets path to a file of the bundle. */
static const char *in_bundle(const char *file) { return append(append(0, bundle), file) ? path : ""; }

/* Reads a file of the bundle. */
static int read_bundle(const char *file) { return slurp(in_bundle(file), text, MAX_TEXT) > 0; }

/* Reports whether the runtime has forgotten the container: crun and runc have a folder for each that they know. */
static int forgotten(void)
{
	const char *last = 0;

	if (!read_bundle("/runtime") || text[0] != '/')
		return 0;
	for (const char *s = text; *s; s++)
		if (*s == '/')
			last = s + 1;
	if (!same(last, "runc") && !same(last, "crun"))
		return 0;
	if (!read_bundle("/options.json") || find("\"root\"")) /* that is not the default one */
		return 0;
	append(append(append(append(0, "/run/containerd/runc/"), namespace), "/"), id);
	return call(NR_FACCESSAT, AT_FDCWD, (long)path, 0, 0, 0) == -ENOENT;
}

/* Deletes a container of which nothing is left. */
static int delete_shim(void)
{
	static char here[MAX_PATH];

	if (call(NR_GETCWD, (long)here, MAX_PATH, 0, 0, 0) <= 0 || !same(here, bundle) || !forgotten())
		return 0;
	long failed = call(NR_UMOUNT2, (long)in_bundle("/rootfs"), 0, 0, 0, 0);
	if (failed != -EINVAL && failed != -ENOENT) /* it was mounted */
		return 0;
	long pid = read_bundle("/init.pid") ? number(text, 0) : -1;
	return pid > 0 && answer_killed(pid);
}

static int work(char **arg, char **env)
{
	const char *publisher = 0;

	for (; *arg && **arg == '-'; arg += 2) {
		const char **to = same(*arg, "-namespace") ? &namespace : same(*arg, "-address") ? &address : same(*arg, "-id") ? &id
				: same(*arg, "-bundle") ? &bundle : same(*arg, "-publish-binary") ? &publisher : 0;
		if (!to || *to || !arg[1])
			return 0;
		*to = arg[1];
	}
	if (!*arg || arg[1] || !namespace || !address || !id || !is_name(namespace, 0) || !is_name(id, 0) || !is_clean(address))
		return 0;
	if (same(*arg, "start"))
		return !bundle && start_shim(env);
	return same(*arg, "delete") && bundle && length(bundle) < MAX_PATH - 64 && delete_shim();
}
