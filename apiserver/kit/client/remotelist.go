package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// minPage is how much of MaxList each page counts at least, in bytes, so that a server that sends empty pages comes to
// an end.
const minPage = 64 << 10

// List implements Client. If a list of several pages expires before it is complete, all objects are requested at once.
func (c *Remote) List(ctx context.Context, sel Selector) ([]Object, string, error) {
	objs, revision, err := c.pages(ctx, sel, c.Page)
	if c.Page > 0 && apierrors.IsResourceExpired(err) {
		return c.pages(ctx, sel, 0)
	}
	return objs, revision, err
}

// pages lists objects, at most limit at a time.
func (c *Remote) pages(ctx context.Context, sel Selector, limit int) (objs []Object, revision string, err error) {
	path, q := c.query(sel)
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	for left := c.MaxList; ; {
		answer, err := c.ask(ctx, http.MethodGet, path+"?"+q.Encode(), c.accepts("PartialObjectMetadataList"), nil)
		if err != nil {
			return nil, "", err
		}
		from := c.bounded(answer, left, path)
		from.most = c.MaxList
		page, meta, err := c.page(from, sel.Resource)
		answer.Close()
		if err != nil {
			return nil, "", err
		}
		if objs = append(objs, page...); revision == "" {
			revision = meta.ResourceVersion // a watch from here also sees what changed between the pages
		}
		if meta.Continue == "" {
			return objs, revision, nil
		}
		if left = min(from.left, left-minPage); c.MaxList > 0 && left <= 0 {
			return nil, "", from.exceeded()
		}
		q.Set("continue", meta.Continue)
	}
}

// page reads a list object by object, so that it holds no more of the response than one.
func (c *Remote) page(from io.Reader,
	resource schema.GroupVersionResource) (objs []Object, meta metav1.ListMeta, err error) {
	dec := json.NewDecoder(from)
	err = each(dec, '{', func() error {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		switch name {
		case "metadata":
			return dec.Decode(&meta)
		case "items":
			return each(dec, '[', func() error {
				obj := c.New(resource, "")
				if obj == nil {
					return fmt.Errorf("client: %v is not known", resource)
				}
				objs = append(objs, obj)
				return dec.Decode(obj)
			})
		}
		var skipped json.RawMessage
		return dec.Decode(&skipped)
	})
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("client: a list of %s: %w", resource.Resource, io.ErrUnexpectedEOF)
	}
	return objs, meta, err
}

// each calls do for every element of an object or a list, which may be null.
func each(dec *json.Decoder, kind json.Delim, do func() error) error {
	begin, err := dec.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != kind {
		return fmt.Errorf("client: %v in a list where %v is expected", begin, kind)
	}
	for dec.More() {
		if err := do(); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// bounded returns a reader of a response that fails after left bytes; 0: there is no limit.
func (c *Remote) bounded(from io.Reader, left int64, path string) *bounded {
	return &bounded{from: from, left: left, most: left, what: c.URL + path}
}

// bounded reads at most left bytes.
type bounded struct {
	from       io.Reader
	left, most int64 // most: the limit; 0: there is none
	what       string
}

// Read implements io.Reader.
func (b *bounded) Read(into []byte) (int, error) {
	if b.most == 0 {
		return b.from.Read(into)
	}
	if b.left <= 0 {
		return 0, b.exceeded()
	}
	n, err := b.from.Read(into[:min(int64(len(into)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (b *bounded) exceeded() error {
	return fmt.Errorf("the response of %s is larger than %d bytes", b.what, b.most)
}
