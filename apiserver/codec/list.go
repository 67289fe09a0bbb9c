package codec

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/audit"
	"monopod/apiserver/registry/convert"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
	"monopod/store"
)

// SendEntries sends a list in the format f.
func (a *Responder) SendEntries(w http.ResponseWriter, r *http.Request, f Format, res *kind.Resource,
	entries []*store.Entry, meta metav1.ListMeta) error {
	switch f.As {
	case "Table":
		return a.listTable(w, r, res, f, entries, meta)
	case partialListKind:
		if f.Media != TypeProtobuf {
			head, err := listHead(f.Shape.WithKind(partialListKind), meta)
			if err != nil {
				return err
			}
			encode := func(e *store.Entry) ([]byte, error) { return json.Marshal(metaOf(e.Object)) }
			return a.sendParts(w, r, f, partsOf(r, res, head, entries, encode))
		}
		list, err := partialList(r, res, f, entries, meta)
		if err == nil {
			a.Send(w, r, f, http.StatusOK, list)
		}
		return err
	}
	return a.SendList(w, r, f, res, entries, meta)
}

func partialList(r *http.Request, res *kind.Resource, f Format, entries []*store.Entry,
	meta metav1.ListMeta) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{ListMeta: meta, Items: make([]metav1.PartialObjectMetadata, 0, len(entries))}
	list.Kind, list.APIVersion = partialListKind, f.Shape.String()
	for e, err := range convert.Each(r.Context(), res, entries) {
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *metaOf(e.Object))
	}
	return list, nil
}

const partialListKind = "PartialObjectMetadataList"

func (a *Responder) listTable(w http.ResponseWriter, r *http.Request, res *kind.Resource, f Format,
	entries []*store.Entry, meta metav1.ListMeta) error {
	include, err := request.IncludeObject(r)
	if err != nil {
		return err
	}
	t := NewTable(res, include, f.Shape)
	t.ListMeta = meta
	head, err := t.head()
	if err != nil {
		return err
	}
	if res.Order != nil {
		entries = slices.Clone(entries)
		slices.SortStableFunc(entries, func(a, b *store.Entry) int { return res.Order(a.Object, b.Object) })
	}
	now := a.Clock.Now()
	return a.sendParts(w, r, f,
		partsOf(r, res, head, entries, func(e *store.Entry) ([]byte, error) { return t.encoded(e, now) }))
}

// SendList sends the entries as a list. It writes their stored JSON directly to the response, so that a long list is
// never in memory as a whole.
func (a *Responder) SendList(w http.ResponseWriter, r *http.Request, f Format, res *kind.Resource,
	entries []*store.Entry, meta metav1.ListMeta) error {
	if f.Media != TypeProtobuf && (res.View != nil || layoutOf(r, f) != Compact) {
		head, err := listHead(res.ListGVK(), meta)
		if err != nil {
			return err
		}
		return a.sendParts(w, r, f,
			partsOf(r, res, head, entries, func(e *store.Entry) ([]byte, error) { return e.JSON(), nil }))
	}
	if a.recordOf(r).Wants(audit.RequestResponse) {
		var whole bytes.Buffer
		if head, err := listHead(res.ListGVK(), meta); err == nil {
			writeList(&whole, head, entries)
			audit.Of(r.Context()).Answered(whole.Bytes())
		}
	}
	if f.Media == TypeProtobuf {
		entries, err := convert.Entries(r.Context(), res, entries) // custom objects have no protobuf
		if err != nil {
			return err
		}
		list, err := NewProtobufList(res.ListGVK(), meta, entries)
		if err != nil {
			return err
		}
		stream(begin(w, r, TypeProtobuf, http.StatusOK, list.Length()), func(out io.Writer) {
			if err := list.Write(out); err != nil {
				a.Log.Error("failed to encode an item of a list", zap.String("path", r.URL.Path), zap.Error(err))
				panic(http.ErrAbortHandler) // part of the response is sent
			}
		})
		return nil
	}
	head, err := listHead(res.ListGVK(), meta)
	if err != nil {
		return err
	}
	size := len(head) + len(ListTail) + max(len(entries)-1, 0)
	for _, e := range entries {
		n, exact := e.Size()
		if !exact {
			size = unknownSize
			break
		}
		size += n
	}
	stream(begin(w, r, TypeJSON, http.StatusOK, size), func(out io.Writer) { writeList(out, head, entries) })
	return nil
}

// stream writes a response in large blocks and ends it.
func stream(w io.WriteCloser, write func(io.Writer)) {
	out := bufio.NewWriterSize(w, listBuffer)
	write(out)
	out.Flush() // the client may have left
	w.Close()
}

// listBuffer is the size of the blocks of stream, in bytes.
const listBuffer = 64 << 10

func listHead(gvk schema.GroupVersionKind, meta metav1.ListMeta) ([]byte, error) {
	data, err := json.Marshal(meta)
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, gvk.Kind, gvk.GroupVersion(), data), err
}

// writeList writes a list. It ignores errors, because the client may have left.
func writeList(w io.Writer, head []byte, entries []*store.Entry) {
	w.Write(head)
	for i, e := range entries {
		if i > 0 {
			io.WriteString(w, ",")
		}
		w.Write(e.JSON())
	}
	io.WriteString(w, ListTail)
}

// SendEntry sends an object in the format f.
func (a *Responder) SendEntry(w http.ResponseWriter, r *http.Request, f Format, res *kind.Resource,
	e *store.Entry) error {
	if f.Media != TypeProtobuf || f.As != "" || res.View != nil || a.recordOf(r).Wants(audit.RequestResponse) {
		v, err := a.Shape(r, res, f, e)
		if err == nil {
			a.Send(w, r, f, http.StatusOK, v)
		}
		return err
	}
	head, data, err := ProtobufEntry(e)
	if err != nil {
		a.failEncoding(w, r, err)
		return nil
	}
	out := begin(w, r, f.Header(), http.StatusOK, len(head)+len(data)+len(Tail))
	defer out.Close()
	out.Write(head) // the client may have left
	out.Write(data)
	io.WriteString(out, Tail)
	return nil
}

// Shape returns the value to send for an entry in the format f.
func (a *Responder) Shape(r *http.Request, res *kind.Resource, f Format, e *store.Entry) (any, error) {
	switch f.As {
	case "Table":
		include, err := request.IncludeObject(r)
		if err != nil {
			return nil, err
		}
		t := NewTable(res, include, f.Shape)
		t.ResourceVersion = e.Object.GetResourceVersion()
		return t, t.Add(e, a.Clock.Now())
	case "PartialObjectMetadata":
		return Partial(e.Object, f.Shape), nil
	}
	if f.Media == TypeProtobuf {
		return e.Object, nil
	}
	if pretty(r) {
		return json.RawMessage(e.JSON()), nil
	}
	return e.JSON(), nil
}
