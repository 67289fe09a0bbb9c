// Package agent makes one node run the pods bound to it: kubelet's part.
//
// One Agent has one worker for each pod. What the worker does next is decided by
// pure packages over what is known; what is known comes in as news, and what the
// worker does goes out to the Runtime and the API.
//
//	source ── pods of the API ──┐                         ┌── Runtime (cri, fake)
//	static ─── pods of files ───┤   loop → worker → round ├── volume, cgroup, image
//	Runtime.Events, relist ─────┤                         └── statuswriter → API
//	probe, timers ──────────────┘
//
// A worker's life is syncing → terminating → terminated (worker.go). While it
// syncs, each round asks plan.For what comes next (sync.go): the sandbox and the
// volumes, then containers one by one (start.go), or a kill (kill.go). At its end
// (terminate.go) containers, sandbox, volumes, cgroup and logs go in this order, the
// final status is stored before what it was made from is gone, and the object is
// deleted last. Every step can be done again: an agent may die between any two, and
// so may the runtime, whose death is no failure of a pod (starting.go).
//
// What pods share is beside the workers, in packages of their own; files of this one
// tie them to the workers: who is let in (admit.go, room.go, secure.go), what pods
// have for themselves (own.go, claims.go), what other parts see of a pod, such as the
// evictor (pod.go), what is swept up (collect.go, sweep.go), the end before the
// machine's (drain.go), static pods (statics.go), the making of all these parts
// (prepare.go).
//
// The packages below know nothing of Agent:
//
//   - what to do: plan, resize, status, spec, env, eviction, garbage, admission, amount,
//     cutoff, abilities, backoff, turns, pleg, security
//   - doing it for one pod: volume, mount, cgroup, image, probe, logs, logdir, token,
//     claims, statuswriter, userns
//   - doing it for the node, each with a Run of its own: registrar (Node and lease),
//     evictor, collector, logs.Rotator, provision with its Feed, preload, mirror (static
//     pods in the API), shutdown/logind
//   - what containers have for themselves: placement, over topology, which asks
//     cpumanager, memorymanager and deviceplugin; podresources tells of it
//   - hearing of it: source (the API), static (files), inventory (the runtime), shutdown
//   - telling of it: stats, stream (logs, exec and the like), socket, host/notify (systemd)
//   - reading the machine: host, numa, oom, reserve
//   - state that outlives the process, beside what the runtime's labels say:
//     checkpoint, shutdown/times
//   - memory that is not needed any more goes back to the system: frugal
//
// A Runtime is what package runtime says: cri over containerd, with cni beneath it, or
// fake in memory; runtimetest is the contract of both. Above all: launch, which runs
// the agent on one of them.
package agent
