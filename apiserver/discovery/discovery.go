package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/codec"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
)

// groups returns the served groups in upstream's order, each with its versions, the preferred one first.
func (d *Documents) groups() [][]schema.GroupVersion {
	groups, versions := map[string]int32{}, map[schema.GroupVersion]int32{}
	add := func(gv schema.GroupVersion, group, version int32) {
		groups[gv.Group], versions[gv] = max(groups[gv.Group], group), version
	}
	for _, r := range d.served() {
		gv := r.GVR.GroupVersion()
		add(gv, aggregate.Priority(gv.Group), aggregate.VersionPriority(gv))
	}
	for _, r := range d.Aggregator.Remotes() {
		add(r.GroupVersion, r.GroupPriority, r.VersionPriority)
	}
	all := slices.SortedFunc(maps.Keys(versions), func(a, b schema.GroupVersion) int {
		return cmp.Or(
			cmp.Compare(groups[b.Group], groups[a.Group]),
			cmp.Compare(a.Group, b.Group),
			cmp.Compare(versions[b], versions[a]),
			version.CompareKubeAwareVersionStrings(b.Version, a.Version),
		)
	})
	var out [][]schema.GroupVersion
	for _, gv := range all {
		if n := len(out); n > 0 && out[n-1][0].Group == gv.Group {
			out[n-1] = append(out[n-1], gv)
		} else {
			out = append(out, []schema.GroupVersion{gv})
		}
	}
	return out
}

// served returns the kinds that this server serves itself.
func (d *Documents) served() []kind.Resource { return d.Aggregator.Local(d.Resources()) }

// DiscoverCore serves /api.
func (d *Documents) DiscoverCore(w http.ResponseWriter, r *http.Request) {
	d.discover(w, r, &d.core, &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}},
	})
}

// DiscoverGroups serves /apis.
func (d *Documents) DiscoverGroups(w http.ResponseWriter, r *http.Request) {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups: []metav1.APIGroup{}}
	for _, versions := range d.groups() {
		if versions[0].Group != "" {
			list.Groups = append(list.Groups, apiGroup(versions))
		}
	}
	d.discover(w, r, &d.named, list)
}

func apiGroup(versions []schema.GroupVersion) metav1.APIGroup {
	g := metav1.APIGroup{Name: versions[0].Group}
	for _, gv := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

// DiscoverGroup serves /apis/<group>.
func (d *Documents) DiscoverGroup(w http.ResponseWriter, r *http.Request) {
	for _, versions := range d.groups() {
		if group := versions[0].Group; group != "" && group == chi.URLParam(r, "group") {
			g := apiGroup(versions)
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			d.answerPlain(w, r, &g)
			return
		}
	}
	d.Out.Fail(w, r, request.ErrNotFound())
}

// DiscoverResources serves /api/v1 and /apis/<group>/<version>.
func (d *Documents) DiscoverResources(w http.ResponseWriter, r *http.Request) {
	gv := schema.GroupVersion{Group: chi.URLParam(r, "group"), Version: chi.URLParam(r, "version")}
	resources := d.byVersion()[gv]
	if len(resources) == 0 {
		d.Out.Fail(w, r, request.ErrNotFound())
		return
	}
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, res := range resources {
		list.APIResources = append(list.APIResources, apiResources(res)...)
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	d.answerPlain(w, r, list)
}

func apiResources(res kind.Resource) []metav1.APIResource {
	out := []metav1.APIResource{{
		Name: res.GVR.Resource, SingularName: res.SingularName(), Namespaced: res.Namespaced, Kind: res.Kind,
		Verbs: res.VerbList(), ShortNames: res.ShortNames, Categories: res.Categories,
		StorageVersionHash: storageVersionHash(res),
	}}
	for _, sub := range res.Subresources {
		a := metav1.APIResource{
			Name: res.GVR.Resource + "/" + sub.Name, Namespaced: res.Namespaced, Kind: res.Kind, Verbs: sub.VerbList()}
		if k := sub.Kind; !k.Empty() {
			a.Kind = k.Kind
			if k.GroupVersion() != res.GVR.GroupVersion() {
				a.Group, a.Version = k.Group, k.Version
			}
		}
		out = append(out, a)
	}
	return out
}

// storageVersionHash returns upstream's hash of the version in which objects are stored, for clients that migrate them
// when it changes. It returns an empty string for objects that are not stored.
func storageVersionHash(res kind.Resource) string {
	stored := res.GVR
	switch {
	case res.Virtual:
		return ""
	case res.View != nil:
		stored = res.View.Of
	}
	sum := sha256.Sum256([]byte(stored.Group + "/" + stored.Version + "/" + res.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

func (d *Documents) answerPlain(w http.ResponseWriter, r *http.Request, v any) {
	f, err := codec.Negotiate(r)
	if err != nil {
		d.Out.Fail(w, r, err)
		return
	}
	d.Out.Send(w, r, f, http.StatusOK, v)
}
