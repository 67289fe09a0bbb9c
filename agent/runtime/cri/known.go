package cri

import (
	"cmp"
	"sync"
	"time"
)

// owner is the sandbox and pod of a container, and its exit.
type owner struct {
	sandbox string // its own ID for a sandbox
	pod     string // UID
	exit    *exit  // nil while it lives
	oom     bool   // a process in it was OOM-killed
	cgroup  string // its own cgroup; empty if unknown
}

type exit struct {
	code int32
	at   time.Time
}

// known records the owner of every container, because containerd's events contain
// only its ID, and the exited containers, because CRI learns of an exit later.
type known struct {
	mu  sync.Mutex // guards all
	all map[string]owner
}

func (k *known) add(id string, o owner) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string]owner{}
	}
	if old, ok := k.all[id]; ok { // events may be faster than the answer
		o.exit, o.oom, o.cgroup = old.exit, old.oom, cmp.Or(o.cgroup, old.cgroup)
	}
	k.all[id] = o
}

func (k *known) get(id string) (owner, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.all[id]
	return o, ok
}

func (k *known) exit(id string) (exit, bool) {
	o, _ := k.get(id)
	if o.exit == nil {
		return exit{}, false
	}
	return *o.exit, true
}

// exited marks what is known as dead.
func (k *known) exited(id string, e exit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o, ok := k.all[id]; ok {
		o.exit = &e
		k.all[id] = o
	}
}

// starved marks a known container as OOM-killed; first means that it was not before.
func (k *known) starved(id string) (first bool) {
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

func (k *known) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, id)
}

func (k *known) forgetSandbox(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for other, o := range k.all {
		if o.sandbox == id {
			delete(k.all, other)
		}
	}
}
