package discovery

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/kind"
)

// verbsOfObject are the resource's verbs, for discovery.
func verbsOfObject(res kind.Resource) []string {
	if res.Verbs != nil {
		return slices.Sorted(slices.Values(res.Verbs))
	}
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// verbsOf are those of a subresource, as upstream lists them.
func verbsOf(sub string) []string {
	switch sub {
	case "binding", "eviction", "token":
		return []string{"create"}
	case "log":
		return []string{"get"}
	case "finalize":
		return []string{"update"}
	case "exec", "attach", "portforward":
		return []string{"create", "get"}
	case "proxy":
		return []string{"create", "delete", "get", "patch", "update"}
	}
	return []string{"get", "patch", "update"} // status, scale, approval, resize, ephemeralcontainers
}

// ownKind is the kind of a subresource that differs from its object's; false
// where it does not.
func ownKind(res kind.Resource, sub string) (schema.GroupVersionKind, bool) {
	core := schema.GroupVersion{Version: "v1"}
	switch sub {
	case "scale":
		return schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, true
	case "eviction":
		return schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, true
	case "token":
		return schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}, true
	case "binding":
		return core.WithKind("Binding"), true
	case "exec":
		return core.WithKind("PodExecOptions"), true
	case "attach":
		return core.WithKind("PodAttachOptions"), true
	case "portforward":
		return core.WithKind("PodPortForwardOptions"), true
	case "proxy":
		return core.WithKind(res.Kind + "ProxyOptions"), true
	}
	return schema.GroupVersionKind{}, false
}

func subKind(res kind.Resource, sub string) schema.GroupVersionKind {
	if k, ok := ownKind(res, sub); ok {
		return k
	}
	return res.GVK()
}
