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

// Page selects a part of a list. The zero value selects the whole list at the current revision.
type Page struct {
	Limit    int    // maximum number of objects; 0: no limit
	Continue string // continue token of the previous page
	At       int64  // revision; 0: the current one
}

// ListPage is a list or one page of it.
type ListPage struct {
	Entries  []*store.Entry
	Revision int64
	Continue string // continue token of the next page; empty: no further pages
	// Remaining is the number of objects after this page; nil: unknown.
	Remaining *int64
}

// token is the content of a continue token, in upstream's format.
type token struct {
	APIVersion string `json:"v"`
	Revision   int64  `json:"rv"` // or currentRevision
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

// Page returns one page of the selected list. All pages show the same revision. When the history no longer contains it,
// Page returns 410 with a token that continues at the current revision. The entries are as stored; convert.Each
// converts them.
func (r *Registry) Page(ctx context.Context, sel client.Selector, page Page) (ListPage, error) {
	res, err := r.FindStored(sel.Resource)
	if err != nil {
		return ListPage{}, err
	}
	s, err := selectorOf(res, r.Base(res), sel)
	if err != nil {
		return ListPage{}, err
	}
	s.At = page.At
	if page.Continue != "" {
		t, err := decodeToken(page.Continue)
		if err != nil {
			return ListPage{}, err
		}
		s.At, s.After = max(t.Revision, 0), t.Start
	}
	if page.Limit > 0 {
		s.Limit = page.Limit + 1 // the additional object shows that there are more
	}
	entries, rev, err := r.store.List(ctx, s)
	if errors.Is(err, store.ErrExpired) && page.Continue != "" {
		e := apierror.Expired("The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response to " +
			"retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
			"objects that were created, modified, or deleted between the time the first chunk was returned and now " +
			"may show up in the list.")
		e.ErrStatus.Continue = token{tokenVersion, currentRevision, s.After}.encode()
		return ListPage{}, e
	}
	if err != nil {
		return ListPage{}, apierror.Of(err, res, "")
	}
	return r.paginate(ctx, s, ListPage{Entries: entries, Revision: rev}, page.Limit), nil
}

// paginate cuts a list to limit entries and sets the continue token.
func (r *Registry) paginate(ctx context.Context, s store.Selector, l ListPage, limit int) ListPage {
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
