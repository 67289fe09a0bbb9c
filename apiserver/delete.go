package apiserver

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"monopod/apiserver/client/query"
	"monopod/apiserver/registry"
	"monopod/store"
)

// delete starts or finishes a deletion: 200 with the object while it stays.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, t target) error {
	if t.ref.Subresource != "" {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := negotiateWrite(r)
	if err != nil {
		return err
	}
	opts, r, err := deleteOptions(w, r)
	if err != nil {
		return err
	}
	obj, err := s.registry.Delete(r.Context(), t.ref, opts)
	if err != nil {
		return err
	}
	if t.res.ReturnDeleted || s.stays(r, t, obj) {
		return s.answer(w, r, f, t, http.StatusOK, obj)
	}
	s.send(w, r, f, http.StatusOK, success(0, &metav1.StatusDetails{
		Name: obj.GetName(), Group: t.ref.Resource.Group, Kind: t.ref.Resource.Resource, UID: obj.GetUID()}))
	return nil
}

// stays says that the deletion is not over: the object waits for its grace or
// its finalizers.
func (s *Server) stays(r *http.Request, t target, obj registry.Object) bool {
	e, err := s.registry.Entry(r.Context(), t.ref)
	return err == nil && e.Object.GetUID() == obj.GetUID() && obj.GetDeletionTimestamp() != nil
}

// deleteOptions reads them from the query, and from the body, which wins.
func deleteOptions(w http.ResponseWriter, r *http.Request) (metav1.DeleteOptions, *http.Request, error) {
	var opts metav1.DeleteOptions
	data, err := body(r)
	if err == nil && len(data) > 0 {
		err = decode(w, r, data, &opts)
	} else if err == nil {
		err = queryDeleteOptions(r.URL.Query(), &opts)
	}
	if err != nil {
		return opts, r, err
	}
	if opts.Kind != "" && opts.Kind != "DeleteOptions" {
		return opts, r, apierrors.NewBadRequest("the body of a DELETE is a DeleteOptions, not a " + opts.Kind)
	}
	if errs := validation.ValidateDeleteOptions(&opts); len(errs) > 0 {
		return opts, r, invalidOptions("DeleteOptions", errs)
	}
	r, err = withDryRun(r, opts.DryRun...)
	return opts, r, err
}

func queryDeleteOptions(q url.Values, opts *metav1.DeleteOptions) error {
	if v := q.Get("gracePeriodSeconds"); v != "" {
		grace, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return apierrors.NewBadRequest("gracePeriodSeconds: Invalid value: " + strconv.Quote(v) + ": must be a whole number of seconds")
		}
		opts.GracePeriodSeconds = &grace
	}
	if v := q.Get("propagationPolicy"); v != "" {
		opts.PropagationPolicy = new(metav1.DeletionPropagation(v))
	}
	if q.Has("orphanDependents") {
		orphan, err := query.Bool(q, "orphanDependents")
		if err != nil {
			return err
		}
		opts.OrphanDependents = &orphan
	}
	return nil
}

// deleteCollection deletes each of what is selected; one that fails does not
// keep the others. It answers the list of what was selected.
func (s *Server) deleteCollection(w http.ResponseWriter, r *http.Request, t target) error {
	list, err := readListOptions(r.URL.Query(), t)
	if err != nil {
		return err
	}
	if t.ref.Namespace == "" && t.res.Namespaced || !t.res.Can("deletecollection") {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := negotiateWrite(r)
	if err != nil {
		return err
	}
	opts, r, err := deleteOptions(w, r)
	if err != nil {
		return err
	}
	entries, rev, err := s.registry.Entries(r.Context(), list.sel)
	if err != nil {
		return err
	}
	if err := s.deleteAll(r, t, entries, opts); err != nil {
		return err
	}
	return s.sendList(w, r, f, t.res, entries, metav1.ListMeta{ResourceVersion: strconv.FormatInt(rev, 10)})
}

func (s *Server) deleteAll(r *http.Request, t target, entries []*store.Entry, opts metav1.DeleteOptions) error {
	var errs []error
	for _, e := range entries {
		ref := t.ref
		ref.Namespace, ref.Name = e.Key.Namespace, e.Key.Name
		if _, err := s.registry.Delete(r.Context(), ref, opts); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
