package cni

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Admit returns when the NetworkPolicies of a pod apply to the addresses that it will get.
type Admit func(ctx context.Context, pod types.NamespacedName, uid types.UID, addrs []netip.Addr) error

// timeout is how long a pod waits for its policies before ADD fails. It is shorter than REPLY_SECONDS of the stub,
// which would then execute the call without this check.
const timeout = 5 * time.Second

// Pod returns the pod that CNI_ARGS names; no name: none.
func Pod(args string) (types.NamespacedName, types.UID) {
	named := map[string]string{}
	for pair := range strings.SplitSeq(args, ";") {
		name, value, _ := strings.Cut(pair, "=")
		named[name] = value
	}
	return types.NamespacedName{Namespace: named["K8S_POD_NAMESPACE"], Name: named["K8S_POD_NAME"]},
		types.UID(named["K8S_POD_UID"])
}

// AdmitAll asks for the pod that CNI_ARGS names; nil: it names none, or nothing is checked.
func AdmitAll(args string, admit Admit) func(addrs []netip.Addr) error {
	pod, uid := Pod(args)
	if admit == nil || pod.Name == "" {
		return nil
	}
	return func(addrs []netip.Addr) error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return admit(ctx, pod, uid, addrs)
	}
}
