package bounded

import "google.golang.org/protobuf/encoding/protowire"

// Field is one field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	// Value is the encoded value, for a BytesType without its length.
	Value []byte
}

// NextField returns the first field of a message and the rest of the message. It returns false at the end, and for an
// invalid message, which then is not empty. It does not allocate.
func NextField(message []byte) (f Field, rest []byte, ok bool) {
	number, typ, n := protowire.ConsumeTag(message)
	if n < 0 {
		return Field{}, message, false
	}
	size := protowire.ConsumeFieldValue(number, typ, message[n:])
	if size < 0 {
		return Field{}, message, false
	}
	value := message[n : n+size]
	if typ == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(value)
	}
	return Field{Number: number, Type: typ, Value: value}, message[n+size:], true
}
