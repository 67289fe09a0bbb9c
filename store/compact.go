package store

import (
	"encoding/json"
	"fmt"
)

// Compact is an object that keeps its JSON itself, compressed: its entries keep none, and make it when somebody reads
// it. It is for kinds whose objects are large and seldom read: CustomResourceDefinitions.
type Compact interface {
	Object
	json.Marshaler
	// Pack compresses what can be, before the object is stored.
	Pack() error
	// Load sets the object to data, JSON that was stored, without decoding what stays compressed.
	Load(data []byte) error
	// Weight is about the length of the JSON, in bytes. It is constant for an object that is stored.
	Weight() int
}

// Decode sets obj to data, JSON that was stored.
func Decode(data []byte, obj Object) error {
	if c, ok := obj.(Compact); ok {
		return c.Load(data)
	}
	return json.Unmarshal(data, obj)
}

// NewEncoded returns an entry of an object that is not stored, or is stored in another version, with its JSON.
func NewEncoded(key Key, rev int64, obj Object, data []byte) *Entry {
	return &Entry{Key: key, Rev: rev, Object: obj, json: data}
}

// ReadEntry returns the entry of an object that Decode read, with what it read.
func ReadEntry(key Key, rev int64, obj Object, data []byte) *Entry {
	if _, ok := obj.(Compact); ok {
		data = nil
	}
	return NewEncoded(key, rev, obj, data)
}

// newEntry returns the entry of obj, which was encoded as plain and has its revision.
func newEntry(key Key, rev int64, obj Object, plain []byte) *Entry {
	if _, ok := obj.(Compact); ok {
		return &Entry{Key: key, Rev: rev, Object: obj}
	}
	return &Entry{Key: key, Rev: rev, Object: obj, json: withRevision(plain, rev)}
}

// JSON returns the object encoded, resourceVersion included. It is shared, unless the object is Compact.
func (e *Entry) JSON() []byte {
	if e.json != nil {
		return e.json
	}
	if c, ok := e.Object.(Compact); ok {
		plain := c.DeepCopyObject().(Compact)
		plain.SetResourceVersion("")
		data, err := plain.MarshalJSON()
		if err != nil {
			panic(fmt.Sprintf("%v cannot be encoded again: %v", e.Key, err)) // it was compressed in this process
		}
		return withRevision(data, e.Rev)
	}
	return nil
}

// Size is the length of the JSON in bytes; exact is false if that is an estimate, for a Compact object.
func (e *Entry) Size() (bytes int, exact bool) {
	if e.json != nil {
		return len(e.json), true
	}
	if c, ok := e.Object.(Compact); ok {
		return c.Weight(), false
	}
	return 0, true
}
