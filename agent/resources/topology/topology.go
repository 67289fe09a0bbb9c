// Package topology aligns the exclusive resources of containers: CPUs, memory and
// devices. Providers allocate them. The Manager collects the hints of all providers,
// decides by its policy which NUMA nodes are best for all of them, or rejects the
// pod, and then makes each provider allocate.
//
//   - Nodes, Hint: the NUMA nodes from which a request can be served.
//   - Provider: an allocator.
//   - Config, Manager: the policy, and the interface to the agent.
//   - merge.go: the decision, which is pure.
//
// With policy none no hints are collected.
package topology

import (
	"context"
	"math/bits"
	"strconv"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/podapi/spec"
)

// Nodes is a set of NUMA nodes: bit n is the node with the ID n. The empty set means
// no preference.
type Nodes uint64

// NewNodes returns the set of the IDs, which must be below 64.
func NewNodes(ids ...int) Nodes {
	var n Nodes
	for _, id := range ids {
		n |= 1 << id
	}
	return n
}

// Has reports whether the node is in the set.
func (n Nodes) Has(id int) bool { return n&(1<<id) != 0 }

// Count returns the number of nodes in the set.
func (n Nodes) Count() int { return bits.OnesCount64(uint64(n)) }

// IDs returns the nodes in order.
func (n Nodes) IDs() []int {
	var out []int
	for rest := uint64(n); rest != 0; rest &= rest - 1 {
		out = append(out, bits.TrailingZeros64(rest))
	}
	return out
}

// String returns the set in the format of cpuset.mems: 0,1.
func (n Nodes) String() string {
	var out []string
	for _, id := range n.IDs() {
		out = append(out, strconv.Itoa(id))
	}
	return strings.Join(out, ",")
}

// Subsets returns all non-empty subsets, smaller ones first among those with the same
// highest node.
func (n Nodes) Subsets() []Nodes {
	var out []Nodes
	for s := (0 - n) & n; s != 0; s = (s - n) & n {
		out = append(out, s)
	}
	return out
}

// Hint is a set of nodes from which a provider can serve a request.
type Hint struct {
	Nodes     Nodes
	Preferred bool // it has no more nodes than the request needs on an empty machine
}

// Provider allocates exclusive resources to containers. All methods are safe for
// concurrent use; Hints, PodHints and Allocate are called from one goroutine, which
// must not be blocked for long.
type Provider interface {
	// Hints returns, for each resource of the provider that c requests, the nodes
	// that can serve it. No entry or a nil list means no preference; an empty list
	// that isn't nil means that the request cannot be served. A container that
	// already has its share gets hints for that share.
	Hints(pod *corev1.Pod, c *corev1.Container) map[string][]Hint
	// PodHints is Hints for all of the pod's containers together, for scope pod.
	PodHints(pod *corev1.Pod) map[string][]Hint
	// Allocate allocates what c requests, from the hint's nodes if possible. It is
	// called at the pod's admission, for each init container and container in the
	// order of the spec, and again after a restart of the agent: a container that has
	// its share keeps it. An error rejects the pod; a Refusal provides the reason.
	// The allocation must survive a restart before Allocate returns.
	Allocate(ctx context.Context, pod *corev1.Pod, c *corev1.Container, hint Hint) error
	// Allotment returns the provider's part of the config of a container that is
	// about to be created, for the first time or again. It is called for every
	// container, including ephemeral ones.
	Allotment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (spec.Allotment, error)
	// Recover is called once after a start, before Retain, with the existing
	// containers; of each container of a pod the newest instance comes first. A
	// provider whose checkpoint is missing or damaged restores its allocations from
	// the annotations of its Allotments.
	Recover(existing []Container)
	// Release releases the resources of a pod whose containers are dead, or that was rejected, if it has any.
	Release(uid types.UID)
	// Retain releases the pods for which alive is false. It is called once after a
	// start, when the node's pods are known, and before they are admitted.
	Retain(alive func(types.UID) bool)
}

// Container is a container that exists in the runtime.
type Container struct {
	Pod         types.UID
	Container   string
	Annotations map[string]string
}

// RestoreFromAnnotations calls restore with the annotation key of each container that has one, and logs errors.
func RestoreFromAnnotations(log *zap.Logger, existing []Container, key string,
	restore func(c Container, value string) error) {
	for _, c := range existing {
		value := c.Annotations[key]
		if value == "" {
			continue
		}
		if err := restore(c, value); err != nil {
			log.Warn("cannot restore the exclusive resources of a container from its annotation, allocating new ones",
				zap.String("annotation", key),
				zap.String("uid", string(c.Pod)), zap.String("container", c.Container), zap.Error(err))
		}
	}
}

// Refusal is an error of Allocate with a reason for the pod's status; the reason of other errors is
// UnexpectedAdmissionError.
type Refusal interface {
	error
	Reason() string
}
