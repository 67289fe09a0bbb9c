package ipam

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PodRef identifies the pod of a sandbox; zero: not known.
type PodRef struct {
	types.NamespacedName
	UID types.UID
}

// Connected is a pod with the addresses that the plugin gave it.
type Connected struct {
	Pod   types.NamespacedName
	UID   types.UID
	Addrs []netip.Addr
}

// ConnectedPods returns the pods whose sandboxes exist, including those whose statuses are not written yet. Of several
// sandboxes of a pod, the newest counts.
func (p Pool) ConnectedPods() ([]Connected, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	holders, err := p.Holders()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of pods: %w", err)
	}
	type sandbox struct {
		container string
		created   time.Time
		addrs     []netip.Addr
	}
	newest := map[PodRef]sandbox{}
	for ip, h := range holders {
		info, err := os.Stat(p.File(ip))
		if err != nil || h.Pod.Name == "" || h.Leaked(boot) {
			continue
		}
		switch s := newest[h.Pod]; {
		case s.container == h.Container:
			s.addrs = append(s.addrs, ip)
			newest[h.Pod] = s
		case info.ModTime().After(s.created):
			newest[h.Pod] = sandbox{h.Container, info.ModTime(), []netip.Addr{ip}}
		}
	}
	var out []Connected
	for pod, s := range newest {
		out = append(out, Connected{Pod: pod.NamespacedName, UID: pod.UID, Addrs: s.addrs})
	}
	return out, nil
}
