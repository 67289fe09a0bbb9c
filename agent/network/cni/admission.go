package cni

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Admit waits until the NetworkPolicies of a pod apply to the addresses that it will get.
type Admit func(ctx context.Context, pod types.NamespacedName, uid types.UID, addrs []netip.Addr) error

// admitTimeout is how long a pod waits for its policies before ADD fails. It is shorter than REPLY_SECONDS of the stub,
// which would then execute the call without this check.
const admitTimeout = 5 * time.Second

// podOf returns the pod that CNI_ARGS names; its name is empty if there is none.
func podOf(args string) (types.NamespacedName, types.UID) {
	named := map[string]string{}
	for pair := range strings.SplitSeq(args, ";") {
		name, value, _ := strings.Cut(pair, "=")
		named[name] = value
	}
	return types.NamespacedName{Namespace: named["K8S_POD_NAMESPACE"], Name: named["K8S_POD_NAME"]},
		types.UID(named["K8S_POD_UID"])
}

// admitPod returns the function that calls admit for the pod that CNI_ARGS names; nil: CNI_ARGS names no pod, or admit
// is nil.
func admitPod(args string, admit Admit) func(addrs []netip.Addr) error {
	pod, uid := podOf(args)
	if admit == nil || pod.Name == "" {
		return nil
	}
	return func(addrs []netip.Addr) error {
		ctx, cancel := context.WithTimeout(context.Background(), admitTimeout)
		defer cancel()
		return admit(ctx, pod, uid, addrs)
	}
}
