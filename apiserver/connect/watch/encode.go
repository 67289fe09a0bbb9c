package watch

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/codec"
	"monopod/apiserver/registry/convert"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// encoder encodes objects in the format of a watch.
type encoder struct {
	res     *kind.Resource
	media   string // codec.TypeProtobuf or TypeCBOR; empty: JSON
	as      string
	version schema.GroupVersion // of as
	include metav1.IncludeObjectPolicy
	bare    bool // messages need no length, because the connection delimits them
	headed  bool // the columns of the Table have been sent
	s       *Watcher
}

func (e *encoder) contentType() string {
	switch e.media {
	case codec.TypeProtobuf:
		return codec.TypeProtobuf + ";stream=watch"
	case codec.TypeCBOR:
		return codec.TypeCBORSequence
	}
	return codec.TypeJSON
}

// frame appends the encoded event of an encoded object.
func (e *encoder) frame(b []byte, typ watch.EventType, object []byte) []byte {
	if e.media == codec.TypeCBOR {
		return codec.CBOREvent(b, typ, object)
	}
	if e.media != codec.TypeProtobuf {
		b = append(b, `{"type":"`...)
		b = append(b, typ...)
		b = append(b, `","object":`...)
		b = append(b, object...)
		return append(b, "}\n"...)
	}
	if e.bare {
		return codec.ProtobufEvent(b, typ, object)
	}
	at := len(b)
	b = codec.ProtobufEvent(append(b, 0, 0, 0, 0), typ, object)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// shared returns the frame of an event, encoded once for all watches with the same format.
func (e *encoder) shared(ctx context.Context, typ watch.EventType, entry *store.Entry) ([]byte, error) {
	key := frameKey{entry: entry, typ: typ, res: e.res, media: e.media, as: e.as, version: e.version, bare: e.bare}
	if e.as != "Table" {
		if frame := e.s.frames.find(key); frame != nil {
			return frame, nil
		}
	}
	entry, err := convert.Entry(ctx, e.res, entry)
	if err != nil {
		return nil, err
	}
	object, err := e.object(entry)
	if err != nil {
		return nil, err
	}
	frame := e.frame(make([]byte, 0, len(object)+frameOverhead), typ, object)
	if e.as != "Table" {
		e.s.frames.keep(key, frame)
	}
	return frame, nil
}

// frameOverhead is more than a frame adds to its object, in bytes.
const frameOverhead = 48

// object returns an entry in the client's format.
func (e *encoder) object(entry *store.Entry) ([]byte, error) {
	switch e.as {
	case "Table":
		return e.table(entry)
	case "PartialObjectMetadata":
		return e.encode(codec.Partial(entry.Object, e.version))
	}
	if e.media == codec.TypeProtobuf {
		return codec.Protobuf(entry.Object)
	}
	return entry.JSON(), nil
}

func (e *encoder) encode(v any) ([]byte, error) {
	if e.media == codec.TypeProtobuf {
		return codec.Protobuf(v)
	}
	return json.Marshal(v)
}

func (e *encoder) status(status *metav1.Status) ([]byte, error) { return e.encode(status) }

func (e *encoder) table(entry *store.Entry) ([]byte, error) {
	t := codec.NewTable(e.res, e.include, e.version)
	if e.headed {
		t.ColumnDefinitions = nil
	}
	e.headed = true
	t.ResourceVersion = entry.Object.GetResourceVersion()
	if err := t.Add(entry, e.s.Clock.Now()); err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

// bookmark returns an encoded object with only a resourceVersion and annotations.
func (e *encoder) bookmark(resourceVersion string, annotations map[string]string) ([]byte, error) {
	obj := e.res.New()
	obj.GetObjectKind().SetGroupVersionKind(e.res.GVK())
	obj.SetResourceVersion(resourceVersion)
	obj.SetAnnotations(annotations)
	switch {
	case e.as == "Table":
		return e.tableBookmark(obj)
	case e.as != "":
		return e.encode(codec.Partial(obj, e.version))
	case e.media == codec.TypeProtobuf:
		return codec.Protobuf(obj)
	}
	meta, err := json.Marshal(annotations)
	if err != nil {
		return nil, err
	}
	extra := ""
	if len(annotations) > 0 {
		extra = `,"annotations":` + string(meta)
	}
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":%q,"creationTimestamp":null%s}}`,
		e.res.Kind, e.res.GVR.GroupVersion(), resourceVersion, extra), nil
}

// tableBookmark returns a Table with one row, whose object contains the bookmark. At the end of the initial events the
// row has its object even if the client requests none.
func (e *encoder) tableBookmark(obj kind.Object) ([]byte, error) {
	t := codec.NewTable(e.res, e.include, e.version)
	if e.headed {
		t.ColumnDefinitions = nil
	}
	e.headed = true
	t.ResourceVersion = obj.GetResourceVersion()
	var object runtime.RawExtension
	if e.include != metav1.IncludeNone || len(obj.GetAnnotations()) > 0 {
		object.Object = codec.Partial(obj, e.version)
	}
	t.Rows = append(t.Rows, table.Row(e.res.Columns, obj, e.s.Clock.Now(), object))
	return json.Marshal(t)
}

const (
	// sharedFrames is the maximum number of cached events, and sharedSize the maximum size of one, in bytes. Few are
	// enough, because watches of the same objects read an event at nearly the same time.
	sharedFrames = 64
	sharedSize   = 64 << 10
)

// frameKey identifies an event in a format.
type frameKey struct {
	entry     *store.Entry
	typ       watch.EventType
	res       *kind.Resource
	media, as string
	version   schema.GroupVersion
	bare      bool
}

// frames caches encoded events.
type frames struct {
	mu  sync.Mutex // guards all
	all map[frameKey][]byte
}

func (f *frames) find(key frameKey) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[key]
}

func (f *frames) keep(key frameKey, frame []byte) {
	if len(frame) > sharedSize {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == sharedFrames {
		clear(f.all)
	}
	f.all[key] = frame
}
