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
// The packages below know nothing of Agent. Each room is a subject, what decides in it
// beside what acts:
//
//   - source: which pods the node is to run: those of the API, static ones of files, and
//     the mirror of these in the API
//   - admission: whether a pod is let in, its security settings included
//   - pod: what one pod is to be and is: spec, env, plan, resize, probe, status and who
//     writes it; turns, in which pods start
//   - runtime: what the agent asks of a container runtime, in CRI's words; cri over
//     containerd and fake in memory, runtimetest the contract of both; inventory and pleg
//     tell what the runtime has
//   - images: pulls, archives that are imported at the start, garbage and its collector
//   - storage: volume and mount, claims, the provisioner of local volumes, tokens
//   - network: cni, the pod network
//   - resources: cgroup, and what containers have for themselves: placement, over
//     topology, which asks cpumanager, memorymanager and deviceplugin; podresources tells
//     of it, checkpoint keeps it; numa, reserve, amount and userns
//   - pressure: eviction and its evictor, oom
//   - logs: rotation, and the folders they lie in
//   - node: the Node and its lease (registrar), its shutdown, what it tells: server (what
//     a kubelet serves), stream (logs, exec and the like), stats, socket; host reads the
//     machine
//
// Above all: launch, which runs the agent on one of the two runtimes.
package agent
