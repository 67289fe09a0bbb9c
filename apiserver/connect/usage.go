package connect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/apiserver/kit/bounded"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/metrics"
)

// OwnUsage returns the current usage of the node of this process and its pods; nil if it is not available yet.
type OwnUsage func(ctx context.Context) (*metrics.NodeMetrics, []*metrics.PodMetrics, error)

const (
	// maxUsageCalls limits how many kubelets are asked for their usage at a time.
	maxUsageCalls = 10
	// usageTime limits the time for the usage of one node. An agent needs half a second for its first two samples.
	usageTime = 3 * time.Second
	// usageAge is how long the usage of other machines is used again, so that many autoscalers cost no more than one.
	// metrics-server reads it every 15 s.
	usageAge = 5 * time.Second
	// usageWindow is the window of a kubelet's rates, which the summary does not contain (upstream: metrics-server's
	// kubernetesCadvisorWindow).
	usageWindow = 30 * time.Second
	// maxSummary is the maximum size of a kubelet's summary in bytes, maxSummaryMemory that of the decoded one. A pod
	// needs some 2 KiB.
	maxSummary       = 4 << 20
	maxSummaryMemory = 64 << 20
)

// farUsage is the usage of the nodes of other machines. Its token is held while they are asked, by the first caller;
// the others wait, and share the result.
type farUsage struct {
	token  chan struct{} // contains one token, whose holder may use the fields below
	weigh  *bounded.Weigher
	at     time.Time // zero: not read yet
	result usage
}

type usage struct {
	nodes []*metrics.NodeMetrics
	pods  []*metrics.PodMetrics
}

func newFarUsage() farUsage {
	u := farUsage{token: make(chan struct{}, 1), weigh: &bounded.Weigher{}}
	u.token <- struct{}{}
	return u
}

