// Package pod runs one pod of the node.
//
// Pod is the interface for the rest of the node: changes go to its inbox, and its accessors are safe on any
// goroutine. Its worker brings the pod to its desired state, on one goroutine, so that a pod is never processed
// twice at once. A worker consists of parts; each owns its state, which nothing else writes:
//
//	desired           the specification, the allocated resources, whether the pod ends
//	observe.Observer  the sandboxes and containers in the runtime, and how they ended
//	images.Images     pulled images, failed pulls and their retries
//	volumes.Volumes   mounted volumes, failed mounts
//	sandbox.Sandbox   the sandbox, the user namespace and the cgroup
//	containers        Starter: starts and crash backoff; Probes; Hooks; Stopper
//	resizer           resources that change while containers run
//	devices           allocated devices, and their health
//	reporter          the last reported status
//	ending            the progress of the pod's termination
//	pace.Pace         the time of the next sync, and why containers wait
//
// Data flows one way: desired → plan (package plan) → parts → observed → status (package status).
// worker.go contains the life of a pod, from top to bottom; sync.go the rounds of a running pod, terminate.go its
// termination. Each step can be repeated, because the agent may be killed between any two steps. So may the runtime,
// whose death is not a failure of the pod.
//
// Node contains the dependencies of a pod on its node. Each part declares its own.
//
//   - metrics.go: the metrics of a node's pods, with kubelet's names and buckets
//   - statuswriter.go: writes the newest status of each pod to the API at once, like kubelet's status manager; one
//     write of a pod at a time, with retries until the status is stored or the pod is gone
package pod
