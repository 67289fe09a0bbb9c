package openapi

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
)

// composer composes one document.
type composer struct {
	set     *definitions.Set
	cfg     *Config
	all     served
	queries map[string][]parameter // query parameters by the definition of their options
}

func newComposer(set *definitions.Set, cfg *Config, all served) *composer {
	return &composer{set: set, cfg: cfg, all: all, queries: map[string][]parameter{}}
}

// pathOf returns the path of a group and version, without the leading slash.
func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// camel returns a group in the form of operation IDs: RbacAuthorization for rbac.authorization.k8s.io, Core for the
// core group.
func camel(group string) string {
	if group == "" {
		return "Core"
	}
	var out strings.Builder
	for part := range strings.SplitSeq(strings.TrimSuffix(group, ".k8s.io"), ".") {
		out.WriteString(title(part))
	}
	return out.String()
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func lowerCamel(group string) string {
	name := camel(group)
	return strings.ToLower(name[:1]) + name[1:]
}

// tagOf returns the tag of a group and version's operations: rbacAuthorization_v1.
func tagOf(gv schema.GroupVersion) string { return lowerCamel(gv.Group) + "_" + gv.Version }

// discovery returns the path of a list for discovery.
func discovery(url, id, tag, definition string) path {
	return path{url: url, operations: []operation{{
		method: "get", id: id, tag: tag, about: "what is served below this path",
		produces: plainTypes(), answers: answersOf("get", definition),
	}}}
}

// resource returns the paths of a resource: its collections, its objects and their subresources.
func (c *composer) resource(res kind.Resource) []path {
	prefix := "/" + pathOf(res.GVR.GroupVersion())
	inside, common := prefix+"/"+res.GVR.Resource, common()
	var paths []path
	if res.Namespaced {
		if res.Can("list") {
			all := path{url: inside, parameters: common}
			all.operations = append(all.operations, c.verb(res, "list", "", "ForAllNamespaces"))
			paths = append(paths, all)
		}
		inside = prefix + "/namespaces/{namespace}/" + res.GVR.Resource
		common = append(slices.Clone(common),
			parameter{"namespace", "path", "string", "object name and auth scope, such as for teams and projects"})
	}
	paths = append(paths, c.verbs(res, inside, common, "list", "create", "deletecollection"))
	named := append(slices.Clone(common), parameter{"name", "path", "string", "name of the " + res.Kind})
	paths = append(paths, c.verbs(res, inside+"/{name}", named, "get", "update", "patch", "delete"))
	for _, sub := range res.Subresources {
		paths = append(paths, c.subresource(res, inside+"/{name}/"+sub.Name, named, &sub))
	}
	return slices.DeleteFunc(paths, func(p path) bool { return len(p.operations) == 0 })
}

func common() []parameter {
	return []parameter{{"pretty", "query", "string", "if 'true', the answer is indented"}}
}

// verbs returns the path at url with the verbs that the resource supports.
func (c *composer) verbs(res kind.Resource, url string, common []parameter, verbs ...string) path {
	p := path{url: url, parameters: common}
	for _, verb := range verbs {
		if res.Can(verb) {
			p.operations = append(p.operations, c.verb(res, verb, "", ""))
		}
	}
	return p
}

// verb returns the operation of a verb on a resource or, with sub, on its subresource.
func (c *composer) verb(res kind.Resource, verb, sub, scope string) operation {
	method, word := methodOf(verb)
	of, shown := res.GVK(), res.GVK()
	if sub != "" {
		shown = res.Subresource(sub).KindOf(&res)
	}
	op := operation{
		method: method, action: actionOf(verb), kind: shown, tag: tagOf(of.GroupVersion()),
		id: word + camel(of.Group) + title(of.Version) + collectionWord(verb) + namespacedWord(res, scope) + of.Kind +
			title(sub) + scope,
		about:    about(verb, of.Kind, sub),
		query:    c.query(verb, sub),
		produces: plainTypes(),
	}
	return c.bodies(op, verb, &res, res.ReturnDeleted && sub == "")
}

// bodies sets the bodies of an operation's request and responses.
func (c *composer) bodies(op operation, verb string, res *kind.Resource, returnDeleted bool) operation {
	name := c.nameOf(op.kind)
	switch verb {
	case "list":
		op.produces = append(plainTypes(), "application/json;stream=watch",
			"application/vnd.kubernetes.protobuf;stream=watch", "application/cbor-seq")
		name = c.nameOf(res.ListGVK())
	case "create", "update":
		op.body, op.bodyRequired, op.consumes = name, true, []string{anyType}
	case "patch":
		op.body, op.bodyRequired, op.consumes = metaV1+"Patch", true, patchTypes(res)
	case "delete", "deletecollection":
		op.body, op.consumes = metaV1+"DeleteOptions", []string{anyType}
		if verb == "deletecollection" || !returnDeleted {
			name = metaV1 + "Status"
		}
	}
	op.answers = answersOf(verb, name)
	return op
}

// nameOf returns the name of a kind's definition, or an empty string if it has none.
func (c *composer) nameOf(gvk schema.GroupVersionKind) string {
	if d := c.set.OfKind(gvk); d != nil {
		return d.Name
	}
	return ""
}

func (c *composer) query(verb, sub string) []parameter {
	switch {
	case verb == "deletecollection":
		list := slices.DeleteFunc(slices.Clone(c.queryOf(optionsOf("list"))), func(p parameter) bool {
			return p.name == "watch" || p.name == "allowWatchBookmarks"
		})
		return sorted(append(list, c.queryOf(optionsOf("delete"))...))
	case sub == "log":
		return c.queryOf("io.k8s.api.core.v1.PodLogOptions")
	}
	return c.queryOf(optionsOf(verb))
}

// subresource returns the path of a subresource. A subresource whose kind contains options is a connection in
// upstream's words, and has the options as its query.
func (c *composer) subresource(res kind.Resource, url string, common []parameter, sub *kind.Subresource) path {
	p, gvk := path{url: url, parameters: common}, sub.KindOf(&res)
	for _, verb := range sub.VerbList() {
		method, _ := methodOf(verb)
		op := c.verb(res, verb, sub.Name, "")
		switch {
		case method == "":
			continue
		case strings.HasSuffix(gvk.Kind, "Options"):
			op = connection(op, res, method, sub.Name)
			op.query = c.queryOf(c.nameOf(gvk))
		case sub.Name == "log":
			op.produces, op.answers = append(plainTypes(), "text/plain"), answersOf("get", "")
		}
		p.operations = append(p.operations, op)
	}
	return p
}

// connection turns an operation into one that streams.
func connection(op operation, res kind.Resource, method, sub string) operation {
	of := res.GVK()
	op.action, op.body, op.consumes = "connect", "", nil
	op.id = "connect" + camel(of.Group) + title(of.Version) + title(method) + namespacedWord(res, "") + of.Kind +
		title(sub)
	op.about = "connect " + strings.ToUpper(method) + " requests to " + sub + " of " + of.Kind
	op.produces, op.answers = []string{anyType}, answersOf("get", "")
	return op
}

// actionOf returns the x-kubernetes-action of a verb.
func actionOf(verb string) string {
	switch verb {
	case "create":
		return "post"
	case "update":
		return "put"
	}
	return verb
}

func collectionWord(verb string) string {
	if verb == "deletecollection" {
		return "Collection"
	}
	return ""
}

func namespacedWord(res kind.Resource, scope string) string {
	if res.Namespaced && scope == "" {
		return "Namespaced"
	}
	return ""
}

// about returns an operation's description in upstream's words.
func about(verb, noun, sub string) string {
	what := noun
	if sub != "" {
		what = sub + " of the specified " + noun
	}
	switch verb {
	case "get":
		return "read the specified " + what
	case "list":
		return "list or watch objects of kind " + noun
	case "create":
		return "create " + article(what) + " " + what
	case "update":
		return "replace the specified " + what
	case "patch":
		return "partially update the specified " + what
	case "deletecollection":
		return "delete collection of " + noun
	}
	return "delete " + article(what) + " " + what
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "AEIOUaeiou") {
		return "an"
	}
	return "a"
}
