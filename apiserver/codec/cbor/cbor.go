// Package cbor converts JSON to CBOR (RFC 8949) and back, in the form that Kubernetes' clients send and expect: texts and names
// are byte strings, and everything has a definite length. Both directions read the input once and build no values, so that memory is
// bounded by the length of input and output.
package cbor

import (
	"errors"
	"fmt"
)

// Prefix is the tag that says that what follows is CBOR; Kubernetes begins every document with it.
var Prefix = []byte{0xd9, 0xd9, 0xf7}

// The major types, and the simple values that JSON has.
const (
	unsigned byte = iota << 5
	negative
	bytesOf
	textOf
	arrayOf
	mapOf
	tagged
	simple

	no, yes, null        = simple | 20, simple | 21, simple | 22
	half, single         = simple | 25, simple | 26
	double               = simple | 27
	selfDescribed        = 55799
	asBase64URL          = 21
	asBase64, asHex      = 22, 23
	timeText             = 0
	undefined            = simple | 23
	indefinite      byte = 31
)

// ErrTooLarge is the error for a document whose other form exceeds the limit.
var ErrTooLarge = errors.New("the document is too large in the other form")

// syntax is an error at a place of the input.
func syntax(at int, format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", at, fmt.Sprintf(format, args...))
}
