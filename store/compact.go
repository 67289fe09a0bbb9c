package store

import (
	"encoding/json"
	"fmt"
)

// Compact is an object that contains its own JSON, compressed. Its entries do not keep the JSON, but encode the object
// whenever it is read. It is for kinds whose objects are large and rarely read: CustomResourceDefinitions.
type Compact interface {
	Object
	json.Marshaler
	// Pack compresses the object before it is stored.
	Pack() error
	// Load sets the object from stored JSON, without decoding the parts that stay compressed.
	Load(data []byte) error
	// Weight returns the approximate length of the JSON in bytes. It is constant for a stored object.
	Weight() int
}

// Decode sets obj from stored JSON.
func Decode(data []byte, obj Object) error {
	if c, ok := obj.(Compact); ok {
		return c.Load(data)
	}
	return json.Unmarshal(data, obj)
}

// NewEncoded returns an entry with the given JSON, for an object that is not stored, or is stored in another version.
func NewEncoded(key Key, rev int64, obj Object, data []byte) *Entry {
	return &Entry{Key: key, Rev: rev, Object: obj, json: data}
}

// ReadEntry returns the entry of an object that Decode has set from data.
func ReadEntry(key Key, rev int64, obj Object, data []byte) *Entry {
	if _, ok := obj.(Compact); ok {
		data = nil
	}
	return NewEncoded(key, rev, obj, data)
}

// newEntry returns the entry of obj. plain is its JSON without resourceVersion; the object already has the revision.
func newEntry(key Key, rev int64, obj Object, plain []byte) *Entry {
	if _, ok := obj.(Compact); ok {
		return &Entry{Key: key, Rev: rev, Object: obj}
	}
	return &Entry{Key: key, Rev: rev, Object: obj, json: withRevision(plain, rev)}
}

// JSON returns the encoded object with its resourceVersion. The slice is shared, unless the object is Compact.
func (e *Entry) JSON() []byte {
	if e.json != nil {
		return e.json
	}
	if c, ok := e.Object.(Compact); ok {
		plain := c.DeepCopyObject().(Compact)
		plain.SetResourceVersion("")
		data, err := plain.MarshalJSON()
		if err != nil {
			panic(fmt.Sprintf("%v cannot be encoded again: %v", e.Key, err)) // cannot happen: this process compressed it
		}
		return withRevision(data, e.Rev)
	}
	return nil
}

// Size returns the length of the JSON in bytes; exact is false for a Compact object, whose length is an estimate.
func (e *Entry) Size() (bytes int, exact bool) {
	if e.json != nil {
		return len(e.json), true
	}
	if c, ok := e.Object.(Compact); ok {
		return c.Weight(), false
	}
	return 0, true
}
