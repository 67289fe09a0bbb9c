package machine_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/testdata/harness"
)

// site is a machine in a network namespace of its own, on one network with the others.
type site struct {
	*server
	name, address string
}

// sites returns machines whose addresses are 198.18.0.1, 198.18.0.2 and so on.
func sites(t *testing.T, names ...string) []*site {
	t.Helper()
	harness.NeedsContainerd(t)
	programs := harness.Build(t)
	id := fmt.Sprintf("mp%d%s", os.Getpid(), names[0]) // of this test
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	remove := func(netns string) { _ = exec.Command("ip", "netns", "del", netns).Run() } // also after a failure
	ip("netns", "add", id)
	t.Cleanup(func() { remove(id) })
	ip("-n", id, "link", "add", "switch", "up", "type", "bridge")
	var out []*site
	for i, name := range names {
		dir, err := programs.NewFolder()
		if err != nil {
			t.Fatal(err)
		}
		s := &site{name: name, address: fmt.Sprintf("198.18.0.%d", i+1),
			server: &server{Server: harness.NewServer(programs.Monopod(harness.Plain), dir)}}
		s.Netns = id + name
		ip("netns", "add", s.Netns)
		t.Cleanup(func() { remove(s.Netns) })
		port := fmt.Sprintf("port%d", i)
		ip("-n", id, "link", "add", port, "up", "master", "switch", "type", "veth", "peer", "name", "eth0", "netns", s.Netns)
		ip("-n", s.Netns, "link", "set", "lo", "up")
		ip("-n", s.Netns, "addr", "add", s.address+"/24", "dev", "eth0")
		ip("-n", s.Netns, "link", "set", "eth0", "up")
		t.Cleanup(func() {
			s.CleanUp(true)
			if t.Failed() {
				log := s.Log.String()
				t.Logf("%s: %s", name, log[max(0, len(log)-8<<10):])
			}
			os.RemoveAll(dir)
		})
		out = append(out, s)
	}
	return out
}

// run starts monopod with a command and its flags; without any, as the last time.
func (s *site) run(command ...string) {
	if len(command) > 0 {
		s.Cmd.Args = slices.Concat([]string{"monopod"}, command, []string{"--data-dir", s.Dir, "--node-name", s.name,
			"--eviction-hard", "memory.available<1Mi", "--image-gc-high-threshold", "100"})
	}
	s.Start()
}

