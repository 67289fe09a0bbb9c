package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/metrics"
)

// nodesAPI is an API with Nodes and pods.
type nodesAPI struct {
	API
	nodes, pods []client.Object
	lists       atomic.Int32 // of pods
}

func (a *nodesAPI) List(_ context.Context, sel client.Selector) ([]client.Object, string, error) {
	if sel.Resource == client.Pods {
		a.lists.Add(1)
		return a.pods, "", nil
	}
	return a.nodes, "", nil
}

func (a *nodesAPI) Get(_ context.Context, ref client.Ref) (client.Object, error) {
	for _, n := range a.nodes {
		if n.GetName() == ref.Name {
			return n, nil
		}
	}
	return nil, errors.New("no such node")
}

func (a *nodesAPI) add(nodes ...string) {
	for _, name := range nodes {
		a.nodes = append(a.nodes,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"l": name}}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + name,
			Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: name}}
		a.pods = append(a.pods, pod)
	}
}

// own is the node "own" of this process, whose pod uses 1 CPU.
type own struct{ client.Node }

func (own) find(name string) (client.Node, error) {
	if name == "own" {
		return own{}, nil
	}
	return nil, nil
}

func (own) usage(context.Context) (*metrics.NodeMetrics, []*metrics.PodMetrics, error) {
	at := time.Now()
	return metrics.NewNode("own", nil, at, time.Second, metrics.Usage(1e9, 1<<20)), []*metrics.PodMetrics{metrics.NewPod(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-own"}}, at, time.Second)}, nil
}

// pipes is a tunnel: yamux shares timers between tests, which synctest refuses.
type pipes struct {
	opened chan net.Conn
	closed chan struct{}
}

func (p pipes) Open() (net.Conn, error) {
	at, from := net.Pipe()
	select {
	case p.opened <- from:
		return at, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.opened:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// joined returns a Connector with the node own, and with nodes whose kubelets h serves through tunnels. r.Host is the
// name of the node.
func joined(t *testing.T, h http.HandlerFunc, nodes ...string) (*Connector, *nodesAPI) {
	api := &nodesAPI{}
	api.add("own")
	api.add(nodes...)
	c := New(Config{API: api, Node: own{}.find, OwnUsage: own{}.usage, Clock: clock.RealClock{}, Log: zap.NewNop()})
	for _, name := range nodes {
		to := pipes{make(chan net.Conn), make(chan struct{})}
		srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
		done := make(chan struct{})
		go func() { _ = srv.Serve(to); close(done) }()
		c.tunnels.put(name, "", to, time.Now())
		t.Cleanup(func() { srv.Close(); <-done })
	}
	return c, api
}

// summaryOf is the summary of a node that uses half a CPU and 64 MiB, with its pod and one of the node own.
func summaryOf(node string, at time.Time) string {
	stamp := at.UTC().Format(time.RFC3339)
	used := fmt.Sprintf(`"cpu":{"time":%q,"usageNanoCores":500000000},"memory":{"time":%[1]q,"workingSetBytes":67108864}`,
		stamp)
	pod := func(name string) string {
		return fmt.Sprintf(`{"podRef":{"name":%q,"namespace":"default"},"containers":[{"name":"c",%s}]}`, name, used)
	}
	return fmt.Sprintf(`{"node":{"nodeName":%q,%s},"pods":[%s,%s,%s,{"podRef":{"name":"none","namespace":"default"}}]}`,
		"forged", used, pod("on-"+node), pod("on-own"), pod("on-"+node))
}

func names[T client.Object](all []T) string {
	var out []string
	for _, o := range all {
		out = append(out, o.GetName())
	}
	return strings.Join(out, " ")
}

func TestUsageOfAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		c, api := joined(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if r.URL.RequestURI() != "/stats/summary?only_cpu_and_memory=true" {
				t.Errorf("asked for %s", r.URL)
			}
			fmt.Fprint(w, summaryOf(r.Host, time.Now()))
		}, "far", "near")
		api.add("unconnected")
		nodes, pods, err := c.Usage(t.Context())
		if err != nil || names(nodes) != "far near own" || names(pods) != "on-far on-near on-own" {
			t.Fatalf("nodes %q, pods %q, %v", names(nodes), names(pods), err)
		}
		n, p := nodes[0], pods[0]
		if n.Usage.Cpu().String() != "500m" || n.Usage.Memory().String() != "64Mi" || n.Labels["l"] != "far" ||
			n.Window.Duration != 30*time.Second || !n.Timestamp.Equal(new(metav1.NewTime(time.Now()))) ||
			n.Kind != "NodeMetrics" {
			t.Errorf("node %+v", n)
		}
		if len(p.Containers) != 1 || p.Containers[0].Usage.Cpu().String() != "500m" || p.Labels["app"] != "web" ||
			p.Window.Duration != 30*time.Second || !p.Timestamp.Equal(&n.Timestamp) || p.Kind != "PodMetrics" {
			t.Errorf("pod %+v", p)
		}
		// Callers share a result for a while.
		for range 3 {
			if _, pods, err := c.Usage(t.Context()); err != nil || len(pods) != 3 || asked.Load() != 2 {
				t.Errorf("%d requests, %d pods, %v", asked.Load(), len(pods), err)
			}
		}
		time.Sleep(usageAge)
		if _, _, err := c.Usage(t.Context()); err != nil || asked.Load() != 4 {
			t.Errorf("%d requests after %v, %v", asked.Load(), usageAge, err)
		}
		// A failure of this node leaves only this node out.
		c.OwnUsage = func(context.Context) (*metrics.NodeMetrics, []*metrics.PodMetrics, error) {
			return nil, nil, errors.New("broken")
		}
		if nodes, pods, err := c.Usage(t.Context()); err != nil || names(nodes) != "far near" || len(pods) != 2 {
			t.Errorf("nodes %q, pods %q, %v", names(nodes), names(pods), err)
		}
	})
}

