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

// convertedBuffer is how much of a list that a webhook converts is buffered before the first part is sent, in bytes. If
// the webhook fails before that, the client gets the error instead of an incomplete response.
const convertedBuffer = 4 << 20

// parts is a list whose items are encoded one by one when they are sent. With defaults, after a webhook's conversion or
// as a table, the list may be much larger than the stored objects.
type parts struct {
	head    []byte
	count   int
	entries iter.Seq2[*store.Entry, error]
	encode  func(*store.Entry) ([]byte, error)
	buffer  int // bytes that are buffered before the first part is sent
}

// partsOf returns the parts of a list of a kind.
func partsOf(r *http.Request, res *kind.Resource, head []byte, entries []*store.Entry,
	encode func(*store.Entry) ([]byte, error)) parts {
	p := parts{head: head, count: len(entries), entries: convert.Each(r.Context(), res, entries), encode: encode,
		buffer: gzipFrom}
	if convert.Converts(res) {
		p.buffer = convertedBuffer
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

// sendParts sends the list: a short one with its length, a longer one item by item.
func (a *Responder) sendParts(w http.ResponseWriter, r *http.Request, f Format, p parts) error {
	if f.Media == TypeProtobuf || a.recordOf(r).Wants(audit.RequestResponse) {
		whole := wholeList{limit: cmp.Or(a.MaxWhole, maxWhole)}
		if err := p.write(&whole, Compact); err != nil {
			return err
		}
		a.Send(w, r, f, http.StatusOK, json.RawMessage(whole.Bytes()))
		return nil
	}
	out := &lazyWriter{limit: p.buffer,
		begin: func(size int) io.WriteCloser { return begin(w, r, f.Header(), http.StatusOK, size) }}
	err := p.write(out, layoutOf(r, f))
	switch {
	case err == nil: // send the rest
		if out.to == nil {
			out.to = out.begin(out.buffer.Len())
		}
		_, _ = out.buffer.WriteTo(out.to) // the client may have left
		out.to.Close()
	case out.to == nil:
		return err
	case out.err == nil: // an item cannot be encoded
		a.Log.Error("failed to encode an item of a list", zap.String("path", r.URL.Path), zap.Error(err))
		panic(http.ErrAbortHandler) // part of the response is sent
	default: // the client has left
		out.to.Close()
	}
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

// lazyWriter begins the response when more than limit bytes are written or the list ends. In the latter case the
// response has a known length.
type lazyWriter struct {
	begin  func(size int) io.WriteCloser
	limit  int // bytes
	buffer bytes.Buffer
	to     io.WriteCloser // nil: nothing is sent
	err    error          // of a write to the response
}

func (l *lazyWriter) Write(p []byte) (int, error) {
	l.buffer.Write(p)
	if l.to == nil && l.buffer.Len() <= l.limit || l.buffer.Len() < listBuffer {
		return len(p), nil
	}
	if l.to == nil {
		l.to = l.begin(unknownSize)
	}
	_, l.err = l.buffer.WriteTo(l.to)
	return len(p), l.err
}
