package store

import "strings"

// PathPrefix begins every path, as --etcd-prefix of a kube-apiserver does.
const PathPrefix = "/registry/"

// pathOf is where a resource lies below PathPrefix when that is not its own
// name (upstream: SpecialDefaultResourcePrefixes).
func pathOf(resource string) string {
	switch resource {
	case "nodes":
		return "minions"
	case "services":
		return "services/specs"
	case "endpoints":
		return "services/endpoints"
	case "replicationcontrollers":
		return "controllers"
	case "ingresses":
		return "ingress"
	}
	return resource
}

// resourceAt undoes pathOf: it splits what follows PathPrefix into the resource
// and the rest.
func resourceAt(rest string) (resource, tail string, ok bool) {
	if services, found := strings.CutPrefix(rest, "services/"); found {
		kind, tail, ok := strings.Cut(services, "/")
		switch kind {
		case "specs":
			return "services", tail, ok
		case "endpoints":
			return "endpoints", tail, ok
		}
		return "", "", false
	}
	dir, tail, ok := strings.Cut(rest, "/")
	switch dir {
	case "minions":
		return "nodes", tail, ok
	case "controllers":
		return "replicationcontrollers", tail, ok
	case "ingress":
		return "ingresses", tail, ok
	case "nodes", "endpoints", "replicationcontrollers", "ingresses":
		return "", "", false // these lie elsewhere
	}
	return dir, tail, ok
}

// ResourcePath is what the paths of all objects of the resource begin with:
// /registry/pods/, and of those in one namespace if it is not empty.
func ResourcePath(resource, namespace string) string {
	p := PathPrefix + pathOf(resource) + "/"
	if namespace != "" {
		p += namespace + "/"
	}
	return p
}

// Path is where a kube-apiserver keeps the object in etcd:
// /registry/pods/default/web, /registry/minions/node1.
func (k Key) Path() string { return ResourcePath(k.Resource, k.Namespace) + k.Name }

// ParsePath undoes Key.Path; false for anything else.
func ParsePath(path string) (Key, bool) {
	rest, ok := strings.CutPrefix(path, PathPrefix)
	if !ok {
		return Key{}, false
	}
	resource, tail, ok := resourceAt(rest)
	if !ok || resource == "" {
		return Key{}, false
	}
	key := Key{Resource: resource, Name: tail}
	if ns, name, namespaced := strings.Cut(tail, "/"); namespaced {
		key.Namespace, key.Name = ns, name
		if ns == "" {
			return Key{}, false
		}
	}
	return key, key.Name != "" && !strings.Contains(key.Name, "/")
}
