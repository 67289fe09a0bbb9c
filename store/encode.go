package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// The caller encodes an object without a resourceVersion. The writer, which assigns the revision, inserts it as the
// first field of metadata.
var (
	metadataField = []byte(`"metadata":{`)
	versionField  = []byte(`"metadata":{"resourceVersion":"`)
)

// Encode returns obj's JSON without a resourceVersion, which stores keep separately. It clears obj's resourceVersion.
func Encode(obj Object) (plain []byte, err error) {
	obj.SetResourceVersion("")
	if c, ok := obj.(Compact); ok {
		if err := c.Pack(); err != nil {
			return nil, err
		}
		return c.MarshalJSON()
	}
	if plain, err = json.Marshal(obj); err != nil {
		return nil, err
	}
	if !bytes.Contains(plain, metadataField) {
		return nil, fmt.Errorf("%T encodes without metadata", obj)
	}
	return plain, nil
}

// withRevision inserts rev into JSON from Encode.
func withRevision(plain []byte, rev int64) []byte {
	at := bytes.Index(plain, metadataField) + len(metadataField)
	version := fmt.Appendf(nil, `"resourceVersion":"%d"`, rev)
	if plain[at] != '}' {
		version = append(version, ',')
	}
	return slices.Concat(plain[:at], version, plain[at:])
}

// atRevision replaces the revision in JSON from withRevision.
func atRevision(data []byte, rev int64) []byte {
	head, tail, ok := bytes.Cut(data, versionField)
	if !ok {
		return withRevision(data, rev)
	}
	return slices.Concat(head, versionField, strconv.AppendInt(nil, rev, 10), tail[bytes.IndexByte(tail, '"'):])
}

// samePlain reports whether data is the same as plain except for its resourceVersion.
func samePlain(plain, data []byte) bool {
	head, tail, ok := bytes.Cut(data, versionField)
	if !ok {
		return bytes.Equal(plain, data)
	}
	_, tail, _ = bytes.Cut(tail, []byte{'"'})
	tail = bytes.TrimPrefix(tail, []byte{','})
	rest, ok := bytes.CutPrefix(plain, head)
	if !ok {
		return false
	}
	rest, ok = bytes.CutPrefix(rest, metadataField)
	return ok && bytes.Equal(rest, tail)
}
