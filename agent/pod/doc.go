// Package pod is what one pod of the node is and does.
//
// Pod is the pod as the rest of the node sees it: what others tell it goes to its inbox,
// what they may know of it is safe to read on any goroutine. Its worker makes the pod
// what it should be, on one goroutine, so that a pod is never handled twice at once. A
// worker is made of parts; each has its own state, which it alone writes:
//
//	desired           what is asked for: the specification, its resources, its end
//	observe.Observer  what the runtime has: sandboxes, containers, how they ended
//	images.Images     what is pulled, what failed and is tried again when
//	volumes.Volumes   where volumes lie, why they are not there
//	sandbox.Sandbox   the sandbox, the pod's users and cgroup
//	containers        Starter: starts and the back-off of crashes; Probes; Hooks; Stopper
//	resizer           resources that change while containers run
//	devices           devices that were promised, and their health
//	reporter          the status that was reported last
//	ending            how far the end has come
//	pace.Pace         when the pod is looked at again, and why containers wait
//
// Data flows one way: desired → plan (package plan) → parts → observed → status (package
// status). worker.go reads like the life of a pod, from top to bottom; sync.go is one
// round of it, terminate.go its end. Each step can be done again: an agent may die
// between any two, and so may the runtime, whose death is no failure of a pod.
//
// Node is what a pod needs of the node that it runs on; each part says what it needs of
// it.
package pod
