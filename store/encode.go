package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// An entry's JSON is encoded without a resourceVersion, on the goroutine of the
// caller; the writer, which alone knows the revision, splices it in as the
// first field of metadata.
var (
	metadataField = []byte(`"metadata":{`)
	versionField  = []byte(`"metadata":{"resourceVersion":"`)
)

// encoder encodes one object after the other into the same buffer.
type encoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

func newEncoder() *encoder {
	e := &encoder{}
	e.json = json.NewEncoder(&e.buf)
	return e
}

// encode returns obj's JSON without a resourceVersion, until the next call; it
// clears obj's.
func (e *encoder) encode(obj Object) ([]byte, error) {
	obj.SetResourceVersion("")
	if c, ok := obj.(Compact); ok {
		if err := c.Pack(); err != nil {
			return nil, err
		}
		return c.MarshalJSON()
	}
	e.buf.Reset()
	if err := e.json.Encode(obj); err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(e.buf.Bytes(), []byte{'\n'})
	if !bytes.Contains(data, metadataField) {
		return nil, fmt.Errorf("%T encodes without metadata", obj)
	}
	return data, nil
}

// withRevision splices rev into plain JSON as encode made it.
func withRevision(plain []byte, rev int64) []byte {
	at := bytes.Index(plain, metadataField) + len(metadataField)
	var field [len(`"resourceVersion":"",`) + maxDigits]byte
	version := append(field[:0], `"resourceVersion":"`...)
	version = strconv.AppendInt(version, rev, 10)
	version = append(version, '"')
	if plain[at] != '}' {
		version = append(version, ',')
	}
	out := make([]byte, 0, len(plain)+len(version)) // long-lived, so exactly sized
	out = append(out, plain[:at]...)
	out = append(out, version...)
	return append(out, plain[at:]...)
}

// maxDigits is the length of the highest revision.
const maxDigits = 19

// atRevision is JSON as withRevision makes it, with another revision.
func atRevision(data []byte, rev int64) []byte {
	head, tail, ok := bytes.Cut(data, versionField)
	if !ok {
		return withRevision(data, rev)
	}
	tail = tail[bytes.IndexByte(tail, '"'):]
	var digits [maxDigits]byte
	version := strconv.AppendInt(digits[:0], rev, 10)
	out := make([]byte, 0, len(head)+len(versionField)+len(version)+len(tail))
	out = append(append(out, head...), versionField...)
	return append(append(out, version...), tail...)
}

// samePlain reports whether data is plain plus a resourceVersion.
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
