// Package agent runs the pods bound to one node, like a kubelet.
//
// A pod is a pod.Pod (package pod): changes go to its inbox, and its worker brings it to its desired state. This
// package is the node around the pods: it creates the parts and connects them (assemble.go, podnode.go), passes
// changes on (loop.go), and does what concerns all pods.
//
//	source ── pods of the API ──┐                     ┌── Runtime (cri, fake)
//	static ─── pods of files ───┼── loop → pods → Pod ├── volumes, cgroups, images
//	Runtime.Events, relist ─────┘                     └── StatusWriter → API
//
// In the order in which a pod passes through them:
//
//   - loop: receives pods from the API and from files, and events of the runtime; it never
//     waits (loop.go; runtime/relist lists the runtime's pods for it; statics.go handles static
//     pods)
//   - pods: all pods by UID and by name (pods.go)
//   - admitter: admits pods, one after the other (admit.go)
//   - sweeper: removes leftovers of a crash or an earlier start (sweep.go)
//   - Agent: answers requests to the node about its pods and their usage (serve.go)
//
// Node (node.go) runs the agent on the configured runtime: an existing containerd, a containerd that Monopod starts, or
// the fake runtime in memory. limit.go limits how many pods start or stop at the same time.
//
// The packages below do not import this one:
//
//   - host: the machine; podapi: configs, environment and status of a pod, without state
//   - source: the pods of the API, static pods of files, and their mirror pods
//   - predicates: whether a pod fits on the node
//   - pod: one pod: its worker, the parts of the worker, and its plan
//   - runtime: the interface of a container runtime in CRI's words, with implementations over containerd and in memory
//   - images: pulls, imported archives, garbage collection
//   - storage: volumes, claims, the provisioner of local volumes, tokens, certificates
//   - network: the pod network, Services, DNS, NetworkPolicies, ingress
//   - resources: cgroups, exclusive CPUs, memory of NUMA nodes, devices
//   - stats: usage of the node and its pods; pressure: eviction; logs: log files and their rotation
//   - node: the Node object and its lease, shutdown, the kubelet's server and its streams
package agent
