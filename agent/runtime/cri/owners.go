package cri

import (
	"cmp"
	"sync"
	"time"
)

// owner is the sandbox and pod of a container, and its exit.
type owner struct {
	sandbox string // for a sandbox, its own ID
	pod     string // UID
	exit    *exit  // nil: it has not exited
	oom     bool   // a process in it was OOM-killed
	cgroup  string // of the pod; empty: unknown
}

type exit struct {
	code int32
	at   time.Time
}

// owners records the owner of every container, because containerd's events contain only the ID of the container, and
// its exit, because CRI reports exits later than containerd's events.
type owners struct {
	mu  sync.Mutex // guards all
	all map[string]owner
}

func (k *owners) add(id string, o owner) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string]owner{}
	}
	if old, ok := k.all[id]; ok { // events of a container may arrive before the answer of CreateContainer
		o.exit, o.oom, o.cgroup = old.exit, old.oom, cmp.Or(o.cgroup, old.cgroup)
	}
	k.all[id] = o
}

func (k *owners) get(id string) (owner, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.all[id]
	return o, ok
}

func (k *owners) exit(id string) (exit, bool) {
	o, _ := k.get(id)
	if o.exit == nil {
		return exit{}, false
	}
	return *o.exit, true
}

// markExited records the exit of a known container.
func (k *owners) markExited(id string, e exit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o, ok := k.all[id]; ok {
		o.exit = &e
		k.all[id] = o
	}
}

// markOOM records an OOM kill in a known container; first reports whether it is the first.
func (k *owners) markOOM(id string) (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.all[id]
	if !ok || o.oom {
		return false
	}
	o.oom = true
	k.all[id] = o
	return true
}

func (k *owners) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, id)
}

func (k *owners) forgetSandbox(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for other, o := range k.all {
		if o.sandbox == id {
			delete(k.all, other)
		}
	}
}
