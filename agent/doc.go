// Package agent makes one node run the pods bound to it: kubelet's part.
//
// One Agent has one worker for each pod. What the worker does next is decided by
// pure packages over what is known; what is known comes in as news, and what the
// worker does goes out to the Runtime and the API.
//
//	source ── pods of the API ──┐                         ┌── Runtime (cri, fake)
//	manifests ─ static pods ────┤   loop → worker → round ├── volume, cgroup, image
//	Runtime.Events, relist ─────┤                         └── statuswriter → API
//	probe, timers ──────────────┘
//
// A worker's life is syncing → terminating → terminated (worker.go). While it
// syncs, each round asks plan.For what comes next (sync.go): the sandbox and the
// volumes, then containers one by one (start.go), or a kill (kill.go). At its end
// (terminate.go) containers, sandbox, volumes, cgroup and logs go in this order, the
// final status is stored before what it was made from is gone, and the object is
// deleted last. Every step can be done again: an agent may die between any two.
//
// What pods share is beside the workers: who is let in (admit.go, placement.go,
// devices.go, preempt.go), what is taken from them when the node runs short
// (evict.go), what is swept up (collect.go, sweep.go), the Node object (node.go),
// and the mirrors of static pods (mirror.go).
//
// The packages below know nothing of Agent:
//
//   - what to do: plan, status, spec, env, eviction, garbage, backoff, topology,
//     cpumanager, memorymanager, security
//   - doing it: volume, provision, cgroup, image, preload, probe, logs, token,
//     deviceplugin, statuswriter, userns
//   - telling of it: stats, podresources, socket
//   - reading the machine: host, numa, oom, reserve
//   - state that outlives the process, beside what the runtime's labels say:
//     checkpoint
//   - the runtimes: cri over containerd with cni beneath it, fake in memory;
//     runtimetest is the contract of both, launch runs the agent on one of them
package agent
