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
 * then does not change what runc does. It never reports an error of its own. Before a create, which is runc's, it has
 * the kernel prepare the move of the container into its cgroups.
 */

#define BEHIND "runc"
#include "base.h"

/* Writes the path of a process's file in /proc, a name of at most 20 bytes. */
static void in_proc(char *to, long pid, const char *name)
{
	to += put(to, "/proc/");
	to += decimal(to, pid);
	put(to, name);
}

/* Returns the third field of a process's stat, its state, and all after it; null if it cannot be read. */
static const char *stat_of(long pid)
{
	static char stat[1024];
	char file[48];
	const char *s = 0;

	in_proc(file, pid, "/stat");
	if (slurp(file, stat, sizeof(stat) - 1) < 0)
		return 0;
	for (const char *p = stat; *p; p++) /* the name before may contain anything */
		if (*p == ')')
			s = p;
	return s && s[1] == ' ' ? s + 2 : 0;
}

enum { POLLIN = 1, SIGKILL = 9, SIGRTMAX = 64, POLL_MS = 100 };

static char folder[MAX_PATH]; /* of the container */

/* Sets path to a file of the container's folder. */
static int in_folder(const char *name) { return append(append(0, folder), name) != 0; }

/* The first process of the container, as state.json has it. */
static struct { long pid, began; } init;

/* Reports whether the first process lives: 1, 0 if it is dead, -1 if that is unknown. */
static int alive(void)
{
	const char *s = stat_of(init.pid);

	if (!s) { /* only a process that does not exist is dead */
		char file[48];
		in_proc(file, init.pid, "/stat");
		return call(NR_FACCESSAT, AT_FDCWD, (long)file, 0, 0, 0) == -ENOENT ? 0 : -1;
	}
	char is = *s;
	for (int field = 3; field < 22; field++) { /* to the 22nd, the start time */
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
	if (!in_folder("/state.json") || slurp(path, text, MAX_TEXT) <= 0)
		return 0;
	init.pid = number(find("\"init_process_pid\":"), ',');
	init.began = number(find("\"init_process_start\":"), ',');
	return init.pid > 1 && init.began > 0 && after(text, "{\"id\":\"");
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
	if (same(command, "create")) {
		hurry_cgroups();
		return 0;
	}
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
