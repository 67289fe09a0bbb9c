package codec

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// A protobuf body is four bytes of magic and an envelope, a runtime.Unknown: the type (1), the message (2), two
// texts that are empty (3, 4). A list has its metadata in field 1 and its items in 2; a watch event its type in
// 1 and, in 2, a RawExtension whose field 1 is a whole body. All fields are length-delimited.
const (
	field1 = 1<<3 | 2
	field2 = 2<<3 | 2
)

// Magic is the prefix of every protobuf body.
var Magic = []byte("k8s\x00")

// ProtobufMessage is a type that can be encoded as protobuf.
type ProtobufMessage interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
}

// asMessage returns v as a message, or a 406 error for a type without protobuf.
func asMessage(v any) (ProtobufMessage, error) {
	if p, ok := v.(kind.Packed); ok {
		typed, err := p.Typed()
		if err != nil {
			return nil, err
		}
		v = typed
	}
	if m, ok := v.(ProtobufMessage); ok {
		return m, nil
	}
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf(
			"object %T does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message", v),
	}}
}

// appendField appends the header of a field of size bytes.
func appendField(b []byte, tag byte, size int) []byte {
	return binary.AppendUvarint(append(b, tag), uint64(size))
}

// sizeOfField returns the length of a field of size bytes with its header.
func sizeOfField(size int) int { return 1 + sizeOfVarint(uint64(size)) + size }

func sizeOfVarint(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// appendMessage appends m, which has size bytes.
func appendMessage(b []byte, m ProtobufMessage, size int) ([]byte, error) {
	at := len(b)
	b = append(b, make([]byte, size)...)
	if _, err := m.MarshalToSizedBuffer(b[at:]); err != nil {
		return nil, err
	}
	return b, nil
}

// sizeOfBody returns the length of a body that contains a message of size bytes of the kind.
func sizeOfBody(gvk schema.GroupVersionKind, size int) int {
	kind := runtime.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
	return len(Magic) + sizeOfField(kind.Size()) + sizeOfField(size) + len(Tail)
}

// Tail ends every envelope.
const Tail = "\x1a\x00\x22\x00"

// appendBody appends the start of a body that contains a message of size bytes of the kind. Tail ends the body.
func appendBody(b []byte, gvk schema.GroupVersionKind, size int) []byte {
	version := gvk.GroupVersion().String()
	b = append(b, Magic...)
	b = appendField(b, field1, sizeOfField(len(version))+sizeOfField(len(gvk.Kind)))
	b = append(appendField(b, field1, len(version)), version...)
	b = append(appendField(b, field2, len(gvk.Kind)), gvk.Kind...)
	return appendField(b, field2, size)
}

// Protobuf returns v, an object with a TypeMeta, as a body. It returns a 406 error for a type without protobuf.
func Protobuf(v any) ([]byte, error) {
	m, err := asMessage(v)
	if err != nil {
		return nil, err
	}
	var gvk schema.GroupVersionKind
	if o, ok := v.(runtime.Object); ok {
		gvk = o.GetObjectKind().GroupVersionKind()
	}
	size := m.Size()
	b, err := appendMessage(appendBody(make([]byte, 0, sizeOfBody(gvk, size)), gvk, size), m, size)
	return append(b, Tail...), err
}

// ProtobufEntry returns an entry's object as a body in two parts, which Tail ends. It returns a 406 error for a type
// without protobuf.
func ProtobufEntry(e *store.Entry) (head, data []byte, err error) {
	m, err := asMessage(e.Object)
	if err != nil {
		return nil, nil, err
	}
	size := m.Size()
	if data, err = appendMessage(make([]byte, 0, size), m, size); err != nil {
		return nil, nil, err
	}
	return appendBody(make([]byte, 0, headSize), e.Object.GetObjectKind().GroupVersionKind(), len(data)), data, nil
}

// headSize is more than most bodies have before their message, in bytes.
const headSize = 96

// ProtobufEvent appends a watch event that contains object, a body.
func ProtobufEvent(b []byte, typ watch.EventType, object []byte) []byte {
	raw := sizeOfField(len(object))
	b = append(appendField(b, field1, len(typ)), typ...)
	b = appendField(appendField(b, field2, raw), field1, len(object))
	return append(b, object...)
}

// ProtobufList is a list of entries that is written one item at a time.
type ProtobufList struct {
	gvk   schema.GroupVersionKind
	meta  metav1.ListMeta
	items []protobufItem
	size  int // of the list without its envelope
}

// protobufItem is an entry and the size of its message.
type protobufItem struct {
	entry *store.Entry
	size  int
}

// NewProtobufList returns the list of entries, which are of one kind. It returns a 406 error for a kind without
// protobuf.
func NewProtobufList(gvk schema.GroupVersionKind, meta metav1.ListMeta, entries []*store.Entry) (*ProtobufList, error) {
	l := &ProtobufList{gvk: gvk, meta: meta, items: make([]protobufItem, len(entries))}
	l.size = sizeOfField(meta.Size())
	for i, e := range entries {
		m, err := asMessage(e.Object)
		if err != nil {
			return nil, err
		}
		size := m.Size()
		l.items[i] = protobufItem{entry: e, size: size}
		l.size += sizeOfField(size)
	}
	return l, nil
}

// Length returns the length of the whole body, in bytes.
func (l *ProtobufList) Length() int { return sizeOfBody(l.gvk, l.size) }

// Write writes the body. It returns errors of the encoding, not of the writer.
func (l *ProtobufList) Write(w io.Writer) error {
	size := l.meta.Size()
	b := appendField(appendBody(nil, l.gvk, l.size), field1, size)
	b, err := appendMessage(b, &l.meta, size)
	if err != nil {
		return err
	}
	w.Write(b)
	for _, it := range l.items {
		m, err := asMessage(it.entry.Object) // again, because the message of a Packed object is not kept
		if err != nil {
			return err
		}
		if b, err = appendMessage(appendField(b[:0], field2, it.size), m, it.size); err != nil {
			return err
		}
		w.Write(b)
	}
	io.WriteString(w, Tail)
	return nil
}
