// Package agent makes one node run the pods bound to it: kubelet's part.
//
// A pod is a pod.Pod (package pod): what others tell it goes to its inbox, and its worker
// makes it what it should be. This package is the node around the pods: it makes the
// parts and ties them together (assemble.go, podnode.go), hands on what changes (loop.go),
// and has what concerns all pods.
//
//	source ── pods of the API ──┐                     ┌── Runtime (cri, fake)
//	static ─── pods of files ───┼── loop → pods → Pod ├── volume, cgroup, image
//	Runtime.Events, relist ─────┘                     └── statuswriter → API
//
// In the order in which a pod meets them:
//
//   - loop: hears of pods, from the API and from files, and of what the runtime has; it
//     never waits (loop.go; relist.go asks the runtime for it; statics.go has the static
//     pods)
//   - pods: all pods by UID and by name (pods.go)
//   - admitter: lets pods in, one after the other (admit.go)
//   - sweeper: removes what a crash or an older life has left (sweep.go)
//   - Agent: what a node answers, of its pods and of what they use (serve.go)
//
// The packages below know nothing of Agent. Each room is a subject, what decides in it
// beside what acts:
//
//   - source: which pods the node is to run: those of the API, static ones of files, and
//     the mirror of these in the API
//   - admission: whether a pod is let in, its security settings included
//   - pod: what one pod is and does: its worker; its parts, which own their state:
//     observe, images, volumes, sandbox, containers, pace; what decides: spec, env, plan,
//     resize, probe, status; statuswriter, turns and metrics, which all pods share
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
