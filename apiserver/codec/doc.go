// Package codec decodes requests and encodes responses: media types, objects in JSON, YAML and protobuf, lists
// and tables, errors as a Status, warnings, compression. The memory for decoding a body is estimated first
// (package bounded) and waits until it is available (Memory).
//
//   - cbor.go: converts JSON to CBOR (RFC 8949) and back with the library of Kubernetes' clients
//   - layout.go: lays out JSON as responses send it
//   - protobuf.go: encodes objects, lists and watch events as the API's protobuf bodies
package codec
