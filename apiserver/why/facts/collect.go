package facts

import (
	"context"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/kit/nodetunnel"
)

// Reader reads with the rights of the caller. It returns a Forbidden error for objects and logs that the caller may
// not read.
type Reader interface {
	Get(ctx context.Context, ref client.Ref) (client.Object, error)
	List(ctx context.Context, sel client.Selector) ([]client.Object, string, error)
	// Log returns the last lines of a container's log, of its current or its previous instance.
	Log(ctx context.Context, pod *corev1.Pod, container string, previous bool) (string, error)
	// Refuses reports whether a pod refuses TCP connections to a port. It returns false if that is unknown.
	Refuses(ctx context.Context, pod *corev1.Pod, port int32) bool
	// Tunnel returns what the server knows about the tunnel of a node that the caller may read.
	Tunnel(node string) nodetunnel.State
}

// Collect reads the facts about the object at ref. Other objects that the caller may not read are missing from the
// facts, and Hidden names them.
func Collect(ctx context.Context, r Reader, ref client.Ref, now time.Time) (Facts, error) {
	obj, err := r.Get(ctx, ref)
	if err != nil {
		return Facts{}, err
	}
	c := &collector{Facts: Facts{Now: now, Object: obj, Logs: map[string]string{}}, ctx: ctx, r: r}
	c.surroundings()
	for _, p := range c.suspects() {
		c.details(p)
	}
	c.events()
	return c.Facts, c.err
}

// collector reads facts. After an error it reads nothing more.
type collector struct {
	Facts
	ctx context.Context
	r   Reader
	err error
}

// surroundings reads the objects around Object.
func (c *collector) surroundings() {
	ns := c.Object.GetNamespace()
	switch o := c.Object.(type) {
	case *corev1.Pod:
		c.Pods = []*corev1.Pod{o}
	case *appsv1.Deployment:
		sets := owning(o, listOf[*appsv1.ReplicaSet](c, ns, o.Spec.Selector))
		for _, rs := range sets {
			c.Others = append(c.Others, rs)
		}
		c.Pods = slices.DeleteFunc(listOf[*corev1.Pod](c, ns, o.Spec.Selector), func(p *corev1.Pod) bool {
			return !slices.ContainsFunc(sets, func(rs *appsv1.ReplicaSet) bool { return metav1.IsControlledBy(p, rs) })
		})
	case *appsv1.ReplicaSet:
		c.Pods = owning(o, listOf[*corev1.Pod](c, ns, o.Spec.Selector))
	case *appsv1.StatefulSet:
		c.Pods = owning(o, listOf[*corev1.Pod](c, ns, o.Spec.Selector))
	case *appsv1.DaemonSet:
		c.Pods = owning(o, listOf[*corev1.Pod](c, ns, o.Spec.Selector))
	case *batchv1.Job:
		c.Pods = owning(o, listOf[*corev1.Pod](c, ns, o.Spec.Selector))
	case *batchv1.CronJob:
		for _, j := range owning(o, listOf[*batchv1.Job](c, ns, nil)) {
			c.Others = append(c.Others, j)
		}
		if j := c.LastJob(o); j != nil {
			c.Pods = owning(j, listOf[*corev1.Pod](c, ns, j.Spec.Selector))
		}
	case *corev1.Service:
		c.endpoints(o)
		c.connect(o)
	case *networkingv1.Ingress:
		c.others(client.IngressClasses, "", nil)
		for _, b := range Backends(o) {
			if s, ok := c.get(client.Services, ns, b.Name).(*corev1.Service); ok {
				c.endpoints(s)
				c.connect(s)
			}
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			c.webhook(o.Webhooks[i].ClientConfig.Service)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			c.webhook(o.Webhooks[i].ClientConfig.Service)
		}
	case *crd.Definition:
		if at := Conversion(o); at != nil {
			c.webhook(&admissionregistrationv1.ServiceReference{Namespace: at.Namespace, Name: at.Name})
		}
	case *corev1.PersistentVolumeClaim:
		c.Pods = slices.DeleteFunc(listOf[*corev1.Pod](c, ns, nil), func(p *corev1.Pod) bool {
			return !slices.Contains(Claims(p), o.Name)
		})
		c.class(o)
	case *corev1.Node:
		c.others(client.PodDisruptionBudgets, "", nil)
		c.remote(o)
	case *networkingv1.NetworkPolicy:
		c.Pods = listOf[*corev1.Pod](c, ns, &o.Spec.PodSelector)
	case *policyv1.PodDisruptionBudget:
		c.Pods = listOf[*corev1.Pod](c, ns, o.Spec.Selector)
	}
}

// remote reads the lease and the tunnel of a node of another machine, and its pods if it is not ready.
func (c *collector) remote(n *corev1.Node) {
	if c.Tunnel = c.r.Tunnel(n.Name); c.Tunnel.Own {
		return
	}
	c.get(client.Leases, corev1.NamespaceNodeLease, n.Name)
	if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	}) {
		c.Pods = slices.DeleteFunc(listOf[*corev1.Pod](c, metav1.NamespaceAll, nil),
			func(p *corev1.Pod) bool { return p.Spec.NodeName != n.Name })
	}
}

