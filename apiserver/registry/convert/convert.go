// Package convert converts stored objects to the version that clients request.
package convert

import (
	"context"
	"encoding/json"
	"iter"

	"monopod/apiserver/auth"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// Of converts a stored object to the version of res.
func Of(ctx context.Context, res *kind.Resource, stored kind.Object) (kind.Object, error) {
	if res.View == nil || stored == nil {
		return stored, nil
	}
	obj, err := res.View.FromStored(ctx, stored)
	if err != nil {
		return nil, err
	}
	return withKind(res, obj, stored), nil
}

// withKind sets the kind of res in obj, which was converted from stored.
func withKind(res *kind.Resource, obj, stored kind.Object) kind.Object {
	// a copy: others may share a converted object
	if as := obj.GetObjectKind(); obj != stored && as.GroupVersionKind() != res.GVK() {
		as.SetGroupVersionKind(res.GVK())
	}
	return obj
}

// SkipsConversion reports whether this process itself reads objects of res, and a webhook converts them. This process
// then gets unconverted objects, of which it uses only the metadata, so that it works without the webhook.
func SkipsConversion(ctx context.Context, res *kind.Resource) bool {
	_, known := auth.Known(ctx)
	return !known && Converts(res)
}

// Unconverted returns a stored object with the kind of res but with its content unconverted.
func Unconverted(res *kind.Resource, stored kind.Object) kind.Object {
	return withKind(res, res.View.Show(stored), stored)
}

// Entry converts a stored entry to the version of res.
func Entry(ctx context.Context, res *kind.Resource, e *store.Entry) (*store.Entry, error) {
	if res.View == nil {
		return e, nil
	}
	if res.View.Converter == nil {
		return convertedEntry(res, e, res.View.Show(e.Object))
	}
	out, err := Entries(ctx, res, []*store.Entry{e})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// A batch has at most atOnce entries of atOnceBytes in total as stored, or a single larger entry.
const (
	atOnce      = 500
	atOnceBytes = 2 << 20
)

// Each converts the entries of a list one after the other, until an error. It converts lazily, because the converted
// list can be much larger than the stored one: by the defaults of its schema, or by a webhook.
func Each(ctx context.Context, res *kind.Resource, entries []*store.Entry) iter.Seq2[*store.Entry, error] {
	return func(yield func(*store.Entry, error) bool) {
		for len(entries) > 0 {
			shown, err := Entries(ctx, res, entries[:batchSize(res, entries)])
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range shown {
				if !yield(e, nil) {
					return
				}
			}
			entries = entries[len(shown):]
		}
	}
}

// batchSize returns the number of entries of the next batch.
func batchSize(res *kind.Resource, entries []*store.Entry) int {
	if !Converts(res) {
		return 1
	}
	n, size := 0, 0
	for _, e := range entries[:min(len(entries), atOnce)] {
		if size += len(e.JSON()); n > 0 && size > atOnceBytes {
			break
		}
		n++
	}
	return n
}

// Converts reports whether a webhook converts the objects of res.
func Converts(res *kind.Resource) bool { return res.View != nil && res.View.Converter != nil }

// Entries is Entry for several entries.
func Entries(ctx context.Context, res *kind.Resource, entries []*store.Entry) ([]*store.Entry, error) {
	if res.View == nil {
		return entries, nil
	}
	var converted []kind.Object
	if c := res.View.Converter; c != nil {
		stored := make([]kind.Object, len(entries))
		for i, e := range entries {
			stored[i] = e.Object
		}
		var err error
		if converted, err = c.Show(ctx, stored); err != nil {
			return nil, err
		}
	}
	out := make([]*store.Entry, len(entries))
	for i, e := range entries {
		var obj kind.Object
		if converted != nil {
			obj = converted[i]
		} else {
			obj = res.View.Show(e.Object)
		}
		var err error
		if out[i], err = convertedEntry(res, e, obj); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// convertedEntry returns the entry of obj, which was converted from e: e itself if obj is the stored object.
func convertedEntry(res *kind.Resource, e *store.Entry, obj kind.Object) (*store.Entry, error) {
	if obj == e.Object {
		return e, nil
	}
	data, err := json.Marshal(withKind(res, obj, e.Object))
	if err != nil {
		return nil, err
	}
	return store.NewEncoded(e.Key, e.Rev, obj, data), nil
}
