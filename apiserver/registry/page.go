package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/apierror"
	"monopod/store"
)

// Page is the requested part of a list. The zero value is the whole list at the current revision.
type Page struct {
	Limit    int    // maximum number of objects; 0: no limit
	Continue string // token of the previous page
	At       int64  // revision; 0: the current one
}

// Listed is a list or a page of it.
type Listed struct {
	Entries  []*store.Entry
	Revision int64
	Continue string // token of the next page; empty: this is the last page
	// Remaining is the number of objects after this page; nil: unknown.
	Remaining *int64
}

// token is upstream's format of the continue token.
type token struct {
	APIVersion string `json:"v"`
	Revision   int64  `json:"rv"` // latest: the current one
	Start      string `json:"start"`
}

const (
	tokenVersion    = "meta.k8s.io/v1"
	currentRevision = -1
)

func (t token) encode() string {
	data, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func decodeToken(s string) (token, error) {
	var t token
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil || t.APIVersion != tokenVersion || t.Start == "" || (t.Revision < 1 && t.Revision != currentRevision) {
		return t, apierror.BadRequest("continue key is not valid: use the token that the page before came with")
	}
	return t, nil
}

// Page returns a page of the list that sel selects. All pages show one revision, while the history
// contains it. After that the error is 410 with a token with which the client can continue at the
// current revision. Its entries are the stored ones (see view.Each).
func (r *Registry) Page(ctx context.Context, sel client.Selector, page Page) (Listed, error) {
	res, err := r.FindStored(sel.Resource)
	if err != nil {
		return Listed{}, err
	}
	s, err := selectorOf(res, r.Base(res), sel)
	if err != nil {
		return Listed{}, err
	}
	s.At = page.At
	if page.Continue != "" {
		t, err := decodeToken(page.Continue)
		if err != nil {
			return Listed{}, err
		}
		s.At, s.After = max(t.Revision, 0), t.Start
	}
	if page.Limit > 0 {
		s.Limit = page.Limit + 1 // the additional object shows that there are more
	}
	entries, rev, err := r.store.List(ctx, s)
	if errors.Is(err, store.ErrExpired) && page.Continue != "" {
		e := apierror.Expired("The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to go on with what is newest.")
		e.ErrStatus.Continue = token{tokenVersion, currentRevision, s.After}.encode()
		return Listed{}, e
	}
	if err != nil {
		return Listed{}, apierror.Of(err, res, "")
	}
	return r.paginate(ctx, s, Listed{Entries: entries, Revision: rev}, page.Limit), nil
}

// paginate makes a page of the objects that were read for it.
func (r *Registry) paginate(ctx context.Context, s store.Selector, l Listed, limit int) Listed {
	if limit <= 0 || len(l.Entries) <= limit {
		return l
	}
	l.Entries = l.Entries[:limit]
	last := l.Entries[limit-1].Key
	l.Continue = token{tokenVersion, l.Revision, last.Namespace + "/" + last.Name}.encode()
	if s.Match == nil && s.Name == "" { // upstream counts only unfiltered lists
		s.Limit, s.At, s.After = 0, l.Revision, last.Namespace+"/"+last.Name
		if rest, _, err := r.store.List(ctx, s); err == nil {
			l.Remaining = new(int64(len(rest)))
		}
	}
	return l
}
