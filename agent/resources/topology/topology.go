// Package topology gives containers what they have for themselves, so that it lies
// together: processors, memory, devices. Those who give it out are Providers; the
// Manager asks each where it could serve a container from, decides by its policy
// which NUMA nodes are best for all of them, or that none are and the pod is
// refused, and then has each provider allocate.
//
//   - Nodes, Hint: where something could come from.
//   - Provider, Allotment: who gives, and what comes of it in a container's config.
//   - Config, Manager: the policy, and the one place that the agent talks to.
//   - merge.go: the decision, which is pure.
//
// With policy none nobody is asked for hints.
package topology

import (
	"context"
	"math/bits"
	"strconv"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/pod/env"
)

// Nodes is a set of NUMA nodes: bit n is the node with the id n. The empty set
// means that it does not matter.
type Nodes uint64

// NewNodes is the set of the ids, which are below 64.
func NewNodes(ids ...int) Nodes {
	var n Nodes
	for _, id := range ids {
		n |= 1 << id
	}
	return n
}

// Has reports whether the node is in the set.
func (n Nodes) Has(id int) bool { return n&(1<<id) != 0 }

// Count is how many nodes there are.
func (n Nodes) Count() int { return bits.OnesCount64(uint64(n)) }

// IDs are the nodes in order.
func (n Nodes) IDs() []int {
	var out []int
	for rest := uint64(n); rest != 0; rest &= rest - 1 {
		out = append(out, bits.TrailingZeros64(rest))
	}
	return out
}

// String is the set as cpuset.mems takes it: 0,1.
func (n Nodes) String() string {
	var out []string
	for _, id := range n.IDs() {
		out = append(out, strconv.Itoa(id))
	}
	return strings.Join(out, ",")
}

// Subsets are all non-empty subsets, the smaller first among those of one top node.
func (n Nodes) Subsets() []Nodes {
	var out []Nodes
	for s := (0 - n) & n; s != 0; s = (s - n) & n {
		out = append(out, s)
	}
	return out
}

// Hint is a place from which a provider could serve a request.
type Hint struct {
	Nodes     Nodes
	Preferred bool // it spans no more nodes than such a request must
}

// Provider gives containers what they have for themselves. All methods may be
// called at once; Hints, PodHints and Allocate come from one goroutine, which must
// not be held up for long.
type Provider interface {
	// Hints are, for each resource of the provider that c asks for, the places it
	// could come from. No entry and a nil list mean that any place will do; an empty
	// list that isn't nil, that there is none. A container that has its share already
	// gets hints for that share.
	Hints(pod *corev1.Pod, c *corev1.Container) map[string][]Hint
	// PodHints is Hints for all the pod's containers together, for scope pod.
	PodHints(pod *corev1.Pod) map[string][]Hint
	// Allocate gives c what it asks for, from near the hint's nodes if that can be.
	// It is called when the pod is let in, for each init container and container in
	// the order of the spec, and again after the agent has restarted: one that has
	// its share keeps it. An error refuses the pod; one that is a Refusal with its
	// reason. What is given must be remembered across a restart before it returns.
	Allocate(ctx context.Context, pod *corev1.Pod, c *corev1.Container, hint Hint) error
	// Allotment is what comes into the config of a container that is about to be
	// made, be it for the first time or again. It is called for every container,
	// ephemeral ones too.
	Allotment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (Allotment, error)
	// Recover is told once after a start, before Retain, what containers were made
	// with; of each container of a pod the newest comes first. One that does not know
	// who has what, since its file is not there or was damaged, takes it from its notes
	// among the annotations of the Allotments.
	Recover(made []Made)
	// Release takes back what a pod has whose containers are dead, or that was
	// refused. Of one that has nothing, it does nothing.
	Release(uid types.UID)
	// Retain releases the pods for which alive is false. It is called once after a
	// start, as soon as the pods are known that are to run, and before they are let
	// in.
	Retain(alive func(types.UID) bool)
}

// Made is a container that the runtime has.
type Made struct {
	Pod         types.UID
	Container   string
	Annotations map[string]string
}

// TakeBack gives take the notes under key, and says where one cannot be had any more.
func TakeBack(log *zap.Logger, made []Made, key string, take func(c Made, note string) error) {
	for _, c := range made {
		note := c.Annotations[key]
		if note == "" {
			continue
		}
		if err := take(c, note); err != nil {
			log.Warn("a container is given anew what it was made with", zap.String("annotation", key),
				zap.String("uid", string(c.Pod)), zap.String("container", c.Container), zap.Error(err))
		}
	}
}

// Refusal is an error of Allocate with a reason of its own; others are
// UnexpectedAdmissionError.
type Refusal interface {
	error
	Reason() string
}

// Allotment is what a container's config has for what it was given. The zero value
// changes nothing.
type Allotment struct {
	CPUs, Mems  string // cpuset.cpus and cpuset.mems; empty: all
	Exclusive   bool   // CPUs are for this container alone
	Devices     []*cri.Device
	Mounts      []*cri.Mount
	Envs        []env.Var         // those that the spec has too are left out
	Annotations map[string]string // the providers' own notes among them
	CDI         []*cri.CDIDevice
}

// add puts what another provider gives beside it.
func (a *Allotment) add(b Allotment) {
	if b.CPUs != "" {
		a.CPUs = b.CPUs
	}
	if b.Mems != "" {
		a.Mems = b.Mems
	}
	a.Exclusive = a.Exclusive || b.Exclusive
	a.Devices = append(a.Devices, b.Devices...)
	a.Mounts = append(a.Mounts, b.Mounts...)
	a.Envs = append(a.Envs, b.Envs...)
	a.CDI = append(a.CDI, b.CDI...)
	for k, v := range b.Annotations {
		a.Annotate(k, v)
	}
}

// Annotate sets an annotation.
func (a *Allotment) Annotate(key, value string) {
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[key] = value
}
