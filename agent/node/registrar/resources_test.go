package registrar

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
)

// registeredBefore is an API with the node of an earlier agent. Writing its status fails.
type registeredBefore struct {
	client.Client
	node corev1.Node
}

var errStatus = errors.New("not now")

func (c *registeredBefore) Get(context.Context, client.Ref) (client.Object, error) {
	return &c.node, nil
}

func (c *registeredBefore) Create(context.Context, client.Object) (client.Object, error) {
	return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "nodes"}, c.node.Name)
}

func (c *registeredBefore) Update(_ context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if ref.Subresource == "status" {
		return nil, errStatus
	}
	return change(c.node.DeepCopy())
}

// Before its first write of the status, Registrar returns a node with the resources of this agent, which admission
// needs, and not with those of an earlier agent, which may have had another --max-pods.
func TestResourcesOfThisAgent(t *testing.T) {
	t.Parallel()
	pods := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	api := &registeredBefore{node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}}}
	api.node.Status.Capacity, api.node.Status.Allocatable = pods(110), pods(110)
	r := &Registrar{cfg: Config{NodeName: "n1"}, Deps: Deps{
		Client: api, Clock: clock.RealClock{}, Log: zap.NewNop(), Recorder: &away{},
		Resources: func() (capacity, allocatable corev1.ResourceList) { return pods(500), pods(500) },
		Offer:     func(*corev1.NodeStatus, *corev1.NodeStatus, bool) {},
	}}
	if err := r.store(t.Context(), corev1.NodeStatus{}); !errors.Is(err, errStatus) {
		t.Fatal(err)
	}
	if now := r.Current(); now.UID != "u" || now.Status.Allocatable.Pods().Value() != 500 ||
		now.Status.Capacity.Pods().Value() != 500 {
		t.Errorf("node %s has the allocatable resources %v", now.UID, now.Status.Allocatable)
	}
	api.node.Spec.Taints = []corev1.Taint{{Key: "new"}}
	if now := r.Latest(t.Context()); len(now.Spec.Taints) != 1 || now.Status.Allocatable.Pods().Value() != 500 {
		t.Errorf("after a change by another client: taints %v, allocatable %v", now.Spec.Taints, now.Status.Allocatable)
	}
	if n := api.node.Status.Allocatable.Pods().Value(); n != 110 {
		t.Errorf("Registrar changed the object of the API: %d pods", n)
	}
}
