// Package codec decodes requests and encodes responses: media types, objects in JSON, YAML and protobuf, lists
// and tables, errors as a Status, warnings, compression. The memory for decoding a body is estimated first
// (package bounded) and waits until it is available (Memory).
package codec
