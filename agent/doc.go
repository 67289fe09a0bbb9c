// Package agent runs the pods bound to one node: kubelet's part.
//
// A pod is a pod.Pod (package pod): changes go to its inbox, and its worker brings it to its desired state. This
// package is the node around the pods: it creates the parts and connects them (assemble.go, podnode.go), passes
// changes on (loop.go), and does what concerns all pods.
//
//	source ── pods of the API ──┐                     ┌── Runtime (cri, fake)
//	static ─── pods of files ───┼── loop → pods → Pod ├── volume, cgroup, image
//	Runtime.Events, relist ─────┘                     └── statuswriter → API
//
// In the order in which a pod passes through them:
//
//   - loop: receives pods from the API and from files, and events of the runtime; it never
//     waits (loop.go; runtime/relist lists the runtime's pods for it; statics.go handles static
//     pods)
//   - pods: all pods by UID and by name (pods.go)
//   - admitter: admits pods, one after the other (admit.go)
//   - sweeper: removes what a crash or an earlier start has left (sweep.go)
//   - Agent: answers requests to the node about its pods and their usage (serve.go)
//
// The packages below do not import Agent. Each folder is a subject, with its decisions and
// its actions:
//
//   - source: which pods the node runs: those of the API, static pods of files, and their
//     mirror pods in the API
//   - admission: whether a pod is admitted, including its security settings
//   - pod: one pod: its worker; its parts, which own their state: observe, images, volumes,
//     sandbox, containers, pace; its decisions: spec, env, plan, resize, probe, status; and
//     what all pods share: statuswriter, turns and metrics
//   - runtime: the interface of a container runtime, in CRI's words; cri over containerd and
//     fake in memory, runtimetest the contract of both; inventory and pleg list what the
//     runtime has
//   - images: pulls, archives that are imported, garbage and its collector
//   - storage: volume, tree (their files) and mount, claims, the provisioner of local volumes, tokens, certificates
//   - network: cni, the pod network; service, the addresses of Services in the kernel; dns,
//     their names; view, what both follow
//   - resources: cgroup, and exclusive resources of containers: placement, with topology,
//     which asks cpumanager, memorymanager, deviceplugin and dra, for whose plugins pluginwatcher looks; podresources
//     serves them, checkpoint stores them; numa, reserve, amount and userns
//   - pressure: eviction and its evictor, oom
//   - logs: rotation, and the log folders
//   - node: the Node and its lease (registrar), its shutdown, its servers: server (the
//     kubelet's API), stream (logs, exec and similar), stats, socket; host reads the machine
//
// Above all: launch, which runs the agent on one of the two runtimes.
//
//   - node.go: runs the agent on the configured runtime: an existing containerd, Monopod's own, or the fake in memory
//   - turns.go: limits how many callers do something demanding at a time, without letting those that hang block others
//     permanently
package agent
