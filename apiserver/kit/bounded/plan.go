package bounded

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// kind is how a decoder treats a value.
type kind int

const (
	scalar    kind = iota // a number or a bool, which needs no further memory
	text                  // a string or bytes
	raw                   // decodes its text itself
	embedded              // keeps JSON that is decoded later
	anything              // an interface: any value
	structure             // fields
	mapping               // string keys and values
	list                  // items
	pointer               // to a value that is allocated if present
)

// plan describes the memory that decoding into a type needs.
type plan struct {
	kind    kind
	size    int              // of each further value, in bytes: an item, an entry, the target of a pointer
	elem    *plan            // of a mapping, a list or a pointer
	fields  map[string]*plan // of a structure, by JSON name
	numbers map[int]numbered // by protobuf number
}

// numbered is a field of a protobuf message.
type numbered struct {
	name string // in JSON
	plan *plan
}

const (
	stringSize = 16 // of the header of a string
	// growth is the factor by which a growing list exceeds its length: the old array and the new one, which is
	// up to twice as long.
	growth = 3
	// mapEntry is the overhead of a map for each entry: it grows as lists do, and has spare capacity.
	mapEntry = 3 * stringSize
	// objectSize and memberSize are those of a map[string]any: a non-empty one has room for eight members.
	objectSize, firstMembers, memberSize = 48, 272, 80
	// itemSize is the size of an item of a []any, and boxSize that of the value it points to.
	itemSize, boxSize = growth * 16, 16
)

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	fieldsV1    = reflect.TypeFor[metav1.FieldsV1]()
	extension   = reflect.TypeFor[runtime.RawExtension]()
)

func (w *Weigher) planOf(t reflect.Type) *plan {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.plans == nil {
		w.plans = map[reflect.Type]*plan{}
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return &plan{kind: anything}
	}
	return w.analyze(t)
}

// analyze computes the plan of a type, which may contain itself. The caller holds mu.
func (w *Weigher) analyze(t reflect.Type) *plan {
	if p, ok := w.plans[t]; ok {
		return p
	}
	p := &plan{}
	w.plans[t] = p
	switch {
	case t == fieldsV1, t == extension:
		p.kind = embedded
	case reflect.PointerTo(t).Implements(unmarshaler) && t.Kind() != reflect.Interface:
		p.kind = raw
	default:
		w.analyzeKind(p, t)
	}
	if p.kind == embedded || p.kind == raw { // messages in protobuf
		w.analyzeFields(p, t)
	}
	return p
}

func (w *Weigher) analyzeKind(p *plan, t reflect.Type) {
	switch t.Kind() {
	case reflect.String:
		p.kind = text
	case reflect.Interface:
		p.kind = anything
	case reflect.Pointer:
		p.kind, p.size, p.elem = pointer, int(t.Elem().Size()), w.analyze(t.Elem())
	case reflect.Map:
		p.kind, p.size, p.elem = mapping, mapEntry+growth*int(t.Elem().Size()), w.analyze(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			p.kind = text
			return
		}
		p.kind, p.size, p.elem = list, growth*int(t.Elem().Size()), w.analyze(t.Elem())
	case reflect.Struct:
		p.kind = structure
		w.analyzeFields(p, t)
	}
}

func (w *Weigher) analyzeFields(p *plan, t reflect.Type) {
	if t.Kind() != reflect.Struct {
		return
	}
	p.fields, p.numbers = map[string]*plan{}, map[int]numbered{}
	w.addFields(p, t)
}

func (w *Weigher) addFields(p *plan, t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		elem := f.Type
		if f.Anonymous && name == "" {
			for elem.Kind() == reflect.Pointer {
				elem = elem.Elem()
			}
			if elem.Kind() == reflect.Struct {
				w.addFields(p, elem)
			}
		}
		if !f.IsExported() {
			continue
		}
		if name != "" && name != "-" {
			p.fields[name] = w.analyze(f.Type)
		}
		if parts := strings.Split(f.Tag.Get("protobuf"), ","); len(parts) > 1 {
			if number, err := strconv.Atoi(parts[1]); err == nil {
				p.numbers[number] = numbered{name, w.analyze(f.Type)}
			}
		}
	}
}
