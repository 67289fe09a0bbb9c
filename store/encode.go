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

// encode returns obj's JSON without a resourceVersion; it clears obj's.
func encode(obj Object) ([]byte, error) {
	obj.SetResourceVersion("")
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(data, metadataField) {
		return nil, fmt.Errorf("%T encodes without metadata", obj)
	}
	return data, nil
}

// withRevision splices rev into plain JSON as encode made it.
func withRevision(plain []byte, rev int64) []byte {
	at := bytes.Index(plain, metadataField) + len(metadataField)
	out := make([]byte, 0, len(plain)+42)
	out = append(out, plain[:at]...)
	out = append(out, `"resourceVersion":"`...)
	out = strconv.AppendInt(out, rev, 10)
	out = append(out, '"')
	if plain[at] != '}' {
		out = append(out, ',')
	}
	return append(out, plain[at:]...)
}

// withoutRevision undoes withRevision.
func withoutRevision(data []byte) []byte {
	head, tail, ok := bytes.Cut(data, versionField)
	if !ok {
		return data
	}
	_, tail, _ = bytes.Cut(tail, []byte{'"'})
	tail = bytes.TrimPrefix(tail, []byte{','})
	out := make([]byte, 0, len(data))
	out = append(out, head...)
	out = append(out, metadataField...)
	return append(out, tail...)
}

// samePlain says whether data is plain plus a resourceVersion.
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