// endpoints reads the endpoints of a Service, and the pods that it might select.
func (c *collector) endpoints(s *corev1.Service) {
	c.others(client.EndpointSlices, s.Namespace, labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.Name}))
	c.others(client.NetworkPolicies, s.Namespace, nil)
	if len(c.Pods) == 0 && len(s.Spec.Selector) > 0 {
		c.Pods = listOf[*corev1.Pod](c, s.Namespace, nil)
	}
}

// maxConnected is the maximum number of pods of a Service to which connections are tried.
const maxConnected = 3

// connect finds ports of a Service's pods that refuse connections although the pods are ready.
func (c *collector) connect(s *corev1.Service) {
	tried := 0
	for _, p := range c.Selected(s) {
		if ready := PodCondition(p, corev1.PodReady); ready == nil || ready.Status != corev1.ConditionTrue ||
			tried == maxConnected {
			continue
		}
		tried++
		for _, port := range s.Spec.Ports {
			if n := TargetPort(p, port); n != 0 && port.Protocol != corev1.ProtocolUDP && port.Protocol != corev1.ProtocolSCTP &&
				c.r.Refuses(c.ctx, p, n) {
				c.Closed = append(c.Closed, PortKey(p, n))
			}
		}
	}
}

// webhook reads the Service of a webhook. at is nil if the webhook has none.
func (c *collector) webhook(at *admissionregistrationv1.ServiceReference) {
	if at == nil {
		return
	}
	if s, ok := c.get(client.Services, at.Namespace, at.Name).(*corev1.Service); ok {
		c.endpoints(s)
	}
}

// class reads the StorageClass of a claim. If a driver has yet to provision the volume, it also reads the driver and
// the pods that provision volumes.
func (c *collector) class(pvc *corev1.PersistentVolumeClaim) {
	name := pvc.Spec.StorageClassName
	if name == nil || *name == "" {
		return
	}
	class, ok := c.get(client.StorageClasses, "", *name).(*storagev1.StorageClass)
	if ok && pvc.Status.Phase == corev1.ClaimPending && class.Provisioner != claim.Provisioner &&
		class.Provisioner != claim.NoProvisioner {
		c.get(client.CSIDrivers, "", class.Provisioner)
		c.podsThat(Provisions)
	}
}

// suspects returns the pods that may explain the state of Object.
func (c *collector) suspects() (out []*corev1.Pod) {
	groups := [][]*corev1.Pod{c.Pods}
	switch o := c.Object.(type) {
	case *corev1.Pod:
		return c.Pods
	case *networkingv1.NetworkPolicy:
		return nil
	case *appsv1.Deployment:
		groups = append(groups, OwnedBy(c.Pods, c.NewestOf(o)))
	case *batchv1.Job, *batchv1.CronJob:
		groups = append(groups,
			slices.DeleteFunc(slices.Clone(c.Pods), func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodFailed }))
	case *corev1.Service:
		groups = [][]*corev1.Pod{c.Selected(o)}
	case *networkingv1.Ingress:
		groups = nil
		for _, s := range Every[*corev1.Service](&c.Facts) {
			groups = append(groups, c.Selected(s))
		}
	case *corev1.PersistentVolumeClaim, *corev1.Node:
		return nil
	}
	for _, g := range groups {
		if p := Worst(g); p != nil && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// details reads a pod's node (all nodes if it has none), the objects that its volumes refer to, and the logs of
// containers that have ended or for which other containers wait.
func (c *collector) details(p *corev1.Pod) {
	if p.Spec.NodeName == "" {
		c.others(client.Nodes, "", nil)
		for _, name := range Claims(p) {
			if pvc, ok := c.get(client.PersistentVolumeClaims, p.Namespace, name).(*corev1.PersistentVolumeClaim); ok {
				c.class(pvc)
			}
		}
		if scheduled := PodCondition(p, corev1.PodScheduled); scheduled != nil &&
			strings.Contains(scheduled.Message, NoFreePorts) {
			for _, other := range listOf[*corev1.Pod](c, metav1.NamespaceAll, nil) {
				if len(SharedPorts(p, other)) > 0 {
					c.Others = append(c.Others, other)
				}
			}
		}
		return
	}
	c.get(client.Nodes, "", p.Spec.NodeName)
	if Unprepared(p) || p.DeletionTimestamp != nil {
		c.drivers(p)
	}
	if Unprepared(p) {
		for _, ref := range Sources(p) {
			c.get(ref.Resource, ref.Namespace, ref.Name)
		}
	}
	for i, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		waitedFor := i < len(p.Status.InitContainerStatuses) && s.State.Running != nil && !s.Ready
		previous := s.State.Terminated == nil && !waitedFor && s.LastTerminationState.Terminated != nil
		if s.State.Terminated == nil && !previous && !waitedFor || s.Ready && s.State.Running != nil {
			continue
		}
		log, err := c.r.Log(c.ctx, p, s.Name, previous)
		if apierrors.IsForbidden(err) {
			c.hide(err)
		} else if err == nil { // a log that no longer exists is no error
			c.Logs[LogKey(p, s.Name)] = log
			c.explainLog(p, log)
		}
	}
}