// A kubelet of another machine that listens at a port is asked there.
func TestUsageAtAPort(t *testing.T) {
	t.Parallel()
	c := remote(t, true, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, summaryOf("far", time.Now())) })
	api := &nodesAPI{nodes: []client.Object{c.API.(oneNode).node}}
	api.add("no-port")
	c.API, c.Clock, c.Log = api, clock.RealClock{}, zap.NewNop()
	if nodes, pods, err := c.Usage(t.Context()); err != nil || names(nodes) != "far" || len(pods) != 0 {
		t.Errorf("nodes %q, pods %q, %v", names(nodes), names(pods), err) // the API has no pods on this node
	}
}

// Nodes that hang, fail or send too much are left out. They delay the others by one timeout.
func TestUsageOfBadNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := map[string]http.HandlerFunc{
			"hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			"drips": func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					fmt.Fprint(w, " ")
					_ = http.NewResponseController(w).Flush()
					select {
					case <-r.Context().Done():
					case <-time.After(time.Second):
					}
				}
			},
			"large": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", maxSummary+1)) },
			"heavy": func(w http.ResponseWriter, _ *http.Request) {
				pod := `{"containers":[` + strings.Repeat("{},", 5000) + `{}]},`
				fmt.Fprintf(w, `{"pods":[%s{}]}`, strings.Repeat(pod, 200))
			},
			"fails":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) },
			"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/pods", http.StatusFound) },
			"garbage":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{") },
			"rateless": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"node":{"cpu":{}},"pods":[{}]}`) },
		}
		nodes := []string{"far"}
		for name := range bad {
			nodes = append(nodes, name)
		}
		c, _ := joined(t, func(w http.ResponseWriter, r *http.Request) {
			if h := bad[r.Host]; h != nil {
				h(w, r)
				return
			}
			fmt.Fprint(w, summaryOf(r.Host, time.Now()))
		}, nodes...)
		// A caller that leaves does not change what the others get.
		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if _, _, err := c.Usage(left); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has left: %v", err)
		}
		start := time.Now()
		var wait sync.WaitGroup
		for range 5 { // together
			wait.Go(func() {
				got, pods, err := c.Usage(t.Context())
				if err != nil || names(got) != "far own" || names(pods) != "on-far on-own" {
					t.Errorf("nodes %q, pods %q, %v", names(got), names(pods), err)
				}
			})
		}
		wait.Wait()
		if took := time.Since(start); took != usageTime {
			t.Errorf("it took %v, want %v", took, usageTime)
		}
	})
}

// Many nodes are not asked all at once.
func TestUsageCallsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		var many []string
		for i := range 25 {
			many = append(many, fmt.Sprintf("n%02d", i))
		}
		c, _ := joined(t, func(w http.ResponseWriter, r *http.Request) {
			count(1)
			time.Sleep(time.Second)
			count(-1)
			fmt.Fprint(w, summaryOf(r.Host, time.Now()))
		}, many...)
		nodes, _, err := c.Usage(t.Context())
		if err != nil || len(nodes) != 26 || most != maxUsageCalls {
			t.Errorf("%d nodes, at most %d calls at a time, %v", len(nodes), most, err)
		}
	})
}

// Without other nodes, or if none of them reports, only this node is read: no pods are listed, and an error is one.
func TestUsageOfOneNode(t *testing.T) {
	t.Parallel()
	c, api := joined(t, nil)
	api.add("off")
	api.nodes[1].(*corev1.Node).Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	nodes, pods, err := c.Usage(t.Context())
	if err != nil || names(nodes) != "own" || names(pods) != "on-own" || api.lists.Load() != 0 {
		t.Errorf("nodes %q, pods %q, %d lists, %v", names(nodes), names(pods), api.lists.Load(), err)
	}
	broken := errors.New("broken")
	c.OwnUsage = func(context.Context) (*metrics.NodeMetrics, []*metrics.PodMetrics, error) { return nil, nil, broken }
	if _, _, err := c.Usage(t.Context()); !errors.Is(err, broken) {
		t.Errorf("a failure: %v", err)
	}
	c.OwnUsage = nil
	if nodes, pods, err := c.Usage(t.Context()); err != nil || len(nodes)+len(pods) != 0 {
		t.Errorf("a server without a node: %v, %v, %v", nodes, pods, err)
	}
}
