package codec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/audit"
	"monopod/apiserver/registry/convert"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// maxWhole is the default of Responder.MaxWhole.
const maxWhole = 64 << 20

// maxKept is how much of a list that a webhook converts is kept before the first part is sent, in bytes: if the webhook
// fails until then, the client gets the error instead of an incomplete response.
const maxKept = 4 << 20

// parts is a list of which each item is made when it is sent, because all together may be much larger than what is
// stored: of defaults, of what a webhook makes of them, or of a table's cells.
type parts struct {
	head    []byte
	count   int
	entries iter.Seq2[*store.Entry, error]
	encode  func(*store.Entry) ([]byte, error)
	keep    int // bytes that are kept before the first part is sent, unless the list ends before
}

// partsOf returns the parts of a list of a kind.
func partsOf(r *http.Request, res *kind.Resource, head []byte, entries []*store.Entry,
	encode func(*store.Entry) ([]byte, error)) parts {
	p := parts{head: head, count: len(entries), entries: convert.Each(r.Context(), res, entries), encode: encode,
		keep: gzipFrom}
	if convert.Converts(res) {
		p.keep = maxKept
	}
	return p
}

// write writes the list to a writer.
func (p parts) write(out io.Writer, l Layout) error {
	before, between, after, empty, err := l.Around(p.head, p.count)
	if err != nil {
		return err
	}
	next := before
	for e, err := range p.entries {
		if err != nil {
			return err
		}
		data, err := p.encode(e)
		if err != nil {
			return err
		}
		if data, err = l.Item(data); err != nil {
			return err
		}
		if _, err := io.WriteString(out, next); err != nil {
			return err
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
		next = between
	}
	if next == before {
		after = empty
	}
	_, err = io.WriteString(out, after)
	return err
}

// sendParts sends the list. A short one has a length; a longer one is sent item by item.
func (a *Responder) sendParts(w http.ResponseWriter, r *http.Request, f Format, p parts) error {
	if f.Media == TypeProtobuf || a.recordOf(r).Wants(audit.RequestResponse) {
		return a.sendWhole(w, r, f, p)
	}
	out := &lazy{keep: p.keep,
		begin: func(size int) io.WriteCloser { return begin(w, r, f.Header(), http.StatusOK, size) }}
	err := p.write(out, layoutOf(r, f))
	switch {
	case err == nil:
		out.end()
	case out.to == nil:
		return err
	case out.err == nil: // an item that cannot be encoded
		a.Log.Error("failed to encode an item of a list", zap.String("path", r.URL.Path), zap.Error(err))
		panic(http.ErrAbortHandler) // part of the response is sent
	default: // the client has left
		out.to.Close()
	}
	return nil
}

func (a *Responder) sendWhole(w http.ResponseWriter, r *http.Request, f Format, p parts) error {
	whole := wholeList{limit: cmp.Or(a.MaxWhole, maxWhole)}
	if err := p.write(&whole, Compact); err != nil {
		return err
	}
	a.Send(w, r, f, http.StatusOK, json.RawMessage(whole.Bytes()))
	return nil
}

// wholeList is a buffer of limited size.
type wholeList struct {
	bytes.Buffer
	limit int
}

func (b *wholeList) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the list has more than %d MiB in this form: ask for pages with limit=, or for JSON", b.limit>>20))
	}
	return b.Buffer.Write(p)
}

// lazy keeps what is written until it is too much for a response of a known length.
type lazy struct {
	begin func(size int) io.WriteCloser
	keep  int // bytes
	kept  bytes.Buffer
	to    io.WriteCloser // nil: nothing is sent
	err   error          // of a write to it
}

func (l *lazy) Write(p []byte) (int, error) {
	l.kept.Write(p)
	if l.to == nil && l.kept.Len() <= l.keep || l.kept.Len() < listBuffer {
		return len(p), nil
	}
	if l.to == nil {
		l.to = l.begin(unknownSize)
	}
	_, l.err = l.kept.WriteTo(l.to)
	return len(p), l.err
}

// end sends the rest and ends the response.
func (l *lazy) end() {
	if l.to == nil {
		l.to = l.begin(l.kept.Len())
	}
	_, _ = l.kept.WriteTo(l.to) // the client may have left
	l.to.Close()
}