// line returns the first line of the output of a command on the site.
func (s *site) line(command ...string) string {
	out, _ := harness.Inside(s.Netns, command...).CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// get returns the first line of the answer to a request from the site.
func (s *site) get(url string) string { return s.line("curl", "-sS", "-m", "3", url) }

// exec runs a command in a pod, and returns the first line of its output.
func (s *site) exec(pod string, command ...string) string {
	return s.line(append([]string{"kubectl", "--kubeconfig", filepath.Join(s.Dir, "admin.kubeconfig"), "exec", pod, "--"},
		command...)...)
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !harness.Eventually(harness.Enough, ok) {
		t.Fatalf("in vain: %s", what)
	}
}

// TestNodes joins two machines to a server. Pods reach each other, Services and names from every node; what the server
// does not see does not stop: a node runs its pods, after a restart, too, while the server is away.
func TestNodes(t *testing.T) {
	t.Parallel()
	all := sites(t, "a", "b", "c")
	a, b := all[0], all[1]
	a.run("serve", "--listen", a.address+":6443")
	if err := a.Ready(); err != nil {
		t.Fatalf("%v\n%s", err, a.Log)
	}
	token, err := exec.Command(a.Cmd.Path, "token", "create", "--data-dir", a.Dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all[1:] {
		s.run(strings.Fields(strings.TrimPrefix(string(token), "monopod "))...)
	}
	for _, s := range all {
		eventually(t, "node "+s.name+" is ready", func() bool { return a.ready(s.name) })
	}

	labels := map[string]string{"app": "web"}
	web := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template("web"),
	}}
	web.Spec.Template.Labels = labels
	a.insist(t, http.MethodPost, "/apis/apps/v1/namespaces/default/daemonsets", web)
	a.insist(t, http.MethodPost, "/api/v1/namespaces/default/services", corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
			Selector: labels, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, TargetPort: intstr.FromInt32(8080)}}}})
	pods := map[string]corev1.Pod{} // by the name of the node
	eventually(t, "a pod on each node is ready", func() bool {
		pods = a.podsByNode()
		return len(pods) == len(all)
	})

	for _, from := range all {
		for _, to := range all {
			// Each pod reaches the others, with its own address: the log of the target names it.
			source, target := pods[from.name], pods[to.name]
			url := "http://" + target.Status.PodIP + ":8080/from-" + source.Name
			if got := a.exec(source.Name, "/web", "get", url); got != "Hello from "+target.Name+"!" {
				t.Errorf("from %s to %s: %s", from.name, to.name, got)
			}
			eventually(t, "the source in the log of "+to.name, func() bool {
				_, log := a.Get(podPath + "/" + target.Name + "/log")
				return strings.Contains(log, "GET /from-"+source.Name+" from "+source.Status.PodIP+":")
			})
			if got := from.get("http://" + to.address + ":30080/"); !strings.HasPrefix(got, "Hello from web-") {
				t.Errorf("the NodePort of %s from %s: %s", to.name, from.name, got)
			}
		}
		if got := a.exec(pods[from.name].Name, "/web", "get",
			"http://web.default.svc.cluster.local/"); !strings.HasPrefix(got, "Hello from web-") {
			t.Errorf("the Service's name from %s: %s", from.name, got)
		}
		if got := a.exec(pods[from.name].Name, "/web", "api", "/version"); got != "{" {
			t.Errorf("the API from %s: %s", from.name, got)
		}
	}

	// The server is gone, and b is restarted.
	before := pods["b"].Status.ContainerStatuses[0].ContainerID
	a.End(syscall.SIGKILL)
	b.End(syscall.SIGKILL)
	b.run("join")
	for range 5 {
		if got := b.get("http://" + pods["b"].Status.PodIP + ":8080/"); got != "Hello from "+pods["b"].Name+"!" {
			t.Errorf("without the server: %s", got)
		}
	}
	a.run()
	if err := a.Ready(); err != nil {
		t.Fatalf("%v\n%s", err, a.Log)
	}
	eventually(t, "b is back", func() bool { return a.ready("b") && b.status() == nil })
	if now := a.podsByNode()["b"].Status.ContainerStatuses; len(now) != 1 || now[0].ContainerID != before {
		t.Errorf("the pod of b was restarted: %+v", now)
	}

	// A node leaves: no route to it is left.
	c := all[2]
	c.End(syscall.SIGTERM)
	out, err := harness.Inside(c.Netns, c.Cmd.Path, "leave", "--data-dir", c.Dir).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("leave: %v: %s", err, out)
	}
	if code, text := a.Get("/api/v1/nodes/c"); code != http.StatusNotFound {
		t.Errorf("the Node of c: %d %s", code, text)
	}
	eventually(t, "the route to c is gone", func() bool {
		out, err := harness.Inside(b.Netns, "ip", "route").CombinedOutput()
		return err == nil && !strings.Contains(string(out), c.address)
	})
}

// ready reports whether a node is ready.
func (s *site) ready(node string) bool {
	var n corev1.Node
	if _, err := s.call(http.MethodGet, "/api/v1/nodes/"+node, nil, &n); err != nil {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && time.Since(c.LastHeartbeatTime.Time) < time.Hour
		}
	}
	return false
}

// podsByNode returns the ready pods of the DaemonSet.
func (s *site) podsByNode() map[string]corev1.Pod {
	var list corev1.PodList
	if _, err := s.call(http.MethodGet, podPath, nil, &list); err != nil {
		return nil
	}
	out := map[string]corev1.Pod{}
	for _, p := range list.Items {
		if isReady(&p) {
			out[p.Spec.NodeName] = p
		}
	}
	return out
}

// status returns an error unless the node is well and a server answers.
func (s *site) status() error {
	out, err := exec.Command(s.Cmd.Path, "status", "--data-dir", s.Dir).CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	return nil
}
