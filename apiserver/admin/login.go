package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/codec"
)

// Login sends a code with which a page signs in as admin, or with the view token.
func (a *Admin) Login(w http.ResponseWriter, r *http.Request) {
	if a.refused(w, r, a.cfg.SignIn == nil, "only admins may create codes to sign in") {
		return
	}
	token, err := a.cfg.SignIn(r.URL.Query().Get("view") == "true")
	if err != nil {
		a.out.Fail(w, r, err)
		return
	}
	answer, err := a.codes.issue(token)
	if errors.Is(err, errTooManyCodes) {
		err = apierrors.NewTooManyRequests(err.Error(), int(validity.Seconds()))
	}
	a.answer(w, r, answer, err)
}

// Session exchanges a code for its token.
func (a *Admin) Session(w http.ResponseWriter, r *http.Request) {
	var body struct{ Code string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil {
		a.out.Fail(w, r, apierrors.NewBadRequest(`the body must be JSON: {"code": "..."}`))
		return
	}
	token, err := a.codes.redeem(body.Code)
	if err != nil {
		err = apierrors.NewUnauthorized(err.Error())
	}
	a.answer(w, r, Session{Token: token}, err)
}

// answer sends a value that caches must not store.
func (a *Admin) answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		a.out.Fail(w, r, err)
		return
	}
	a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(v))
}
