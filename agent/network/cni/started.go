package cni

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// podRef is the pod of a sandbox, as the runtime names it; zero: not known.
type podRef struct {
	types.NamespacedName
	UID types.UID
}

// Started is a pod with the addresses that the plugin gave it.
type Started struct {
	Pod   types.NamespacedName
	UID   types.UID
	Addrs []netip.Addr
}

// StartedPods returns the pods whose sandboxes live, also those whose statuses are not written yet. Of several sandboxes
// of a pod, the newest counts.
func StartedPods(n Network) ([]Started, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	held, err := n.holders()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of pods: %w", err)
	}
	type sandbox struct {
		container string
		made      time.Time
		addrs     []netip.Addr
	}
	newest := map[podRef]sandbox{}
	for ip, h := range held {
		info, err := os.Stat(n.ipFile(ip))
		if err != nil || h.Pod.Name == "" || h.gone(boot) {
			continue
		}
		switch s := newest[h.Pod]; {
		case s.container == h.Container:
			s.addrs = append(s.addrs, ip)
			newest[h.Pod] = s
		case info.ModTime().After(s.made):
			newest[h.Pod] = sandbox{h.Container, info.ModTime(), []netip.Addr{ip}}
		}
	}
	var out []Started
	for pod, s := range newest {
		out = append(out, Started{Pod: pod.NamespacedName, UID: pod.UID, Addrs: s.addrs})
	}
	return out, nil
}
