package codec

import (
	"encoding/binary"
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"
)

// Prefix is the tag of self-described CBOR, with which every document of Kubernetes begins.
var Prefix = []byte{0xd9, 0xd9, 0xf7}

const (
	// itemSize is the maximum memory for a decoded item of a document, which is that for a member of a small map.
	itemSize = 130
	// escaped is the maximum memory for a byte of a text: six bytes as an escape in JSON, and one decoded.
	escaped = 7
	// small is the maximum length of documents that are encoded concurrently, in bytes.
	small = 64 << 10
)

// Weight returns the maximum memory for the conversion of a document to JSON, in bytes: decoded values take up to a
// hundred times as much memory as the document.
func Weight(data []byte) int { return escaped*len(data) + itemSize*items(data) }

// items returns the number of items in a document, or in its start if it is not well-formed.
func items(data []byte) (n int) {
	const info, bytesOf, textOf = 31, 2, 3
	for at := 0; at < len(data); n++ {
		first := data[at]
		at++
		length := uint64(first & info)
		if size := first & info; size >= 28 { // an indefinite length, or the end of what has one
			length = 0
		} else if size >= 24 {
			length = 0
			for range 1 << (size - 24) {
				if at == len(data) {
					return n
				}
				length = length<<8 | uint64(data[at])
				at++
			}
		}
		if major := first >> 5; major == bytesOf || major == textOf {
			if length > uint64(len(data)-at) {
				return n
			}
			at += int(length)
		}
	}
	return n
}

// ToJSON returns the JSON form of a CBOR document, with or without Prefix.
func ToJSON(data []byte) ([]byte, error) {
	var v any
	if err := direct.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// large serializes the encoding of documents that are not small, so that concurrent readers do not multiply the memory
// for their values.
var large sync.Mutex

// FromJSON returns the CBOR form of a JSON document, without Prefix.
func FromJSON(data []byte) ([]byte, error) {
	if len(data) > small {
		large.Lock()
		defer large.Unlock()
	}
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &v); err != nil {
		return nil, err
	}
	return direct.Marshal(v)
}

// WithList returns the start of a CBOR object: the members of object, which are fewer than 23, and a list of n items,
// which the caller appends.
func WithList(object []byte, name string, n int) []byte {
	out := append([]byte{object[0] + 1}, object[1:]...)
	out = append(append(out, 0x40|byte(len(name))), name...)
	return binary.BigEndian.AppendUint32(append(out, 0x9a), uint32(n))
}
