package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/words"
	"monopod/apiserver/why"
)

// Report contains the status, and warnings about what needs attention.
type Report struct {
	Ready    bool           `json:"ready"`
	Process  Process        `json:"process"`
	Nodes    []Node         `json:"nodes"`
	Pods     map[string]int `json:"pods"` // by phase
	Expires  []Certificate  `json:"certificates"`
	Warnings []string       `json:"warnings"` // sentences
}

// Node is a node of the cluster.
type Node struct {
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	CPU     string `json:"cpu"`
	Memory  string `json:"memory"`
	Runtime string `json:"runtime"`
	Pods    int    `json:"pods"` // number of pods that have not ended
}

// Certificate is a certificate in use.
type Certificate struct {
	Name     string    `json:"name"`
	NotAfter time.Time `json:"notAfter"`
}

const (
	// expiryWarning is how long before it expires a certificate needs attention. The server renews its own long before.
	expiryWarning = 14 * 24 * time.Hour
	// minFree is the share of the disk below which free space needs attention: 1/minFree.
	minFree = 10
	// maxPods is the maximum number of pods that have a warning of their own.
	maxPods = 5
)

// Of returns the Report of the facts.
func Of(f Facts) Report {
	r := Report{Ready: true, Process: f.Process, Pods: map[string]int{}, Warnings: []string{}}
	for line := range strings.Lines(f.Health) {
		line = strings.TrimSpace(line)
		if failed, ok := strings.CutPrefix(line, "[-]"); ok {
			r.Ready = false
			r.warn("The check %s.", failed)
		} else if degraded, ok := strings.CutPrefix(line, "[!]"); ok {
			r.warn("The check %s.", degraded)
		}
	}
	on := map[string]int{}
	var bad []string
	for _, p := range f.Pods {
		r.Pods[string(p.Status.Phase)]++
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		on[p.Spec.NodeName]++
		if h := why.HealthOf(&p, f.Now); h.State == why.Bad {
			bad = append(bad, fmt.Sprintf("Pod %s/%s: %s. Ask: monopod why pod/%s -n %s", p.Namespace, p.Name, h.Reason, p.Name,
				p.Namespace))
		}
	}
	for _, n := range f.Nodes {
		r.node(n, on[n.Name])
	}
	if len(f.Nodes) == 0 && f.Process.Runtime != "none" {
		r.Ready = false
		r.warn("No node is registered yet.")
	}
	if d := f.Process.Disk; d != nil && d.Free < d.Total/minFree {
		r.warn("Only %s of %s are free for %s.", words.Bytes(int64(d.Free)), words.Bytes(int64(d.Total)),
			f.Process.DataDir)
	}
	for _, c := range f.Certificates {
		r.Expires = append(r.Expires, Certificate{Name: c.Name, NotAfter: c.NotAfter})
		switch left := c.NotAfter.Sub(f.Now); {
		case left <= 0:
			r.warn("The certificate %s expired on %s: monopod certs rotate", c.Name, c.NotAfter.Format(time.DateOnly))
		case left < expiryWarning:
			r.warn("The certificate %s expires on %s: monopod certs rotate", c.Name, c.NotAfter.Format(time.DateOnly))
		}
	}
	slices.Sort(bad)
	r.Warnings = append(r.Warnings, bad[:min(len(bad), maxPods)]...)
	if more := len(bad) - maxPods; more > 0 {
		r.warn("%s more cannot run: kubectl get pods -A", words.Count(more, "pod"))
	}
	return r
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func (r *Report) node(n corev1.Node, pods int) {
	out := Node{
		Name: n.Name, CPU: n.Status.Capacity.Cpu().String(), Memory: words.Bytes(n.Status.Capacity.Memory().Value()),
		Runtime: n.Status.NodeInfo.ContainerRuntimeVersion, Pods: pods,
	}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			if out.Ready = c.Status == corev1.ConditionTrue; !out.Ready {
				r.Ready = false
				r.warn("Node %s is not ready: %s. Ask: monopod why node/%[1]s", n.Name, words.Reason(c.Reason, c.Message))
			}
		case c.Status == corev1.ConditionTrue:
			r.warn("Node %s has the condition %s: %s.", n.Name, c.Type, words.Reason(c.Reason, c.Message))
		}
	}
	if n.Spec.Unschedulable {
		r.warn("Node %s takes no new pods: kubectl uncordon %[1]s", n.Name)
	}
	r.Nodes = append(r.Nodes, out)
}
