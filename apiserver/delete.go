package apiserver

import (
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/convert"
	"monopod/apiserver/request"
	"monopod/store"
)

// delete starts or finishes a deletion: 200, with the object if it still exists.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, t target) error {
	if t.ref.Subresource != "" {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := t.negotiate(r)
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
	if t.res.ReturnDeleted || s.stillExists(r, t, obj) {
		return s.answer(w, r, f, t, http.StatusOK, obj)
	}
	s.out.Send(w, r, f, http.StatusOK, codec.Success(0, &metav1.StatusDetails{
		Name: obj.GetName(), Group: t.ref.Resource.Group, Kind: t.ref.Resource.Resource, UID: obj.GetUID()}))
	return nil
}

// stillExists reports whether the object still exists, because of its grace period or its finalizers.
func (s *Server) stillExists(r *http.Request, t target, obj registry.Object) bool {
	e, err := s.registry.Entry(r.Context(), t.ref)
	return err == nil && e.Object.GetUID() == obj.GetUID() && obj.GetDeletionTimestamp() != nil
}

// deleteOptions reads the options from the body, or from the query if there is no body.
func deleteOptions(w http.ResponseWriter, r *http.Request) (metav1.DeleteOptions, *http.Request, error) {
	var opts metav1.DeleteOptions
	data, err := codec.Body(r)
	if err == nil && len(data) > 0 {
		err = codec.Decode(w, r, data, &opts)
	} else if err == nil {
		err = request.QueryDeleteOptions(r.URL.Query(), &opts)
	}
	if err != nil {
		return opts, r, err
	}
	if opts.Kind != "" && opts.Kind != "DeleteOptions" {
		return opts, r, apierrors.NewBadRequest("the body of a DELETE is a DeleteOptions, not a " + opts.Kind)
	}
	if errs := validation.ValidateDeleteOptions(&opts); len(errs) > 0 {
		return opts, r, request.InvalidOptions("DeleteOptions", errs)
	}
	r, err = withDryRun(r, opts.DryRun...)
	return opts, r, err
}

// deleteCollection deletes the selected objects and sends their list. It continues after an object that fails.
func (s *Server) deleteCollection(w http.ResponseWriter, r *http.Request, t target) error {
	list, err := request.ReadListOptions(r.URL.Query(), t.ref)
	if err != nil {
		return err
	}
	if t.ref.Namespace == "" && t.res.Namespaced || !t.res.Can("deletecollection") {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := t.negotiate(r)
	if err != nil {
		return err
	}
	opts, r, err := deleteOptions(w, r)
	if err != nil {
		return err
	}
	entries, rev, err := s.registry.Entries(r.Context(), list.Sel)
	if err != nil {
		return err
	}
	if err := s.deleteAll(r, t, entries, opts); err != nil {
		return err
	}
	return s.out.SendList(w, r, f, t.res, entries, metav1.ListMeta{ResourceVersion: strconv.FormatInt(rev, 10)})
}

// deleteWorkers is how many objects of a collection are deleted concurrently, so that they share commits (upstream:
// --delete-collection-workers, 1).
const deleteWorkers = 16

func (s *Server) deleteAll(r *http.Request, t target, entries []*store.Entry, opts metav1.DeleteOptions) error {
	var errs []error
	var batch []client.Ref
	deleteBatch := func() {
		errs = append(errs, follow.Each(deleteWorkers, batch, func(ref client.Ref) error {
			if _, err := s.registry.Delete(r.Context(), ref, opts); !apierrors.IsNotFound(err) {
				return err
			}
			return nil
		})...)
		batch = batch[:0]
	}
	// Convert in batches: otherwise each deletion calls the webhook.
	for e, err := range convert.Each(r.Context(), t.res, entries) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		ref := t.ref
		ref.Namespace, ref.Name = e.Key.Namespace, e.Key.Name
		if batch = append(batch, ref); len(batch) == deleteWorkers {
			deleteBatch()
		}
	}
	deleteBatch()
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
