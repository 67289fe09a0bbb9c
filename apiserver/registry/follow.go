package registry

import (
	"context"
	"errors"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/view"
	"monopod/store"
)

// Follow implements client.Direct if the store is in memory. Converted custom objects are those that parts of the process
// see (view.Own).
func (r *Registry) Follow(ctx context.Context, sel client.Selector, to client.Reader) (run func() error, err error) {
	s, ok := r.store.(interface {
		Follow(ctx context.Context, sel store.Selector, list func([]*store.Entry, int64), each func(*store.Event)) error
	})
	if !ok {
		return nil, errors.ErrUnsupported
	}
	res, err := r.FindStored(sel.Resource)
	if err != nil {
		return nil, err
	}
	if view.Converts(res) && !view.Internal(ctx, res) {
		return nil, errors.ErrUnsupported // users' objects are converted by webhooks, which may fail
	}
	selector, err := selectorOf(res, r.Base(res), sel)
	if err != nil {
		return nil, err
	}
	shown := func(e *store.Entry) Object {
		if res.View == nil {
			return e.Object
		}
		return view.Bare(res, e.Object)
	}
	list := func(entries []*store.Entry, rev int64) {
		objs := make([]Object, len(entries))
		for i, e := range entries {
			objs[i] = shown(e)
		}
		to.List(objs, formatRevision(rev))
	}
	each := func(ev *store.Event) {
		if ev.Progress() {
			to.Reached(formatRevision(ev.Rev))
			return
		}
		was, is := selector.Matches(ev.Old), selector.Matches(ev.New)
		switch {
		case was && is && ev.Old.Object.GetUID() == ev.New.Object.GetUID():
			to.Change(shown(ev.Old), shown(ev.New))
			return
		case was:
			to.Change(shown(ev.Gone()), nil)
		}
		if is {
			to.Change(nil, shown(ev.New))
		}
	}
	return func() error { return apierror.Of(s.Follow(ctx, selector, list, each), res, "") }, nil
}
