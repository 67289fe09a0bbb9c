package store

import "strings"

// PathPrefix begins every path, as --etcd-prefix of a kube-apiserver does.
const PathPrefix = "/registry/"

// pathOf returns the path of a resource below PathPrefix. It is the name of the resource, except for some resources
// (upstream: SpecialDefaultResourcePrefixes), and for names of the form plural.group, whose path is group/plural.
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
	if plural, group, ok := strings.Cut(resource, "."); ok {
		return group + "/" + plural
	}
	return resource
}

// resourceAt is the inverse of pathOf: it splits a path below PathPrefix into the resource and the rest.
func resourceAt(rest string) (resource, tail string, ok bool) {
	dir, tail, ok := strings.Cut(rest, "/")
	switch dir {
	case "minions":
		return "nodes", tail, ok
	case "controllers":
		return "replicationcontrollers", tail, ok
	case "ingress":
		return "ingresses", tail, ok
	case "services":
		kind, tail, ok := strings.Cut(tail, "/")
		if kind == "specs" {
			return "services", tail, ok
		}
		return "endpoints", tail, ok && kind == "endpoints"
	case "nodes", "endpoints", "replicationcontrollers", "ingresses":
		return "", "", false // their path has another form
	}
	if strings.Contains(dir, ".") {
		plural, tail, ok := strings.Cut(tail, "/")
		return plural + "." + dir, tail, ok && plural != ""
	}
	return dir, tail, ok && dir != ""
}

// ResourcePath returns the common prefix of the paths of all objects of the resource (/registry/pods/), or of those in
// the namespace if it is not empty.
func ResourcePath(resource, namespace string) string {
	p := PathPrefix + pathOf(resource) + "/"
	if namespace != "" {
		p += namespace + "/"
	}
	return p
}

// Path returns the key of the object in the etcd of a kube-apiserver: /registry/pods/default/web,
// /registry/minions/node1, /registry/example.com/widgets/default/one.
func (k Key) Path() string { return ResourcePath(k.Resource, k.Namespace) + k.Name }

// ParsePath is the inverse of Key.Path. It returns false for anything else.
func ParsePath(path string) (Key, bool) {
	rest, ok := strings.CutPrefix(path, PathPrefix)
	if !ok {
		return Key{}, false
	}
	resource, tail, ok := resourceAt(rest)
	if !ok {
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