// explainLog reads what may explain the last lines of a log: policies, Services, and the roles of the pod's service
// account.
func (c *collector) explainLog(p *corev1.Pod, log string) {
	if NoAnswer.MatchString(log) {
		c.others(client.NetworkPolicies, p.Namespace, nil)
	}
	if Unreachable.MatchString(log) {
		c.others(client.Services, metav1.NamespaceAll, nil)
		for _, s := range Every[*corev1.Service](&c.Facts) {
			if Mentions(log, s) && len(s.Spec.Selector) > 0 {
				c.others(client.EndpointSlices, s.Namespace,
					labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.Name}))
				c.others(client.Pods, s.Namespace, labels.SelectorFromSet(s.Spec.Selector))
				c.connect(s)
			}
		}
	}
	if Denied.MatchString(log) {
		c.others(client.RoleBindings, p.Namespace, nil)
		c.others(client.ClusterRoleBindings, "", nil)
	}
}

// events reads the Events about the objects that have been read.
func (c *collector) events() {
	about := []client.Object{c.Object}
	for _, p := range c.Pods {
		about = append(about, p)
	}
	about = append(about, c.Others...)
	ns := c.Object.GetNamespace()
	if ns == "" { // Events about cluster-scoped objects are in the default namespace
		ns = metav1.NamespaceDefault
	}
	byName := map[string][]client.Object{}
	for _, obj := range about {
		byName[obj.GetName()] = append(byName[obj.GetName()], obj)
	}
	for _, e := range listOf[*corev1.Event](c, ns, nil) {
		if slices.ContainsFunc(byName[e.InvolvedObject.Name], func(obj client.Object) bool { return isAbout(e, obj) }) {
			c.Events = append(c.Events, e)
		}
	}
}

// get adds an object to Others and returns it. It returns nil if the object does not exist or may not be read.
func (c *collector) get(resource schema.GroupVersionResource, namespace, name string) client.Object {
	if c.err != nil {
		return nil
	}
	obj, err := c.r.Get(c.ctx, client.Ref{Resource: resource, Namespace: namespace, Name: name})
	switch {
	case apierrors.IsForbidden(err):
		c.hide(err)
		return nil
	case apierrors.IsNotFound(err):
		c.Absent = append(c.Absent, client.Ref{Resource: resource, Namespace: namespace, Name: name})
		return nil
	case err != nil:
		c.err = err
		return nil
	}
	if !slices.ContainsFunc(c.Others, func(o client.Object) bool { return o.GetUID() == obj.GetUID() }) {
		c.Others = append(c.Others, obj)
	}
	return obj
}

// others adds the objects of a list to Others, each once.
func (c *collector) others(resource schema.GroupVersionResource, namespace string, selector labels.Selector) {
	seen := map[types.UID]bool{}
	for _, o := range c.Others {
		seen[o.GetUID()] = true
	}
	for _, o := range c.list(resource, namespace, selector) {
		if !seen[o.GetUID()] {
			c.Others = append(c.Others, o)
		}
	}
}

func (c *collector) list(resource schema.GroupVersionResource, namespace string,
	selector labels.Selector) []client.Object {
	if c.err != nil {
		return nil
	}
	objs, _, err := c.r.List(c.ctx, client.Selector{Resource: resource, Namespace: namespace, Labels: selector})
	switch {
	case apierrors.IsForbidden(err):
		c.hide(err)
	case err != nil:
		c.err = err
	}
	return objs
}

// hide records a Forbidden error in Hidden.
func (c *collector) hide(err error) {
	if text := strings.TrimSpace(err.Error()); !slices.Contains(c.Hidden, text) {
		c.Hidden = append(c.Hidden, text)
	}
}

// listOf lists the objects of a type that a selector selects. A nil selector selects all.
func listOf[T client.Object](c *collector, namespace string, selector *metav1.LabelSelector) (out []T) {
	var zero T
	resource, _ := client.ResourceOf(zero)
	var s labels.Selector
	if selector != nil {
		var err error
		if s, err = metav1.LabelSelectorAsSelector(selector); err != nil { // the API does not store such a selector
			c.err = err
			return nil
		}
	}
	for _, obj := range c.list(resource, namespace, s) {
		if t, ok := obj.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// owning returns the objects that owner controls.
func owning[T client.Object](owner client.Object, objs []T) []T {
	return slices.DeleteFunc(objs, func(o T) bool { return !metav1.IsControlledBy(o, owner) })
}