// Usage returns the current usage of all nodes by name, and of their pods by namespace and name. It asks the kubelets
// of other machines at the same time; a node that does not answer is left out. The results must not be modified.
func (c *Connector) Usage(ctx context.Context) ([]*metrics.NodeMetrics, []*metrics.PodMetrics, error) {
	others, err := c.otherNodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(others) == 0 {
		own, err := c.ownUsage(ctx)
		return own.nodes, own.pods, err
	}
	var far usage
	farErr := guard.Spawn(func() (err error) { far, err = c.usageOf(ctx, others); return err })
	all, err := c.ownUsage(ctx)
	if err != nil && ctx.Err() == nil {
		c.Log.Debug("the usage of this server's node is not available", zap.Error(err))
	}
	err = <-farErr
	guard.Raise(err)
	if err != nil {
		return nil, nil, err
	}
	all.nodes, all.pods = append(all.nodes, far.nodes...), append(all.pods, far.pods...)
	slices.SortFunc(all.nodes, func(a, b *metrics.NodeMetrics) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(all.pods, func(a, b *metrics.PodMetrics) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all.nodes, all.pods, nil
}

func (c *Connector) ownUsage(ctx context.Context) (usage, error) {
	if c.OwnUsage == nil {
		return usage{}, nil
	}
	node, pods, err := c.OwnUsage(ctx)
	if node == nil || err != nil {
		return usage{}, err
	}
	return usage{[]*metrics.NodeMetrics{node}, pods}, nil
}

// otherNodes returns the nodes that do not run in this process, except those that have stopped reporting.
func (c *Connector) otherNodes(ctx context.Context) (others []*corev1.Node, err error) {
	nodes, _, err := c.API.List(ctx, client.Selector{Resource: client.Nodes})
	if err != nil {
		return nil, err
	}
	for _, obj := range nodes {
		if n := obj.(*corev1.Node); !c.runs(n.Name) && !silent(n) {
			others = append(others, n)
		}
	}
	return others, nil
}

// runs reports whether a node runs in this process.
func (c *Connector) runs(node string) bool {
	if c.Node == nil {
		return false
	}
	n, err := c.Node(node)
	return n != nil || err != nil
}

// silent reports whether a node has stopped reporting.
func silent(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// usageOf returns the usage of nodes of other machines, which may be usageAge old.
func (c *Connector) usageOf(ctx context.Context, nodes []*corev1.Node) (usage, error) {
	select {
	case <-ctx.Done():
		return usage{}, ctx.Err()
	case <-c.far.token:
	}
	defer func() { c.far.token <- struct{}{} }()
	if !c.far.at.IsZero() && c.Clock.Since(c.far.at) < usageAge {
		return c.far.result, nil
	}
	pods, err := c.podsOf(ctx, nodes)
	if err != nil {
		return usage{}, err
	}
	var mu sync.Mutex // guards all
	var all usage
	follow.Each(maxUsageCalls, nodes, func(n *corev1.Node) error {
		s, err := c.summary(ctx, n.Name)
		if err != nil {
			c.Log.Debug("the usage of a node is not available", zap.String("node", n.Name), zap.Error(err))
			return nil
		}
		node, measured := measure(n, s, pods[n.Name])
		mu.Lock()
		defer mu.Unlock()
		if node != nil {
			all.nodes = append(all.nodes, node)
		}
		all.pods = append(all.pods, measured...)
		return nil
	})
	if err := ctx.Err(); err != nil {
		return usage{}, err // the nodes were not asked for long enough
	}
	c.far.at, c.far.result = c.Clock.Now(), all
	return all, nil
}

// podsOf returns the pods of nodes by the name of the node.
func (c *Connector) podsOf(ctx context.Context, nodes []*corev1.Node) (map[string]podsByName, error) {
	objs, _, err := c.API.List(ctx, client.Selector{Resource: client.Pods})
	if err != nil {
		return nil, err
	}
	on := map[string]podsByName{}
	for _, n := range nodes {
		on[n.Name] = podsByName{}
	}
	for _, obj := range objs {
		if p := obj.(*corev1.Pod); on[p.Spec.NodeName] != nil {
			on[p.Spec.NodeName][types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
		}
	}
	return on, nil
}

// podsByName are the pods of a node.
type podsByName map[types.NamespacedName]*corev1.Pod

// summary returns the CPU and memory usage of a node of another machine.
func (c *Connector) summary(ctx context.Context, node string) (*statsapi.Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTime)
	defer cancel()
	n, err := c.NodeNamed(ctx, node)
	if err != nil {
		return nil, err
	}
	k, ok := n.(*remoteKubelet)
	if !ok {
		return nil, fmt.Errorf("node %q runs in this process", node)
	}
	resp, err := k.get(ctx, k.url(url.Values{"only_cpu_and_memory": {"true"}}, "stats", "summary"), "nodes", node)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxSummary+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSummary {
		return nil, fmt.Errorf("the summary has more than %d bytes", maxSummary)
	}
	s := &statsapi.Summary{}
	if weight, err := c.far.weigh.JSON(data, s); err != nil {
		return nil, err
	} else if weight > maxSummaryMemory {
		return nil, fmt.Errorf("the summary needs more than %d bytes of memory", maxSummaryMemory)
	}
	return s, json.Unmarshal(data, s)
}

// measure returns the usage of a node and its pods from its kubelet's summary. It leaves out what has no rate yet, and
// pods that the API has not assigned to the node.
func measure(n *corev1.Node, s *statsapi.Summary, pods podsByName) (*metrics.NodeMetrics, []*metrics.PodMetrics) {
	var node *metrics.NodeMetrics
	if used, ok := used(s.Node.CPU, s.Node.Memory); ok {
		node = metrics.NewNode(n.Name, n.Labels, s.Node.CPU.Time.Time, usageWindow, used)
	}
	var out []*metrics.PodMetrics
	for i := range s.Pods {
		of := &s.Pods[i]
		pod := pods[types.NamespacedName{Namespace: of.PodRef.Namespace, Name: of.PodRef.Name}]
		if pod == nil {
			continue
		}
		delete(pods, types.NamespacedName{Namespace: of.PodRef.Namespace, Name: of.PodRef.Name}) // each pod once
		if m := measurePod(pod, of.Containers); m != nil {
			out = append(out, m)
		}
	}
	return node, out
}

// measurePod returns the usage of a pod; nil while that of one of its containers is unknown, as in metrics-server.
func measurePod(pod *corev1.Pod, containers []statsapi.ContainerStats) *metrics.PodMetrics {
	var m *metrics.PodMetrics
	for i := range containers {
		of := &containers[i]
		used, ok := used(of.CPU, of.Memory)
		if !ok {
			return nil
		}
		if m == nil {
			m = metrics.NewPod(pod, of.CPU.Time.Time, usageWindow)
		}
		if at := of.CPU.Time.Truncate(time.Second); at.Before(m.Timestamp.Time) { // the pod is as old as its oldest sample
			m.Timestamp.Time, m.CreationTimestamp.Time = at, at
		}
		m.Containers = append(m.Containers, metrics.ContainerMetrics{Name: of.Name, Usage: used})
	}
	return m
}

func used(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats) (corev1.ResourceList, bool) {
	if cpu == nil || cpu.UsageNanoCores == nil || memory == nil || memory.WorkingSetBytes == nil {
		return nil, false
	}
	return metrics.Usage(*cpu.UsageNanoCores, *memory.WorkingSetBytes), true
}
