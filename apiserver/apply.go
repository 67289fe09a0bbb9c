package apiserver

import (
	"bytes"
	encjson "encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"

	"monopod/apiserver/access/audit"
	"monopod/apiserver/codec/bounded"
	"monopod/apiserver/codec/quantity"
	"monopod/apiserver/registry"
)

// apply is server-side apply: the body says what the object shall have, in the
// name of a field manager. An object that is not there is created, by those who
// may create it.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := negotiateWrite(r)
	if err != nil {
		return err
	}
	opts, err := applyOptions(r)
	if err != nil {
		return err
	}
	opts.MayCreate = func() error {
		a := attributesOf(r, t.ref)
		a.Verb = "create"
		return s.authorize(r.Context(), a)
	}
	patch, err := decodeApply(w, r, t, s.current(r, t))
	if err != nil {
		return err
	}
	if r, err = withDryRun(r); err != nil {
		return err
	}
	obj, created, err := s.registry.Apply(r.Context(), t.ref, patch, opts)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return s.answer(w, r, f, t, code, obj)
}

func applyOptions(r *http.Request) (registry.ApplyOptions, error) {
	opts, err := patchOptions(r, types.ApplyYAMLPatchType)
	if err != nil {
		return registry.ApplyOptions{}, err
	}
	return registry.ApplyOptions{Manager: opts.FieldManager, Force: opts.Force != nil && *opts.Force}, nil
}

// patchOptions are what the query says of a patch, refused where upstream does:
// only an apply can be forced, and it needs a manager.
func patchOptions(r *http.Request, typ types.PatchType) (*metav1.PatchOptions, error) {
	query := r.URL.Query()
	opts := &metav1.PatchOptions{FieldManager: query.Get("fieldManager")}
	if text := query.Get("force"); text != "" {
		force, err := strconv.ParseBool(text)
		if err != nil {
			return nil, apierrors.NewBadRequest("force: " + err.Error())
		}
		opts.Force = &force
	}
	return opts, errOptions(r, metavalidation.ValidatePatchOptions(opts, typ))
}

// errOptions is 422 for what is wrong with the options in a request's query, nil
// for no mistakes.
func errOptions(r *http.Request, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	kind := map[string]string{
		http.MethodPost: "CreateOptions", http.MethodPut: "UpdateOptions", http.MethodPatch: "PatchOptions", http.MethodDelete: "DeleteOptions",
	}[r.Method]
	return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", errs)
}

// decodeApply reads the body of an apply to an object that is stored as current,
// YAML or JSON, and checks that it is about what the path names.
func decodeApply(w http.ResponseWriter, r *http.Request, t target, current []byte) (*unstructured.Unstructured, error) {
	strict, err := fieldValidation(r)
	if err != nil {
		return nil, err
	}
	data, err := readAll(r)
	if err != nil {
		return nil, err
	}
	data, doubled, err := applyJSON(r, data)
	if err != nil {
		return nil, err
	}
	if err := accountOf(r.Context()).admitPatch(r, types.ApplyYAMLPatchType, data, current); err != nil {
		return nil, err
	}
	audit.Of(r.Context()).Sent(data)
	obj, more, err := decodePatch(data)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	doubled = append(doubled, more...)
	if err := strict.judge(w, doubled); err != nil {
		return nil, err
	}
	if err := checkAmounts(obj, t); err != nil {
		return nil, err
	}
	return obj, checkName(obj, t.ref, t.res.Namespaced)
}

// applyJSON is the body of an apply as JSON, and the fields that occur twice in
// YAML.
func applyJSON(r *http.Request, data []byte) (out []byte, doubled []error, err error) {
	if encjson.Valid(data) {
		return data, nil, nil
	}
	if err := accountOf(r.Context()).decode(r.Context(), bounded.WeighYAML(data)); err != nil {
		return nil, nil, err
	}
	if err := bounded.Doubled(data); err != nil {
		doubled = append(doubled, err)
	}
	if out, err = toJSON(r, data); apierrors.IsBadRequest(err) {
		err = apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	return out, doubled, err
}

// decodePatch reads an object without a type, and the fields that occur twice.
func decodePatch(data []byte) (obj *unstructured.Unstructured, doubled []error, err error) {
	obj = &unstructured.Unstructured{}
	doubled, err = json.UnmarshalStrict(data, &obj.Object)
	if err == nil && obj.Object == nil {
		err = fmt.Errorf("%s is no object", bytes.TrimSpace(data))
	}
	return obj, doubled, err
}

// checkAmounts refuses quantities that take too long to read, wherever escapes in
// the body may have hidden them.
func checkAmounts(obj *unstructured.Unstructured, t target) error {
	data, err := encjson.Marshal(obj.Object)
	if err == nil {
		err = quantity.CheckJSON(data, t.res.New())
	}
	if err != nil {
		return errUnrecognized(err)
	}
	return nil
}

// withFieldManager marks the request's context with who writes: the query's
// fieldManager or else the first word of the user agent (upstream:
// managerOrUserAgent).
func withFieldManager(r *http.Request) (*http.Request, error) {
	manager := r.URL.Query().Get("fieldManager")
	if manager == "" {
		manager = firstWord(r.UserAgent())
	}
	if errs := metavalidation.ValidateFieldManager(manager, field.NewPath("fieldManager")); len(errs) > 0 {
		return r, errOptions(r, errs)
	}
	return r.WithContext(registry.WithFieldManager(r.Context(), manager)), nil
}

// firstWord is what comes before the first slash, as far as it can be the name of
// a manager.
func firstWord(agent string) string {
	word, _, _ := strings.Cut(agent, "/")
	var out strings.Builder
	for _, c := range word {
		if !unicode.IsPrint(c) {
			continue
		}
		if out.Len()+utf8.RuneLen(c) > metavalidation.FieldManagerMaxLength {
			break
		}
		out.WriteRune(c)
	}
	return out.String()
}
