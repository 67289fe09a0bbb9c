package addon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/local"
)

// api sends requests about objects of any kind. Of objects it reads only the metadata.
type api struct {
	server *local.Server
	served map[schema.GroupVersion][]metav1.APIResource // known so far
}

const (
	oneObject   = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	manyObjects = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// root returns the path of a group and version.
func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + url.PathEscape(gv.Version)
	}
	return "/apis/" + url.PathEscape(gv.Group) + "/" + url.PathEscape(gv.Version)
}

// collection returns the path of the objects of the entry's kind, in its namespace if it has one.
func (e entry) collection() string {
	path := root(schema.GroupVersion{Group: e.Group, Version: e.Version})
	if e.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(e.Namespace)
	}
	return path + "/" + url.PathEscape(e.Resource)
}

func (e entry) path() string { return e.collection() + "/" + url.PathEscape(e.Name) }

// kind returns the resource that serves a kind; nil: none does.
func (a *api) kind(ctx context.Context, gvk schema.GroupVersionKind) (*metav1.APIResource, error) {
	gv := gvk.GroupVersion()
	if _, known := a.served[gv]; !known {
		var list metav1.APIResourceList
		if err := a.get(ctx, root(gv), "", &list); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if a.served == nil {
			a.served = map[schema.GroupVersion][]metav1.APIResource{}
		}
		a.served[gv] = list.APIResources
	}
	for i, r := range a.served[gv] {
		if r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") {
			return &a.served[gv][i], nil
		}
	}
	return nil, nil
}

// current returns the entry with the version in which its kind is served now; ok is false if it is not served.
func (a *api) current(ctx context.Context, e entry) (_ entry, ok bool, err error) {
	gvk := schema.GroupVersionKind{Group: e.Group, Version: e.Version, Kind: e.Kind}
	resource, err := a.kind(ctx, gvk)
	if err != nil || resource != nil || e.Group == "" {
		return e, resource != nil, err
	}
	var group metav1.APIGroup
	err = a.get(ctx, "/apis/"+url.PathEscape(e.Group), "", &group)
	if apierrors.IsNotFound(err) {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	for _, v := range group.Versions {
		gvk.Version = v.Version
		if resource, err = a.kind(ctx, gvk); err != nil || resource != nil {
			e.Version = v.Version
			return e, resource != nil, err
		}
	}
	return e, false, nil
}

// forget drops what is known of custom kinds, which come and go.
func (a *api) forget() { a.served = nil }

// find returns an object's metadata; nil: it does not exist.
func (a *api) find(ctx context.Context, e entry) (*metav1.PartialObjectMetadata, error) {
	e, ok, err := a.current(ctx, e)
	if err != nil || !ok {
		return nil, err
	}
	var found metav1.PartialObjectMetadata
	err = a.get(ctx, e.path(), oneObject, &found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &found, err
}

// list returns the metadata of all objects at a path.
func (a *api) list(ctx context.Context, path string) (all []metav1.PartialObjectMetadata, err error) {
	const page = 500
	for next := ""; ; {
		var list metav1.PartialObjectMetadataList
		query := url.Values{"limit": {strconv.Itoa(page)}, "continue": {next}}
		if err := a.get(ctx, path+"?"+query.Encode(), manyObjects, &list); err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
		if next = list.Continue; next == "" {
			return all, nil
		}
	}
}

// apply applies an object, or only checks it. It also returns the server's warnings.
func (a *api) apply(ctx context.Context, p planned, force,
	dryRun bool) (*metav1.PartialObjectMetadata, []string, error) {
	query := url.Values{"fieldManager": {manager}, "fieldValidation": {metav1.FieldValidationStrict}}
	if force {
		query.Set("force", "true")
	}
	if dryRun {
		query.Set("dryRun", metav1.DryRunAll)
	}
	return a.write(ctx, http.MethodPatch, p.entry.path()+"?"+query.Encode(), types.ApplyYAMLPatchType, p.Object)
}

// validate checks an object as if it were in the namespace, where it need not be permitted: errors other than those
// about its content are no errors.
func (a *api) validate(ctx context.Context, p planned, namespace string) error {
	content, e := p.DeepCopy(), p.entry
	content.SetNamespace(namespace)
	e.Namespace = namespace
	query := url.Values{"fieldValidation": {metav1.FieldValidationStrict}, "dryRun": {metav1.DryRunAll}}
	_, _, err := a.write(ctx, http.MethodPost, e.collection()+"?"+query.Encode(), "application/json", content.Object)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return err
	}
	return ctx.Err()
}

// delete begins the deletion of an object, if it still has the UID.
func (a *api) delete(ctx context.Context, e entry, uid types.UID, how metav1.DeletionPropagation) error {
	e, ok, err := a.current(ctx, e)
	if err != nil || !ok {
		return err
	}
	_, _, err = a.write(ctx, http.MethodDelete, e.path(), "application/json", metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &how,
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone, or another object has its name
		return nil
	}
	return err
}

func (a *api) write(ctx context.Context, method, path string, contentType types.PatchType,
	content any) (*metav1.PartialObjectMetadata, []string, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return nil, nil, err
	}
	header := http.Header{"Content-Type": {string(contentType)}, "Accept": {oneObject}}
	resp, err := a.server.Request(ctx, method, path, header, bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	var written metav1.PartialObjectMetadata
	err = json.NewDecoder(resp.Body).Decode(&written)
	return &written, warnings(resp.Header), err
}

// warnings returns the texts of the Warning headers.
func warnings(header http.Header) (all []string) {
	for _, value := range header.Values("Warning") {
		if _, text, ok := strings.Cut(value, `"`); ok {
			text, err := strconv.Unquote(`"` + text)
			all = append(all, text)
			if err != nil {
				all[len(all)-1] = value
			}
		}
	}
	return all
}

func (a *api) get(ctx context.Context, path, accept string, into any) error {
	header := http.Header{"Accept": {cmp.Or(accept, "application/json")}}
	resp, err := a.server.Request(ctx, http.MethodGet, path, header, http.NoBody, 0)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
