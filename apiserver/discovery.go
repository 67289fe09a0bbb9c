package apiserver

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry"
)

// aggregated is the shape in which one request answers all of discovery.
const aggregated = "APIGroupDiscoveryList"

var (
	objectVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	// subVerbs are what can be done with a subresource; the others are streams.
	subVerbs = map[string][]string{
		"status": {"get", "patch", "update"}, "scale": {"get", "patch", "update"},
		"finalize": {"update"}, "binding": {"create"}, "log": {"get"},
	}
	streamVerbs = []string{"create", "get"}
	// subKinds are the kinds of subresources that differ from their object's.
	subKinds = map[string]schema.GroupVersionKind{
		"scale":       {Group: "autoscaling", Version: "v1", Kind: "Scale"},
		"binding":     {Version: "v1", Kind: "Binding"},
		"exec":        {Version: "v1", Kind: "PodExecOptions"},
		"attach":      {Version: "v1", Kind: "PodAttachOptions"},
		"portforward": {Version: "v1", Kind: "PodPortForwardOptions"},
	}
)

func verbsOfObject(res registry.Resource) []string {
	if res.Verbs != nil {
		return res.Verbs
	}
	return objectVerbs
}

func verbsOf(sub string) []string {
	if v, ok := subVerbs[sub]; ok {
		return v
	}
	return streamVerbs
}

// groupVersions are the groups served with their versions, core first.
func (s *Server) groupVersions() []schema.GroupVersion {
	var out []schema.GroupVersion
	for _, r := range s.registry.Resources() {
		if gv := r.GVR.GroupVersion(); !slices.Contains(out, gv) {
			out = append(out, gv)
		}
	}
	slices.SortStableFunc(out, func(a, b schema.GroupVersion) int { return strings.Compare(a.Group, b.Group) })
	return out
}

// discoverCore answers /api.
func (s *Server) discoverCore(w http.ResponseWriter, r *http.Request) {
	s.discover(w, r, func(group string) bool { return group == "" }, &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}},
	})
}

// discoverGroups answers /apis.
func (s *Server) discoverGroups(w http.ResponseWriter, r *http.Request) {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, gv := range s.groupVersions() {
		if gv.Group != "" {
			list.Groups = append(list.Groups, apiGroup(gv))
		}
	}
	s.discover(w, r, func(group string) bool { return group != "" }, list)
}

func apiGroup(gv schema.GroupVersion) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

// discover answers with all of it at once where the client asks for that.
func (s *Server) discover(w http.ResponseWriter, r *http.Request, in func(group string) bool, legacy any) {
	f, err := negotiate(r, aggregated)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if f.as != aggregated {
		s.send(w, r, f, http.StatusOK, legacy)
		return
	}
	list := &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: aggregated, APIVersion: apidiscovery.SchemeGroupVersion.String()}, Items: []apidiscovery.APIGroupDiscovery{}}
	for _, gv := range s.groupVersions() {
		if in(gv.Group) {
			list.Items = append(list.Items, s.groupDiscovery(gv))
		}
	}
	w.Header().Set("Vary", "Accept")
	f.contentType = typeJSON + ";g=apidiscovery.k8s.io;v=v2;as=" + aggregated
	s.send(w, r, f, http.StatusOK, list)
}

func (s *Server) groupDiscovery(gv schema.GroupVersion) apidiscovery.APIGroupDiscovery {
	version := apidiscovery.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
	for _, res := range s.registry.Resources() {
		if res.GVR.GroupVersion() == gv {
			version.Resources = append(version.Resources, resourceDiscovery(res))
		}
	}
	return apidiscovery.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Group},
		Versions:   []apidiscovery.APIVersionDiscovery{version},
	}
}

func resourceDiscovery(res registry.Resource) apidiscovery.APIResourceDiscovery {
	scope := apidiscovery.ScopeCluster
	if res.Namespaced {
		scope = apidiscovery.ScopeNamespace
	}
	d := apidiscovery.APIResourceDiscovery{
		Resource: res.GVR.Resource, ResponseKind: kindOf(res.GVK()), Scope: scope,
		SingularResource: res.SingularName(), Verbs: verbsOfObject(res), ShortNames: res.ShortNames, Categories: res.Categories,
	}
	for _, sub := range res.Subresources {
		d.Subresources = append(d.Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource: sub, ResponseKind: kindOf(subKind(res, sub)), Verbs: verbsOf(sub)})
	}
	return d
}

func kindOf(gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}

func subKind(res registry.Resource, sub string) schema.GroupVersionKind {
	if k, ok := subKinds[sub]; ok {
		return k
	}
	return res.GVK()
}

// discoverGroup answers /apis/<group>.
func (s *Server) discoverGroup(w http.ResponseWriter, r *http.Request) {
	for _, gv := range s.groupVersions() {
		if gv.Group == chi.URLParam(r, "group") {
			g := apiGroup(gv)
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			s.answerPlain(w, r, &g)
			return
		}
	}
	s.notFound(w, r)
}

// discoverResources answers /api/v1 and /apis/<group>/<version>.
func (s *Server) discoverResources(w http.ResponseWriter, r *http.Request) {
	gv := schema.GroupVersion{Group: chi.URLParam(r, "group"), Version: chi.URLParam(r, "version")}
	if !slices.Contains(s.groupVersions(), gv) {
		s.notFound(w, r)
		return
	}
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, res := range s.registry.Resources() {
		if res.GVR.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, apiResources(res)...)
		}
	}
	s.answerPlain(w, r, list)
}

func apiResources(res registry.Resource) []metav1.APIResource {
	out := []metav1.APIResource{{
		Name: res.GVR.Resource, SingularName: res.SingularName(), Namespaced: res.Namespaced, Kind: res.Kind,
		Verbs: verbsOfObject(res), ShortNames: res.ShortNames, Categories: res.Categories,
	}}
	for _, sub := range res.Subresources {
		a := metav1.APIResource{Name: res.GVR.Resource + "/" + sub, Namespaced: res.Namespaced, Kind: res.Kind, Verbs: verbsOf(sub)}
		if k, ok := subKinds[sub]; ok {
			a.Group, a.Version, a.Kind = k.Group, k.Version, k.Kind
		}
		out = append(out, a)
	}
	return out
}

func (s *Server) answerPlain(w http.ResponseWriter, r *http.Request, v any) {
	f, err := negotiate(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.send(w, r, f, http.StatusOK, v)
}
